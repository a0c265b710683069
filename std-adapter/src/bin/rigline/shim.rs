//! `rigline namel3ss-shim`: a program that namel3ss can start in its interpreter's place.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use rigline_std::target::{Exec, Target};

use crate::connect;

/// Write a program that namel3ss's local runner can start as `PROGRAM -c SOURCE`, and that runs TARGET
///
/// Put it where the project's interpreter is looked for, `.venv/bin/python`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// `exec:PROGRAM ARGS` or a path, of a program that speaks namel3ss on standard input and output, as rigline's extensions do; or
    /// sim, or any other target, which `rigline bridge` goes to
    target: Target,
    /// The program does not speak namel3ss: go to it by `rigline bridge`, too
    #[arg(long)]
    bridge: bool,
    /// Where to write it; standard output if unsaid
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> ExitCode {
        match self.write() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                connect::complain(format_args!("rigline namel3ss-shim: {error}"));
                ExitCode::from(2)
            }
        }
    }

    fn write(&self) -> Result<(), String> {
        let this = || rigline_std::process::this_path().map_err(|error| error.to_string());
        let words = match &self.target {
            Target::Exec(exec) => {
                // A relative path means another file in the project that the shim runs in.
                let program = which::which(&exec.program).unwrap_or_else(|_| exec.program.clone().into());
                let program = fs::canonicalize(&program).unwrap_or(program);
                let program = Exec { program: program.to_string_lossy().into_owned(), args: exec.args.clone() };
                if self.bridge {
                    bridge(&this()?, &Target::Exec(program))
                } else {
                    [vec![program.program], program.args].concat()
                }
            }
            Target::Sim if !self.bridge => {
                let words = ["rig", "--protocol", "namel3ss"].map(str::to_owned).to_vec();
                [vec![this()?.to_string_lossy().into_owned()], words].concat()
            }
            target => bridge(&this()?, target),
        };
        let script = format!(
            "#!/bin/sh\n# Written by rigline namel3ss-shim. namel3ss starts this as `{{this}} -c SOURCE`; both are ignored.\nexec {}\n",
            shell_words::join(words)
        );
        match &self.output {
            None => {
                connect::print(&script);
                Ok(())
            }
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

/// The words of a command that stands in for a target that speaks something else.
fn bridge(this: &Path, target: &Target) -> Vec<String> {
    let words = ["bridge".to_owned(), target.to_string(), "--protocol".to_owned(), "namel3ss".to_owned()];
    [vec![this.to_string_lossy().into_owned()], words.to_vec()].concat()
}
