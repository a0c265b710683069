//! `rigline eval new`.

use std::path::PathBuf;

use clap::Args;
use rigline_host::coerce::Schema;
use rigline_host::target::Target;
use rigline_host::{files, terminal};
use serde_json::Value;

use super::operations;
use crate::connect::Failure;
use crate::credentials::Credentials;
use crate::exit;
use crate::out::{command_line, print};
use crate::protocols::shim;

/// Write a first eval, which passes, for you to change
#[derive(Debug, Args)]
pub(super) struct New {
    /// The folder that it is written to
    #[arg(default_value = "evals", value_name = "DIR")]
    folder: PathBuf,
    /// The target that its step calls, with the first operation that needs no arguments
    #[arg(long, default_value = "sim")]
    target: String,
    #[command(flatten)]
    credentials: Credentials,
}

impl New {
    pub(super) fn run(self) -> Result<u8, Failure> {
        let target: Target = self.target.parse().map_err(|error| Failure::usage(format!("--target: {error}")))?;
        let (eval, task) = (self.folder.join("eval.yaml"), self.folder.join("tasks/first.yaml"));
        if let Some(there) = [&eval, &task].into_iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(Failure::usage(format!("{} is there already", there.display())));
        }
        let operations = operations(&target, self.credentials.read(&target)?)?;
        let required = |schema: &Schema| -> Vec<String> {
            let names = schema.json().get("required").into_iter();
            names.flat_map(|names| names.elements()).filter_map(|name| Some(name.text()?.to_string())).collect()
        };
        let Some((operation, schema)) =
            operations.iter().find(|(_, schema)| required(schema).is_empty()).or_else(|| operations.first())
        else {
            return Err(Failure::usage(format!("{} has no operations", self.target)));
        };
        let args: String =
            required(schema).into_iter().map(|name| format!("\n      {}: CHANGE-ME", Value::from(name))).collect();
        let args = if args.is_empty() { " {}".to_owned() } else { args };
        // A target from here is not one from the eval's folder.
        let written = match &target {
            Target::Exec(exec) => {
                let program = match PathBuf::from(&exec.program) {
                    path if exec.program.contains('/') => std::path::absolute(&path).unwrap_or(path),
                    path => path,
                };
                let args = exec.args.iter().map(|arg| shim::argument(arg));
                let words = std::iter::once(program.to_string_lossy().into_owned()).chain(args);
                format!("exec:{}", words.map(|word: String| quoted(&word)).collect::<Vec<_>>().join(" "))
            }
            target => match shim::anywhere(target)? {
                same if same == *target => self.target.clone(),
                other => other.to_string(),
            },
        };
        let name = self.folder.file_name().map_or_else(|| "first".into(), |name| name.to_string_lossy());
        let eval_text = format!(
            "name: {}\nconfig: {{ target: {}, timeout_seconds: 30 }}\nmetrics: {{ pass_threshold: 1.0 }}\ntasks: [\"tasks/*.yaml\"]\n",
            Value::from(&*name),
            Value::from(written),
        );
        let task_text = format!(
            "id: first\nname: {}\nsteps:\n  - id: call\n    operation: {}\n    args:{args}\n    timeout: 10s\n\
             graders:\n  # Others: output_range, output_equals, contains, regex, file_exists\n  - {{ type: max_duration, step: call, max: 10s }}\n",
            terminal::json(&Value::from(format!("{operation} answers")).to_string()),
            terminal::json(&Value::from(operation.as_str()).to_string()),
        );
        for (path, text) in [(&eval, eval_text), (&task, task_text)] {
            files::write(path, text.as_bytes())
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
            print(&format!("{}\n", path.display()));
        }
        print(&format!("next: rigline eval run {}\n", command_line(&[self.folder.to_string_lossy().into_owned()])));
        Ok(exit::SUCCESS)
    }
}

/// A word, quoted so that a target's shell-like splitting keeps it whole.
fn quoted(word: &str) -> String {
    let is_plain = |char: char| char.is_alphanumeric() || "/._-+=:@%,".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}
