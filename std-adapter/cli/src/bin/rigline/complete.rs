//! `rigline completions` and `rigline man`: what a shell and `man` need to know of this command.
//!
//! A shell asks this program itself at each TAB (clap's `CompleteEnv`), so that the operations of a target, and their arguments,
//! are completed as well.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use rigline::json::Json;
use rigline_host::Host;
use rigline_host::target::Target;
use rigline_host::{Manifest, Options};

use crate::connect::{self, Failure};
use crate::out;
use rigline_host::coerce::SchemaView;

/// The variable that a shell sets to ask for completions.
const VARIABLE: &str = "RIGLINE_COMPLETE";
/// The time limit for a target to list its operations. The user waits at the prompt.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(3);

/// If a shell asks for completions, answers it and ends the process.
pub(crate) fn answer() {
    if std::env::var_os(VARIABLE).is_some() {
        CompleteEnv::with_factory(crate::command).var(VARIABLE).complete();
    }
}

/// Print the completions for a shell
///
/// They complete commands and options, and also the operations of a target and their arguments. For these, each TAB
/// starts or opens the target.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  bash: echo 'source <(rigline completions bash)' >> ~/.bashrc\n  zsh:  echo 'source <(rigline completions zsh)' >> ~/.zshrc\n  fish: rigline completions fish > ~/.config/fish/completions/rigline.fish"
)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_parser = ["bash", "elvish", "fish", "powershell", "zsh"])]
    shell: String,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        let shells = Shells::builtins();
        let written = shells
            .completer(&self.shell)
            .map(|shell| shell.write_registration(VARIABLE, "rigline", "rigline", "rigline", &mut script));
        if self.shell == "bash" {
            // Else bash takes `serial:auto` and `rail=3V3` for three words each.
            script.splice(0..0, *b"COMP_WORDBREAKS=${COMP_WORDBREAKS//[:=]/}\n");
        }
        match written {
            Some(Ok(())) => {
                out::print_file(&String::from_utf8_lossy(&script));
                Ok(ExitCode::SUCCESS)
            }
            _ => Err(Failure::usage(format!("there are no completions for {}", self.shell))),
        }
    }
}

/// Write the manual pages of all commands into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  rigline man ~/.local/share/man/man1 && man rigline-call")]
pub(crate) struct Man {
    /// The folder, which is created if it does not exist. Files of the same names are replaced
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl Man {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut command = crate::command().disable_help_subcommand(true);
        command.build();
        let count = self.write(&command, "rigline")?;
        connect::print(&format!("wrote {} to {}\n", out::count(count, "page"), self.folder.display()));
        Ok(ExitCode::SUCCESS)
    }

    /// Writes a page for each command. Returns their number.
    fn write(&self, command: &clap::Command, name: &str) -> Result<u64, Failure> {
        let mut page = Vec::new();
        let path = self.folder.join(format!("{name}.1"));
        let failed = |error: std::io::Error| crate::files::failed(&path, &error);
        clap_mangen::Man::new(command.clone()).render(&mut page).map_err(failed)?;
        rigline_host::files::write(&path, &page).map_err(failed)?;
        // The short forms and old spellings, which no list has, have their pages.
        let below = command.get_subcommands().filter(|below| name == "rigline" || !below.is_hide_set());
        below
            .map(|below| self.write(below, &format!("{name}-{}", below.get_name())))
            .sum::<Result<u64, _>>()
            .map(|count| count + 1)
    }
}

/// Explain what TARGET can be
///
/// A target says where an extension is:
///
///   sim
///       the built-in rig, started as a child process
///   ./program, PATH
///       a program without arguments
///   exec:PROGRAM ARGS
///       a program with arguments, split as by a shell
///   serial:/dev/ttyACM0
///       the device on this port (COM3 on Windows)
///   serial:by-id/NAME
///       the same, by a name in /dev/serial/by-id; by-path
///       likewise
///   serial:auto
///       the only rigline device that is plugged in
///   serial:auto/SERIAL
///       the rigline device with this USB serial number
///   serial:usb/1-2.3
///       the device on this USB port
///   tcp:HOST:PORT
///       a TCP server
///   http://…, https://…
///       an HTTP server: asked by MCP if mcp is in its path,
///       and otherwise by Amplifier's protocol, or by MCP if
///       the server does not answer that; by namel3ss with
///       --protocol namel3ss
///   rig:NAME, rig:KEY=VALUE,…
///       a rig of the lab, see `rigline lab list`: this command
///       has it alone for as long as it runs
///   replay:DIR
///       a recording that --record DIR made (of call, bridge,
///       eval run, serve or mcp), or a transcript
///   FOLDER
///       with --protocol namel3ss: a project
///
/// Options follow a question mark, separated by &:
///
///   baud=115200
///       serial: the speed of a UART; USB devices ignore it
///   dtr=on|off
///       serial: the DTR line [default: on]
///   rts=on|off
///       serial: the RTS line [default: set by the driver]
///   link=lines|cobs
///       serial, tcp: lines of JSON, or binary frames with
///       checksums, for a board on a bare UART
///       [default: lines]
///   token-file=FILE
///       tcp: the server's token, sent as the first line
///   pace=fast|recorded
///       replay: replies at once, or after the time that they
///       took in the recording [default: fast]
///
/// Quote a target with options, since ? and & have a meaning
/// in shells.
///
///   rigline describe \
///     'serial:/dev/ttyUSB0?baud=921600&link=cobs'
///
/// `rigline ports` lists serial ports.
///
/// For containers and tests, the variable RIGLINE_ROOT names a
/// folder. Ports are then searched in its folders dev, sys and
/// proc (if it has one), and not in those of the system.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Targets {}

