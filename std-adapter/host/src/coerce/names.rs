//! Suggestions for misspelled names.

use crate::host::spelled;
use crate::terminal;

/// Returns the known name that was probably meant. It differs from `name` in case, in its
/// separator, or in a few letters.
pub fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = plain(name);
    if let Some(same) = names.iter().find(|known| plain(known) == lower) {
        return Some(same);
    }
    names
        .iter()
        .map(|known| (strsim::damerau_levenshtein(&lower, &plain(known)), *known))
        .filter(|(distance, known)| *distance * 3 <= known.chars().count().max(3))
        .min()
        .map(|(_, known)| known)
}

/// Returns the [`nearest`] name. If there is none, returns a name that begins with `name` or that
/// `name` begins with, such as `channel` for `chan`. Such a name may be a different one, so it is
/// only a suggestion.
pub fn nearest_or_longer<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = plain(name);
    let begins = |long: &str, short: &str| short.chars().count() >= 3 && long.starts_with(short);
    nearest(name, names).or_else(|| {
        let similar = names.iter().filter(|known| begins(&lower, &plain(known)) || begins(&plain(known), &lower));
        similar.min_by_key(|known| strsim::damerau_levenshtein(&lower, &plain(known))).copied()
    })
}

/// Returns the operation that a name means. Upper or lower case and the separator do not matter.
///
/// # Errors
/// No operation has the name, or several operations differ only in their spelling.
pub fn operation_named<'n>(name: &str, operations: &[&'n str]) -> Result<&'n str, String> {
    spelled(name, operations)?.ok_or_else(|| no_operation(name, operations))
}

/// A name without its case and its separators, by which names are compared.
fn plain(name: &str) -> String {
    name.to_lowercase().replace(['_', ' '], "-")
}

/// The error for an operation that is not there, with a suggestion and the known operations.
fn no_operation(name: &str, operations: &[&str]) -> String {
    let near = nearest_or_longer(name, operations).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let there_are = match operations {
        [] => "the extension has no operations".to_owned(),
        operations => format!("expected one of: {}", super::brief(&operations.join(", "))),
    };
    format!("there is no operation `{}`{near}\n{there_are}", terminal::one_line(name))
}
