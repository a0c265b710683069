//! All of the input as one line.

use embedded_io_async::{ErrorType, Read};

/// A reader that can turn everything it reads into one line. Line ends between tokens become spaces. Line ends in strings, which
/// JSON forbids (RFC 8259 §7), become another character that JSON forbids there.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "the state of a scanner, one fact each")]
pub(super) struct SingleDocument<R> {
    reader: R,
    is_on: bool,
    in_string: bool,
    is_escaped: bool,
    /// Whether there was anything but white space.
    has_text: bool,
}

impl<R> SingleDocument<R> {
    pub(super) fn new(reader: R, is_on: bool) -> Self {
        Self { reader, is_on, in_string: false, is_escaped: false, has_text: false }
    }

    fn put_on_one_line(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.has_text |= !byte.is_ascii_whitespace();
            match (*byte, self.in_string) {
                (b'\n', false) => *byte = b' ',
                (b'\n', true) => *byte = 1,
                (b'"', false) => self.in_string = true,
                (b'"', true) if !self.is_escaped => self.in_string = false,
                _ => {}
            }
            self.is_escaped = self.in_string && *byte == b'\\' && !self.is_escaped;
        }
    }
}

impl<R: Read> ErrorType for SingleDocument<R> {
    type Error = R::Error;
}

impl<R: Read> Read for SingleDocument<R> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, R::Error> {
        let count = self.reader.read(buf).await?;
        if !self.is_on {
            return Ok(count);
        }
        if count == 0
            && !self.has_text
            && let Some(first) = buf.first_mut()
        {
            // Empty input is answered, too: as a text that ends before its value does.
            self.has_text = true;
            *first = b'{';
            return Ok(1);
        }
        self.put_on_one_line(buf.get_mut(..count).unwrap_or_default());
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined() {
        for (text, line) in [
            ("{\n\"a\": 1\n}\n", "{ \"a\": 1 } "),
            ("[\"\\\"\n\", 1\n]", "[\"\\\"\u{1}\", 1 ]"),
            ("\"\\\\\"\n", "\"\\\\\" "),
        ] {
            let mut bytes = text.as_bytes().to_vec();
            let mut reader = SingleDocument::new((), true);
            for byte in &mut bytes {
                reader.put_on_one_line(std::slice::from_mut(byte));
            }
            assert_eq!(String::from_utf8(bytes).unwrap(), line);
        }
    }
}
