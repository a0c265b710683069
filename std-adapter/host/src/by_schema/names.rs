//! Names that are written wrong: which one was probably meant.

pub use crate::host::spelled;
use crate::terminal;

/// The known name that was probably meant: the same in another case or with another separator, or one that differs in few letters.
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

/// As [`nearest`], and else a name that only lacks its end, or has one too many: `chan` for `channel`. Such a name may also be another
/// one, so that it is only suggested.
pub fn nearest_or_longer<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let lower = plain(name);
    let begins = |long: &str, short: &str| short.chars().count() >= 3 && long.starts_with(short);
    nearest(name, names).or_else(|| {
        let similar = names.iter().filter(|known| begins(&lower, &plain(known)) || begins(&plain(known), &lower));
        similar.min_by_key(|known| strsim::damerau_levenshtein(&lower, &plain(known))).copied()
    })
}

/// The operation that a name means, in either spelling.
///
/// # Errors
/// There is none, or several differ only in their spelling.
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
