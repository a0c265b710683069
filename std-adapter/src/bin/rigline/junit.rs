//! Texts for `JUnit` reports.

/// A text that XML 1.0 can hold: what it forbids, even as a reference, is replaced by U+FFFD, and with it C0 but tab and line ends, DEL and
/// C1, which drive terminals.
pub(crate) fn text(text: &str) -> String {
    let is_allowed = |char: char| {
        matches!(char, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
            && !(char >= '\u{10000}' && u32::from(char) & 0xFFFE == 0xFFFE)
    };
    text.chars().map(|char| if is_allowed(char) { char } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nr_17_only_what_xml_1_0_can_hold() {
        assert_eq!(text("a\tb\nc\r é \u{1f600} <&>"), "a\tb\nc\r é \u{1f600} <&>");
        for char in ["\u{0}", "\u{b}", "\u{1b}", "\u{7f}", "\u{85}", "\u{9b}", "\u{fffe}", "\u{ffff}", "\u{1ffff}"] {
            assert_eq!(text(char), "\u{fffd}");
        }
    }
}
