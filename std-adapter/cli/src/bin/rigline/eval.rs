//! `rigline eval`: its commands and their shared parts.

mod list;
mod new;
mod progress;
mod run;
mod table;
mod validate;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use rigline_eval::list::list;
use rigline_eval::run::RunOutcome;
use rigline_eval::runs::StartError;
use rigline_eval::{Fault, Spec, owner_of, session};
use rigline_host::coerce::Schema;
use rigline_host::target::Target;

use crate::connect::{self, Failure};
use crate::out::complain;
use crate::reports::Watched;

/// Run, list, check and create evals
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Run>),
    List(list::List),
    Validate(validate::Validate),
    New(new::New),
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let code = match self.command {
            Command::Run(run) => run.run(),
            Command::List(list) => list.run(),
            Command::Validate(validate) => validate.run(),
            Command::New(new) => new.run(),
        };
        code.map(ExitCode::from)
    }
}

/// One run that was done, or could not be.
struct Done {
    path: PathBuf,
    run: Result<(String, Arc<Spec>, Arc<RunOutcome>), StartError>,
    watched: Arc<Watched>,
}

/// An eval that was requested, and the task file if only that was.
struct Wanted {
    path: PathBuf,
    task_file: Option<String>,
}

/// The evals that paths mean, and the errors of files that could not be read. Instead of those: why the first of the paths means none.
fn wanted(paths: &[PathBuf]) -> (Vec<Wanted>, Result<Vec<String>, Failure>) {
    let mut evals = Vec::new();
    let mut errors = Ok(Vec::new());
    for path in paths {
        if !path.is_dir() {
            match owner_of(path) {
                Ok(Some((eval, file))) => evals.push(Wanted { path: eval, task_file: Some(file) }),
                Ok(None) => evals.push(Wanted { path: path.clone(), task_file: None }),
                Err(why) => errors = errors.and(Err(Failure::usage(why))),
            }
            continue;
        }
        let listing = list(path);
        listing.warnings.iter().for_each(|warning| complain(format_args!("warning: {warning}")));
        listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
        if listing.evals.is_empty() && listing.errors.is_empty() {
            errors = errors.and(Err(no_evals(path, &listing.errors)));
        } else if let Ok(errors) = &mut errors {
            errors.extend(listing.errors);
        }
        evals.extend(listing.evals.into_iter().map(|eval| Wanted { path: eval.path, task_file: None }));
    }
    (evals, errors)
}

/// The error of `run`, `list` and `validate` for a folder without evals.
fn no_evals(folder: &Path, errors: &[String]) -> Failure {
    let text = match folder.metadata() {
        Err(error) => format!("{}: {error}", folder.display()),
        Ok(_) if errors.is_empty() => {
            format!("{}: there are no evals in this folder; `rigline eval new` writes one", folder.display())
        }
        Ok(_) => format!("{}: no eval in this folder can be read", folder.display()),
    };
    Failure::usage(text)
}

/// As compilers write it, so that editors find the place.
fn placed(fault: &Fault, kind: &str) -> String {
    let line = fault.line.map_or_else(String::new, |line| format!("{line}:"));
    format!("{}:{line} {kind}{}", fault.path.display(), fault.text)
}

/// The operations that a target has, with their schemas.
fn operations(target: &Target, credentials: rigline_host::Credentials) -> Result<Vec<(String, Schema)>, Failure> {
    connect::on_threads(async {
        let session = session::open(target, None, credentials, Arc::new(|_, _| {})).await?;
        let operations = session.operations();
        session.close().await;
        Ok(operations)
    })
}

fn time(duration: Duration) -> String {
    format!("{:.2} s", duration.as_secs_f64())
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}