impl Targets {
    pub(crate) fn run() {
        let mut command = crate::command();
        command.build();
        let help = command.find_subcommand_mut("targets").map(|targets| targets.render_long_help().to_string());
        connect::print(&help.unwrap_or_default());
    }
}

/// The operations of the target on the command line.
pub(crate) fn operations() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &std::ffi::OsStr| {
        let Some((manifest, _)) = manifest() else { return Vec::new() };
        let current = current.to_string_lossy();
        let fits = manifest.operations.iter().filter(|operation| operation.name.starts_with(&*current));
        fits.map(|operation| candidate(operation.name.clone(), &operation.description)).collect()
    })
}

/// The arguments of the operation on the command line, and their values if there are few.
pub(crate) fn arguments() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &std::ffi::OsStr| {
        let Some((manifest, operation)) = manifest() else { return Vec::new() };
        let Some(operation) = operation.and_then(|name| manifest.operation(&name).cloned()) else { return Vec::new() };
        let root = SchemaView::of_text(&operation.params_text);
        let current = current.to_string_lossy();
        let mut found = Vec::new();
        for (name, place) in root.members() {
            let mut values: Vec<String> = place.values().iter().map(|value| text(*value)).collect();
            if values.is_empty() && place.types() == ["boolean"] {
                values = vec!["true".to_owned(), "false".to_owned()];
            }
            let start = format!("{name}=");
            if current.starts_with(&start) {
                found.extend(values.iter().map(|value| candidate(format!("{start}{value}"), "")));
            } else {
                found.push(candidate(start, &place.description()));
            }
        }
        found.retain(|candidate| candidate.get_value().to_string_lossy().starts_with(&*current));
        found
    })
}

fn text(value: Json<'_>) -> String {
    value.text().map_or_else(|| value.as_str().to_owned(), |text| text.to_string())
}

/// A shell shows what an extension says: nothing in it may drive the terminal.
fn candidate(value: String, help: &str) -> CompletionCandidate {
    let help = help.lines().next().map(out::word).filter(|help| !help.is_empty());
    CompletionCandidate::new(out::word(&value).into_owned()).help(help.map(|help| help.into_owned().into()))
}

/// A word as the shell would hand it over.
fn unquoted(word: &str) -> String {
    match shell_words::split(word) {
        Ok(words) if word.contains(['\'', '"', '\\']) => words.join(" "),
        _ => word.to_owned(),
    }
}

/// The operations of the target on the command line, and the operation that is named. There is no error message if the
/// target does not answer.
fn manifest() -> Option<(Manifest, Option<String>)> {
    // As the shell hands them over: `rigline -- rigline call TARGET …`.
    let words = std::env::args_os().skip_while(|word| word != "--").skip(3);
    let words = words.map(|word| unquoted(&word.to_string_lossy())).filter(|word| !word.starts_with('-'));
    let words: Vec<String> = words.take(2).collect();
    let target: Target = words.first()?.parse().ok()?;
    let operation = words.get(1).cloned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let manifest = runtime.block_on(async {
        let mut options = Options::default();
        options.start_timeout = COMPLETION_TIMEOUT;
        options.listener = None;
        let host = tokio::time::timeout(COMPLETION_TIMEOUT, Host::connect(&target, options)).await.ok()?.ok()?;
        let manifest = host.describe();
        let _ = host.shutdown().await;
        Some(Manifest::clone(&manifest))
    });
    runtime.shutdown_background();
    Some((manifest?, operation))
}
