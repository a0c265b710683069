//! `rigline eval validate`.

use std::path::PathBuf;

use clap::Args;
use rigline_eval::{Fault, LoadError, Overrides, check_against_target, load};
use rigline_host::target::Target;
use serde_json::json;

use super::{Wanted, assignment, operations, placed, wanted};
use crate::connect::Failure;
use crate::credentials::Credentials;
use crate::exit;
use crate::out::{self, Style, Text, print, print_json, print_text};

/// Check evals and their tasks, and report every mistake
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// Evals, folders of them, or task files of an eval
    #[arg(default_value = ".", value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Also check operations and arguments against those of this target
    #[arg(long)]
    target: Option<Target>,
    #[command(flatten)]
    credentials: Credentials,
    /// Set an input of the eval. If NAME is a name in `matrix` or `for`, only this value of it is used. May be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// Exit with 1 after a warning too
    #[arg(long)]
    strict: bool,
    /// Print one JSON value instead of lines
    #[arg(long)]
    json: bool,
}

impl Validate {
    pub(super) fn run(self) -> Result<u8, Failure> {
        let (evals, errors) = wanted(&self.paths);
        let errors = errors?;
        let operations = match &self.target {
            Some(target) => Some(operations(target, self.credentials.read(target)?)?),
            None => None,
        };
        let (mut is_valid, mut is_unusable) = (errors.is_empty(), !errors.is_empty());
        let mut reports = Vec::new();
        for Wanted { path, .. } in evals {
            let mut overrides = Overrides::default();
            overrides.set.clone_from(&self.set);
            let mut loaded = load(&path, &overrides);
            // As `eval run --target` has it, where the file has none.
            if let (Ok((spec, _)), Some(target)) = (&loaded, &self.target)
                && spec.config.target.is_none()
            {
                overrides.target = Some(target.to_string());
                loaded = load(&path, &overrides);
            }
            let (faults, warnings) = match loaded {
                Ok((spec, mut faults)) => {
                    let mut warnings = spec.warnings.clone();
                    if let Some(operations) = &operations {
                        let (more, may_be) = check_against_target(&spec, operations);
                        faults.extend(more);
                        warnings.extend(may_be);
                    }
                    (faults, warnings)
                }
                Err(LoadError::Unreadable(fault)) => (vec![fault], Vec::new()),
                Err(error) => {
                    if self.json {
                        reports.push(json!({ "path": path.to_string_lossy(), "valid": false, "errors": [error.to_string()], "warnings": [] }));
                    } else {
                        print(&format!("{error}\n"));
                    }
                    (is_valid, is_unusable) = (false, true);
                    continue;
                }
            };
            let valid = faults.is_empty() && (warnings.is_empty() || !self.strict);
            is_valid &= valid;
            is_unusable |= faults.iter().any(Fault::is_of_option);
            if self.json {
                let texts = |faults: &[Fault]| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
                reports.push(json!({
                    "path": path.to_string_lossy(), "valid": valid, "errors": texts(&faults), "warnings": texts(&warnings),
                }));
                continue;
            }
            let mut text = Text::new();
            for fault in &faults {
                text = text.plain(&placed(fault, "")).plain("\n");
            }
            for warning in &warnings {
                text = text.styled(Style::Warning, &placed(warning, "warning: ")).plain("\n");
            }
            let count = if warnings.is_empty() {
                String::new()
            } else {
                format!(", {}", out::count(warnings.len(), "warning"))
            };
            let (style, word) = if valid { (Style::Good, "valid") } else { (Style::Bad, "not valid") };
            print_text(&text.styled(style, &format!("{}: {word}{count}", path.display())).plain("\n"));
        }
        let code = match () {
            () if is_unusable => exit::USAGE,
            () if is_valid => exit::SUCCESS,
            () => exit::FAILED,
        };
        if self.json {
            let value = json!({ "success": is_valid, "exit_code": code, "evals": reports, "errors": errors });
            print_json(&format!("{value:#}\n"));
        }
        Ok(code)
    }
}
