//! Edits of a text that leave every other byte as it is.

use std::ops::Range;

/// A part of a text that is replaced; an insertion, if it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) place: Range<usize>,
    pub(super) text: String,
}

impl Splice {
    pub(super) fn insert(at: usize, text: impl Into<String>) -> Self {
        Self { place: at..at, text: text.into() }
    }

    pub(super) fn replace(place: Range<usize>, text: impl Into<String>) -> Self {
        Self { place, text: text.into() }
    }
}

/// The text with the edits. Of two at one place, the first stands first.
pub(super) fn edited(text: &str, mut edits: Vec<Splice>) -> String {
    edits.sort_by_key(|edit| edit.place.start);
    let (mut new, mut done) = (String::with_capacity(text.len() + 512), 0);
    for Splice { place, text: part } in edits {
        new.push_str(text.get(done..place.start).unwrap_or_default());
        new.push_str(&part);
        done = place.end;
    }
    new.push_str(text.get(done..).unwrap_or_default());
    new
}

/// How a text ends its lines, by the first one.
pub(super) fn newline_of(text: &str) -> &'static str {
    match text.find('\n') {
        Some(end) if text.get(..end).is_some_and(|before| before.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

/// The white space that begins the line in which a place is, if nothing else is before that place.
pub(super) fn indent_at(text: &str, place: usize) -> Option<&str> {
    let before = text.get(..place)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    before.get(start..).filter(|indent| indent.bytes().all(|byte| matches!(byte, b' ' | b'\t')))
}

/// The white space that begins the line in which a place is.
pub(super) fn indent_of_line(text: &str, place: usize) -> &str {
    let before = text.get(..place).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.get(start..).unwrap_or_default();
    line.get(..line.len() - line.trim_start_matches([' ', '\t']).len()).unwrap_or_default()
}
