//! The tools of a board when it was last there, for agents that list tools once, at a time when it
//! is not plugged in.

use std::path::PathBuf;

use rigline_eval::store::Store;
use rigline_host::Manifest;
use rigline_host::client::Described;
use rigline_host::files;
use rigline_host::target::Target;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The longest description that is kept, in bytes.
const LONGEST: u64 = 8 << 20;

/// The file for a target, in the user's state folder.
fn path(target: &Target) -> Option<PathBuf> {
    let runs = Store::default_folder().ok()?;
    let hash = Sha256::digest(target.to_string());
    let name: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    Some(runs.parent()?.join("boards").join(format!("{name}.json")))
}

/// The description that was kept last.
pub(crate) fn load(target: &Target) -> Option<Described> {
    let kept: Value = serde_json::from_str(&files::read_text(&path(target)?, LONGEST).ok()?).ok()?;
    let manifest = Manifest::read(kept["manifest"].as_str()?).ok()?;
    let has_typed_outputs = kept["hasTypedOutputs"] == true;
    Some(Described { text: manifest.text.clone(), manifest, kind: None, has_typed_outputs })
}

/// Keeps a description. Where it cannot be kept, the next start has none.
pub(crate) fn keep(target: &Target, described: &Described) {
    let Some(path) = path(target) else { return };
    let kept = json!({
        "target": target.to_string(),
        "manifest": described.manifest.text,
        "hasTypedOutputs": described.has_typed_outputs,
    });
    let text = format!("{kept}\n");
    if files::read_text(&path, LONGEST).is_ok_and(|known| known == text) {
        return;
    }
    // The words of the target may be secrets.
    let _ = files::write_private(&path, text.as_bytes());
}
