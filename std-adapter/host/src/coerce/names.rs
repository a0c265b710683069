//! Suggestions for misspelled names.

use crate::host::spelled;
use crate::terminal;

/// Names that misspelled ones are compared with, in the order of their plain forms.
pub(super) struct Known<'n>(Vec<Name<'n>>);

struct Name<'n> {
    name: &'n str,
    plain: String,
    /// How many characters `name` and `plain` have.
    lengths: (usize, usize),
    /// The characters of `plain`, each as the bit of its lowest six bits.
    letters: u64,
    /// The place among the names as they were given.
    place: usize,
}

impl<'n> Name<'n> {
    fn of((place, name): (usize, &'n str)) -> Self {
        let plain = plain(name);
        let letters = plain.chars().fold(0, |letters, char| letters | 1 << (char as u64 % 64));
        Self { name, lengths: (name.chars().count(), plain.chars().count()), letters, plain, place }
    }

    /// The greatest distance of a name that was probably meant to be this one.
    fn limit(&self) -> usize {
        self.lengths.0.max(3) / 3
    }

    /// The least distance that names of such lengths and letters can have. A replaced character is
    /// one letter less and another one more.
    fn least_distance(&self, other: &Self) -> usize {
        let letters = (self.letters ^ other.letters).count_ones().div_ceil(2) as usize;
        letters.max(self.lengths.1.abs_diff(other.lengths.1))
    }

    fn distance(&self, other: &Self) -> usize {
        strsim::damerau_levenshtein(&self.plain, &other.plain)
    }
}

impl<'n> Known<'n> {
    pub(super) fn of(names: impl IntoIterator<Item = &'n str>) -> Self {
        let mut names: Vec<Name<'n>> = names.into_iter().enumerate().map(Name::of).collect();
        names.sort_unstable_by(|a, b| (&a.plain, a.place).cmp(&(&b.plain, b.place)));
        Self(names)
    }

    /// See [`nearest`].
    pub(super) fn nearest(&self, name: &str) -> Option<&'n str> {
        let given = Name::of((0, name));
        if let Some(same) = self.from(&given.plain).first().filter(|known| known.plain == given.plain) {
            return Some(same.name);
        }
        let similar = self.0.iter().filter(|known| given.least_distance(known) <= known.limit());
        let distances = similar.map(|known| (given.distance(known), known));
        let near = distances.filter(|(distance, known)| *distance <= known.limit());
        near.map(|(distance, known)| (distance, known.name)).min().map(|(_, known)| known)
    }

    /// A name that begins with `name`, or that `name` begins with.
    pub(super) fn longer(&self, name: &str) -> Option<&'n str> {
        let given = Name::of((0, name));
        let is_long = |name: &Name<'_>| name.lengths.1 >= 3;
        let longer = self.from(&given.plain).iter().take_while(|known| known.plain.starts_with(&given.plain));
        let starts = given.plain.char_indices().skip(3).filter_map(|(end, _)| given.plain.get(..end));
        let shorter = starts.flat_map(|start| self.from(start).iter().take_while(move |known| known.plain == start));
        let similar = longer.filter(|_| is_long(&given)).chain(shorter);
        similar.min_by_key(|known| (given.distance(known), known.place)).map(|known| known.name)
    }

    /// The names from this plain form on.
    fn from(&self, plain: &str) -> &[Name<'n>] {
        self.0.get(self.0.partition_point(|known| known.plain.as_str() < plain)..).unwrap_or_default()
    }
}

/// Returns the known name that was probably meant. It differs from `name` in case, in its
/// separator, or in a few letters.
pub fn nearest<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    Known::of(names.iter().copied()).nearest(name)
}

/// Returns the [`nearest`] name. If there is none, returns a name that begins with `name` or that
/// `name` begins with, such as `channel` for `chan`. Such a name may be a different one, so it is
/// only a suggestion.
pub fn nearest_or_longer<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let known = Known::of(names.iter().copied());
    known.nearest(name).or_else(|| known.longer(name))
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
