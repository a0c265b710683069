//! `rigline namel3ss-shim`: a program that namel3ss can start in its interpreter's place.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use rigline_std::target::Target;

/// Write a program that namel3ss's local runner can start as `PROGRAM -c SOURCE`, and that runs TARGET
///
/// Put it where the project's interpreter is looked for, `.venv/bin/python`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A program that speaks namel3ss on standard input and output, or `sim`
    target: Target,
    /// Where to write it; standard output if unsaid
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> ExitCode {
        match self.write() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("rigline namel3ss-shim: {error}");
                ExitCode::from(2)
            }
        }
    }

    fn write(&self) -> Result<(), String> {
        let words = match &self.target {
            Target::Exec(exec) => {
                // A relative path means another file in the project that the shim runs in.
                let program = which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into());
                let program = fs::canonicalize(&program).unwrap_or(program);
                [vec![program.to_string_lossy().into_owned()], exec.args.clone()].concat()
            }
            Target::Sim => {
                let program = std::env::current_exe().map_err(|error| error.to_string())?;
                let program = program.to_string_lossy().into_owned();
                [vec![program], ["rig", "--protocol", "namel3ss"].map(str::to_owned).to_vec()].concat()
            }
            target => return Err(format!("{target} is no program; namel3ss calls services over HTTP by itself")),
        };
        let script = format!(
            "#!/bin/sh\n# Written by rigline namel3ss-shim. namel3ss starts this as `{{this}} -c SOURCE`; both are ignored.\nexec {}\n",
            shell_words::join(words)
        );
        match &self.output {
            None => std::io::stdout().write_all(script.as_bytes()).map_err(|error| error.to_string()),
            Some(path) => {
                fs::write(path, script).map_err(|error| format!("{}: {error}", path.display()))?;
                #[cfg(unix)]
                {
                    use std::os::unix::fs::PermissionsExt as _;
                    let mode = fs::Permissions::from_mode(0o755);
                    fs::set_permissions(path, mode).map_err(|error| format!("{}: {error}", path.display()))?;
                }
                Ok(())
            }
        }
    }
}
