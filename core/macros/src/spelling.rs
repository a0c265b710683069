//! The probable meaning of a misspelt name.

use syn::Path;

/// Words of other libraries and of JSON Schema, and the ones that mean the same here.
const OTHER_WORDS: &[(&str, &str)] = &[
    ("name", "rename"),
    ("title", "name"),
    ("help", "description"),
    ("about", "description"),
    ("doc", "description"),
    ("ge", "minimum"),
    ("gte", "minimum"),
    ("least", "minimum"),
    ("le", "maximum"),
    ("lte", "maximum"),
    ("most", "maximum"),
    ("ignore", "skip"),
    ("readonly", "read_only"),
    ("tool", "operation"),
    ("returns", "outputs"),
    ("additional_properties", "deny_unknown_fields"),
];

/// "; did you mean …?", or the names that are known.
pub(crate) fn hint(name: &Path, known: &[&str]) -> String {
    let name = name.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    hint_for(&name, known)
}

pub(crate) fn hint_for(name: &str, known: &[&str]) -> String {
    let all = known.join(", ");
    match nearest(name, known) {
        Some(meant) => format!("; did you mean `{meant}`? Known here: {all}"),
        None => format!("; known here: {all}"),
    }
}

/// The known name that this one was to be.
pub(crate) fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let name = plain(name);
    let distance = |known: &str| {
        let known = plain(known);
        let distance = strsim::damerau_levenshtein(&name, &known);
        let starts = |long: &str, short: &str| short.len() >= 3 && long.starts_with(short);
        match () {
            () if distance * 3 <= known.len().max(3) => Some(distance),
            // `min` is shorter than `minimum`, and `min_len` than `min_length`.
            () if starts(&known, &name) || starts(&name, &known) => Some(100 + distance),
            () => None,
        }
    };
    let nearest = known.iter().filter_map(|known| Some((distance(known)?, *known))).min().map(|(_, known)| known);
    nearest.or_else(|| {
        let (_, meant) = OTHER_WORDS.iter().find(|(other, _)| plain(other) == name)?;
        known.iter().copied().find(|known| known == meant)
    })
}

/// The known name that this one is with a slip of the pen, and not another word.
pub(crate) fn misspelt<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    known.iter().copied().find(|known| *known != name && strsim::damerau_levenshtein(&plain(name), &plain(known)) <= 2)
}

/// A name without what spellings differ in.
fn plain(name: &str) -> String {
    name.chars().filter(|char| !matches!(char, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const FIELD: &[&str] =
        &["rename", "alias", "skip", "default", "minimum", "maximum", "min_length", "max_length", "example", "schema"];

    #[test]
    fn a_misspelt_name_has_the_one_that_was_meant() {
        for (name, meant) in [
            ("min", Some("minimum")),
            ("max", Some("maximum")),
            ("minmum", Some("minimum")),
            ("maxLength", Some("max_length")),
            ("max-length", Some("max_length")),
            ("max_len", Some("max_length")),
            ("minlen", Some("min_length")),
            ("Default", Some("default")),
            ("examples", Some("example")),
            ("aliases", Some("alias")),
            ("name", Some("rename")),
            ("gte", Some("minimum")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, FIELD), meant, "{name}");
        }
    }
}
