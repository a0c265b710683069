//! Shared parts of the fuzz targets.

/// Choices that a fuzz input makes, cheap and the same each time: an xorshift generator.
#[derive(Debug, Clone)]
pub struct Choices(u64);

impl Choices {
    /// Choices that follow from `seed`.
    #[must_use]
    pub fn new(seed: u8) -> Self {
        Self(0x9E37_79B9_7F4A_7C15 ^ ((u64::from(seed) + 1) * 0x0123_4567_89AB))
    }

    /// A number from 0 to `most`.
    #[allow(clippy::cast_possible_truncation)]
    pub fn up_to(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % (most + 1)
    }

    /// Yes once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.up_to(times - 1) == 0
    }
}

/// The frames that the framer must return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A line's content.
    Line(Vec<u8>),
    /// An over-long line, with the length of its content.
    TooLong(usize),
}

/// Cuts all of the input into lines at once, by the rules in `rigline::frame`.
#[must_use]
pub fn split(input: &[u8], limit: usize, serial: bool) -> Vec<Event> {
    let is_end = |byte: &u8| *byte == b'\n' || serial && *byte == b'\r';
    let events = input.split(is_end).filter_map(|line| {
        let mut line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        while let [rest @ .., b'\r'] = line {
            line = rest;
        }
        if line.len() > limit {
            Some(Event::TooLong(line.len()))
        } else if line.iter().all(|byte| b" \t\r".contains(byte)) {
            None
        } else {
            Some(Event::Line(line.to_vec()))
        }
    });
    events.collect()
}

/// How deep the containers of a JSON text are nested.
#[must_use]
pub fn depth(json: &[u8]) -> usize {
    let (mut open, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => drop(bytes.next()),
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => open += 1,
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}
