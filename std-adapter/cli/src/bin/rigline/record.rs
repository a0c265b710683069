//! `--record DIR` of the commands that talk to a target.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rigline_eval::report::Hashed;
use rigline_host::files;
use rigline_host::process;
use rigline_host::record::{FolderError, Recorder};
use rigline_host::target::Target;
use rigline_host::terminal;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::connect::Failure;
use crate::{exit, out};

/// The folder for the evidence of a run.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RecordArguments {
    /// Keep the evidence of this run in a folder: every line in both directions with its time,
    /// values, report, versions and hashes. The target replay:DIR then answers as the recorded one
    /// did. The folder must be new or empty, or have an earlier recording, which is replaced
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

impl RecordArguments {
    /// A recording in this folder, if there is to be one.
    pub(crate) fn of(folder: Option<&Path>) -> Self {
        Self { record: folder.map(Path::to_owned) }
    }

    /// The folder, if there is to be a recording.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.record.as_deref()
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.record.is_some()
    }

    /// Begins the recording, if one was requested.
    pub(crate) fn begin(&self, target: &str) -> Result<Option<Arc<Recorder>>, Failure> {
        let Some(folder) = &self.record else { return Ok(None) };
        let recorder = Recorder::folder(folder, target);
        let recorder = recorder.map_err(|error: FolderError| Failure::usage(format!("--record {error}")))?;
        let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        recorder.say("command", words.into());
        if let Some(program) = programs(target, None).first() {
            recorder.say("program", json!(program));
        }
        Ok(Some(Arc::new(recorder)))
    }
}

/// Ends a recording with these files, which are JSON, and returns the command's exit code. If the
/// recording is incomplete, this is reported, and a success becomes a failure.
pub(crate) fn finish(recorder: &Recorder, files: &[(&str, String)], code: u8) -> u8 {
    let written = files.iter().try_for_each(|(name, text)| {
        let written = recorder.write(name, terminal::json(text).as_bytes());
        written.map_err(|error| std::io::Error::new(error.kind(), format!("{name}: {error}")))
    });
    let finished = recorder.finish(code);
    match written.and(finished) {
        Ok(()) => code,
        Err(error) => {
            out::complain_of_failure(&format!("the recording is not complete: {error}"));
            if code == exit::SUCCESS { exit::FAILED } else { code }
        }
    }
}

/// The files that an eval is made of, with their hashes.
pub(crate) fn eval_files(spec: &rigline_eval::Spec) -> Vec<Hashed> {
    let folder = spec.path.parent().unwrap_or(Path::new(""));
    let mut paths = vec![spec.path.clone()];
    for path in spec.tasks.iter().map(|task| folder.join(&task.file)) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths.iter().map(|path| hashed(path)).collect()
}

/// The programs of an eval with their hashes: what its target starts, and the command of its agent.
pub(crate) fn eval_programs(spec: &rigline_eval::Spec) -> Vec<Hashed> {
    let folder = spec.config.target_dir.as_deref();
    let mut found = spec.config.target.as_deref().map(|target| programs(target, folder)).unwrap_or_default();
    if let Some((program, arguments)) = spec.config.command.split_first() {
        found.extend(program_and_scripts(program, arguments, spec.path.parent()));
    }
    for hashed in &mut found {
        hashed.path = spec.hidden(&hashed.path);
    }
    found
}

/// The program that a target starts in a folder, and the files among its arguments, such as a
/// script.
fn programs(target: &str, folder: Option<&Path>) -> Vec<Hashed> {
    match target.parse() {
        Ok(Target::Sim) => {
            let this = process::restart_path().ok().map(|this| this.canonicalize().unwrap_or(this));
            this.iter().map(|this| hashed(this)).collect()
        }
        Ok(Target::Exec(exec)) => program_and_scripts(&exec.program, &exec.args, folder),
        _ => Vec::new(),
    }
}

fn program_and_scripts(program: &str, arguments: &[String], folder: Option<&Path>) -> Vec<Hashed> {
    let from_folder = |path: &str| folder.unwrap_or(Path::new("")).join(path);
    let program = if program.contains(['/', '\\']) { Some(from_folder(program)) } else { which::which(program).ok() };
    // A shell's command is a word that has others in it, and an option may have a file behind its
    // `=`.
    let words = arguments.iter().flat_map(|argument| {
        let parts = argument.split([' ', '=', ';', '&', '|', '"', '\'']);
        std::iter::once(argument.as_str()).chain(parts)
    });
    let scripts = words.filter(|word| !word.is_empty()).map(from_folder).filter(|path| path.is_file());
    let mut found: Vec<PathBuf> = Vec::new();
    for path in program.into_iter().chain(scripts) {
        let path = path.canonicalize().unwrap_or(path);
        if !found.contains(&path) && found.len() < PROGRAMS {
            found.push(path);
        }
    }
    found.iter().map(|path| hashed(path)).collect()
}

/// How many files of a target are hashed.
const PROGRAMS: usize = 20;

fn hashed(path: &Path) -> Hashed {
    Hashed::new(path.to_string_lossy().into_owned(), hash(path).map_err(|error| error.to_string()))
}

fn hash(path: &Path) -> std::io::Result<(String, u64)> {
    let mut file = files::open(path)?;
    let (mut hash, mut length) = (Sha256::new(), 0);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), length));
        }
        length += read as u64;
        hash.update(chunk.get(..read).unwrap_or_default());
    }
}
