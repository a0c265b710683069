//! The framer against a splitter that sees all of the input at once: whatever the cuts, the sizes and the order in which
//! lines are taken, looked at ahead, kept and discarded.
#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use rigline::frame::{Frame, Framer, InputBehind, LineEnds, Taken};
use rigline_fuzz::{Choices, Event, split};

fuzz_target!(|data: &[u8]| {
    let [size, flags, seed, input @ ..] = data else { return };
    let serial = flags & 1 == 1;
    let mut memory = vec![0; usize::from(*size) + 1];
    let ends = if serial { LineEnds::Serial } else { LineEnds::Lf };
    let mut framer = Framer::new(&mut memory).with_mode(ends);
    let mut run = Run {
        choices: Choices::new(*seed),
        input,
        expected: split(input, framer.limit(), serial).into(),
        kept: VecDeque::new(),
        limit: framer.limit(),
        ahead: flags & 2 == 2,
    };
    let mut finished = false;
    loop {
        run.drain(&mut framer);
        if finished {
            break;
        }
        if run.input.is_empty() {
            framer.finish();
            finished = true;
        } else {
            let space = framer.space();
            assert!(!space.is_empty(), "no room, and nothing to take");
            let count = run.read(space);
            framer.commit(count);
        }
    }
    assert!(run.expected.is_empty() && run.kept.is_empty(), "lost: {:?} {:?}", run.expected, run.kept);
    assert!(framer.next_frame().is_none());
});

struct Run<'i> {
    choices: Choices,
    input: &'i [u8],
    /// The bytes that were not looked at yet.
    expected: VecDeque<Event>,
    /// Lines that were examined and kept.
    kept: VecDeque<Vec<u8>>,
    limit: usize,
    ahead: bool,
}

impl Run<'_> {
    fn read(&mut self, space: &mut [u8]) -> usize {
        let most = space.len().min(self.input.len());
        let count = if most == 0 { 0 } else { 1 + self.choices.up_to(most - 1) };
        let (now, later) = self.input.split_at(count);
        space[..count].copy_from_slice(now);
        self.input = later;
        count
    }

    fn drain(&mut self, framer: &mut Framer<'_>) {
        loop {
            if self.choices.once_in(2) {
                match framer.next_frame() {
                    None => return,
                    Some(Frame::Line(line)) => self.line(line),
                    Some(Frame::TooLong(event)) => self.too_long(event.limit, event.dropped),
                }
                continue;
            }
            match framer.take() {
                None => return,
                Some(Taken::TooLong(event)) => self.too_long(event.limit, event.dropped),
                Some(Taken::Line(line, tail)) => {
                    self.line(line);
                    let before = line.to_vec();
                    self.behind(tail);
                    assert_eq!(line, before, "the held line changed");
                    while self.ahead && self.choices.once_in(3) {
                        let (line, tail) = framer.held();
                        assert_eq!(line, before, "the held line changed");
                        self.behind(tail);
                    }
                }
            }
        }
    }

    fn line(&mut self, line: &mut [u8]) {
        let expected = match self.kept.pop_front() {
            Some(kept) => kept,
            None => match self.expected.pop_front() {
                Some(Event::Line(expected)) => expected,
                other => panic!("{line:?} instead of {other:?}"),
            },
        };
        assert_eq!(line, expected);
        // It is the taker's to change.
        line.fill(b'\n');
    }

    fn too_long(&mut self, limit: usize, dropped: usize) {
        assert!(self.kept.is_empty());
        assert_eq!(limit, self.limit);
        assert_eq!(self.expected.pop_front(), Some(Event::TooLong(dropped)));
    }

    /// Reads on behind a held line, and looks at what came.
    fn behind(&mut self, mut tail: InputBehind<'_>) {
        while self.ahead && !self.choices.once_in(3) {
            let count = self.read(tail.space());
            tail.commit(count);
            while !self.choices.once_in(4) {
                let Some(mut peeked) = tail.peek() else { break };
                let line = peeked.line();
                assert_eq!(self.expected.pop_front(), Some(Event::Line(line.to_vec())));
                if self.choices.once_in(2) {
                    line.fill(0xFF);
                    peeked.discard();
                    continue;
                }
                if self.choices.once_in(4) {
                    line.fill(b'x');
                }
                self.kept.push_back(line.to_vec());
                if self.choices.once_in(2) {
                    peeked.keep();
                }
            }
        }
    }
}
