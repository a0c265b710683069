//! Texts that come whole.

/// Makes one line of a text that was checked: what ends lines can only stand between its tokens. The extension may pass parts of it on to
/// a wire of lines.
pub(crate) fn on_one_line(text: &mut [u8]) {
    text.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
}
