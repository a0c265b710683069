//! Which operations of a target are offered to others.

use rigline_std::OperationSelection;

/// The options of the commands that serve a target.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Choice {
    /// Offer only operations that are marked as read-only
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Offer only these operations
    #[arg(long, value_name = "OP", num_args = 1..)]
    pub(crate) allow: Vec<String>,
}

impl Choice {
    /// Whether all operations are offered.
    pub(crate) fn is_all(&self) -> bool {
        !self.read_only && self.allow.is_empty()
    }

    pub(crate) fn selection(&self) -> OperationSelection {
        OperationSelection { read_only: self.read_only, allowed: self.allow.clone() }
    }

    /// The options, for another command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if self.read_only {
            words.push("--read-only".to_owned());
        }
        if !self.allow.is_empty() {
            words.push("--allow".to_owned());
            words.extend(self.allow.iter().cloned());
        }
        words
    }
}
