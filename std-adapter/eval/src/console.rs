//! The console of the board under test, as the steps of a trial read it.
//!
//! A rig's operations for a console give what came as the outputs `data`, or `before` and `match`, in the
//! encoding that the output `encoding` names. The output `mark` is the position behind the last byte.

use super::records::StepRecord;

/// The bytes that the steps of a trial read from a console, in its order, each once.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Transcript {
    bytes: Vec<u8>,
    /// The position behind the last byte.
    end: Option<u64>,
    /// The bytes between what was read that no step has.
    lost: u64,
}

impl Transcript {
    /// The transcript of these steps. `None` if no step read a console.
    pub(super) fn of<'a>(steps: impl IntoIterator<Item = &'a StepRecord>) -> Option<Self> {
        let mut this = Self::default();
        for step in steps {
            this.add(step);
        }
        this.end.map(|_| this)
    }

    /// The text. A byte that is no UTF-8 is U+FFFD.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The number of bytes that came and are not in the text.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn add(&mut self, step: &StepRecord) {
        let number = |name: &str| step.output(name).and_then(|text| text.parse::<u64>().ok());
        let is_hex = step.output("encoding") == Some("hex");
        let said = |name: &str| step.output(name).map(|text| bytes(text, is_hex));
        let (Some(mark), Some(_)) = (number("mark"), step.output("encoding")) else { return };
        let (read, lost) = match (said("data"), said("before")) {
            (Some(data), _) => (data, number("missed").unwrap_or(0)),
            (None, Some(mut before)) => {
                let cut = number("before_bytes").unwrap_or(0).saturating_sub(before.len() as u64);
                before.extend(said("match").unwrap_or_default());
                (before, cut + number("missed").unwrap_or(0))
            }
            (None, None) => return,
        };
        let start = mark.saturating_sub(read.len() as u64);
        // What an earlier step has, this one does not lose, and it is in the text once.
        let known = self.end.unwrap_or(0).max(start.saturating_sub(lost));
        self.lost += start.saturating_sub(known);
        let twice = usize::try_from(known.saturating_sub(start)).unwrap_or(usize::MAX);
        self.bytes.extend(read.get(twice..).unwrap_or_default());
        self.end = Some(self.end.unwrap_or(0).max(mark));
    }
}

/// The bytes that a text says: in hexadecimal, or with `\\` for a backslash and `\xNN` for a byte that is no text.
fn bytes(text: &str, is_hex: bool) -> Vec<u8> {
    let text = text.as_bytes();
    let byte = |at: usize| {
        let digits = std::str::from_utf8(text.get(at..at + 2)?).ok()?;
        u8::from_str_radix(digits, 16).ok()
    };
    let mut bytes = Vec::new();
    let mut at = 0;
    while let Some(&next) = text.get(at) {
        let (said, length) = if is_hex {
            (byte(at).unwrap_or(next), 2)
        } else if next != b'\\' {
            (next, 1)
        } else if text.get(at + 1) == Some(&b'x') {
            byte(at + 2).map_or((next, 1), |byte| (byte, 4))
        } else {
            (next, 2)
        };
        bytes.push(said);
        at += length;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data: &str, mark: &str, missed: &str, encoding: &str) -> StepRecord {
        StepRecord::done("r", "", &[("data", data), ("encoding", encoding), ("mark", mark), ("missed", missed)])
    }

    fn expect(before: &str, matched: Option<&str>, mark: &str, before_bytes: &str) -> StepRecord {
        let mut outputs =
            vec![("before", before), ("encoding", "text"), ("mark", mark), ("before_bytes", before_bytes)];
        outputs.extend(matched.map(|matched| ("match", matched)));
        outputs.push(("missed", "0"));
        StepRecord::done("e", "", &outputs)
    }

    #[test]
    fn a_transcript_has_each_byte_once_and_counts_what_is_not_in_it() {
        let other = StepRecord::done("m", "3V3 is at 3.3 V", &[("volts", "3.300"), ("mark", "7")]);
        for (steps, text, lost) in [
            (
                vec![expect("boot\r\n", Some("> "), "8", "6"), read("ver\r\n", "13", "0", "text")],
                "boot\r\n> ver\r\n",
                0,
            ),
            // The first begins in the middle of what came; that is nobody's loss.
            (vec![read("abc", "103", "0", "text")], "abc", 0),
            // A timeout leaves what came for the next one, and a mark reads again.
            (vec![expect("ab", None, "2", "2"), expect("ab", Some("c"), "3", "2")], "abc", 0),
            (
                vec![read("abcdef", "6", "0", "text"), read("de", "5", "0", "text"), read("g", "7", "0", "text")],
                "abcdefg",
                0,
            ),
            // What a reply does not hold, and what was overwritten.
            (vec![expect("z", Some("> "), "103", "101")], "z> ", 100),
            (vec![read("a", "1", "0", "text"), read("z", "12", "10", "text")], "az", 10),
            (vec![read(r"a\\b\x1b[0m\xff", "8", "0", "text"), other], "a\\b\u{1b}[0m\u{fffd}", 0),
            (vec![read("6869ff", "3", "0", "hex")], "hi\u{fffd}", 0),
        ] {
            let transcript = Transcript::of(&steps).unwrap();
            assert_eq!((&*transcript.text(), transcript.lost()), (text, lost), "{steps:?}");
        }
        assert_eq!(Transcript::of(&[StepRecord::done("m", "", &[("mark", "7")])]), None);
    }
}
