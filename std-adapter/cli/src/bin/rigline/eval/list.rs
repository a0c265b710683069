//! `rigline eval list`.

use std::path::PathBuf;

use clap::Args;
use rigline_eval::list::list;
use serde_json::{Value, json};

use super::no_evals;
use crate::connect::Failure;
use crate::exit;
use crate::out::{Table, complain, print, print_json};

/// List the evals in a folder
#[derive(Debug, Args)]
pub(super) struct List {
    /// The folder to look in
    #[arg(default_value = ".", value_name = "DIR")]
    folder: PathBuf,
    /// Print one JSON value instead of the table
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn run(self) -> Result<u8, Failure> {
        let listing = list(&self.folder);
        listing.warnings.iter().for_each(|warning| complain(format_args!("warning: {warning}")));
        if self.folder.exists() {
            listing.errors.iter().for_each(|error| complain(format_args!("rigline: {error}")));
        }
        let code = if listing.errors.is_empty() { exit::SUCCESS } else { exit::USAGE };
        if self.json && self.folder.exists() {
            let code = if listing.evals.is_empty() { exit::USAGE } else { code };
            let evals: Vec<Value> = listing
                .evals
                .iter()
                .map(|eval| {
                    json!({
                        "path": eval.path.to_string_lossy(), "name": eval.name, "skill": eval.skill, "version": eval.version,
                    })
                })
                .collect();
            let value = json!({
                "success": code == exit::SUCCESS, "exit_code": code,
                "evals": evals, "errors": listing.errors, "warnings": listing.warnings,
            });
            print_json(&format!("{value}\n"));
            if listing.evals.is_empty() {
                return Err(no_evals(&self.folder, &listing.errors));
            }
            return Ok(code);
        }
        if listing.evals.is_empty() {
            return Err(no_evals(&self.folder, &listing.errors));
        }
        let mut table = Table::new(&["name", "skill", "version", "path"]);
        for eval in &listing.evals {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            table.row([eval.name.clone(), text(&eval.skill), text(&eval.version), eval.path.display().to_string()]);
        }
        print(&table.to_string());
        Ok(code)
    }
}
