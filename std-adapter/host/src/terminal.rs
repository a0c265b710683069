//! Makes text of others safe to show on a terminal.
//!
//! The text of an extension, a file or a peer may contain characters that control a terminal:
//! escape sequences that set its title or move the cursor, and marks that change the order of
//! characters. Everything that the command `rigline` shows passes through this module.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns whether a terminal obeys the character instead of showing it. Such characters are
/// control characters (C0, DEL, C1), line and paragraph separators, and characters that change the
/// direction of text (Unicode's `Bidi_Control`, and deprecated format characters).
pub fn is_control(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{206F}' | '\u{FFF9}'..='\u{FFFB}')
}

/// Replaces every character that controls a terminal by U+FFFD. Newlines (CR LF counts as one) and
/// tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    replaced(text, |char| char != '\n' && char != '\t')
}

/// Replaces characters as [`printable`] does, and line breaks and tabs by spaces. The result is one
/// line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    match replaced(text, |char| char != '\n' && char != '\t') {
        text if text.contains(['\n', '\t']) => Cow::Owned(text.replace(['\n', '\t'], " ")),
        text => text,
    }
}

/// Cuts a text after `most` characters. An ellipsis stands for the rest.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Cuts a text as [`cut`] does, and adds its length in bytes if it was cut.
pub fn cut_and_counted(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => format!("{} ({} bytes)", cut(text, most), text.len()),
        None => text.to_owned(),
    }
}

/// Replaces the characters of a JSON text that control a terminal by escapes such as `\u202e`. The
/// JSON value stays the same. Line breaks and tabs between tokens stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_bad = |char: char| is_control(char) && !matches!(char, '\n' | '\t' | '\r');
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_bad(char) {
            // None of them is beyond the first plane.
            let _ = write!(safe, "\\u{:04x}", u32::from(char));
        } else {
            safe.push(char);
        }
    }
    Cow::Owned(safe)
}

fn replaced(text: &str, is_wanted: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |char: char| is_control(char) && is_wanted(char);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace(is_bad, "\u{FFFD}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_characters_that_drive_a_terminal_are_replaced() {
        for char in (0..=0x0011_0000).filter_map(char::from_u32) {
            let is_bad = matches!(u32::from(char),
                0..=8 | 0xB..=0x1F | 0x7F..=0x9F | 0x61C | 0x200E | 0x200F | 0x2028..=0x202E | 0x2066..=0x206F | 0xFFF9..=0xFFFB);
            let text = format!("a{char}b");
            let wanted = if is_bad { "a\u{FFFD}b" } else { &text };
            assert_eq!(printable(&text), wanted, "{:04x}", u32::from(char));
            if is_bad && char != '\r' {
                assert_eq!(json(&text), format!("a\\u{:04x}b", u32::from(char)));
            } else {
                assert_eq!(json(&text), text);
            }
        }
        assert_eq!(printable("a\r\n\tb"), "a\n\tb");
        assert_eq!(one_line("a\r\nb\tc\x7f"), "a b c\u{FFFD}");
    }
}
