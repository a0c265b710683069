use super::find::{find, find_by_byte};
use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Line(Vec<u8>),
    TooLong(usize),
}

/// The module's rules, written down without regard to memory.
fn naive(bytes: &[u8], limit: usize, ends: LineEnds, finish: bool) -> Vec<Event> {
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == LF || (byte == CR && ends == LineEnds::Serial)).collect();
    if !finish {
        lines.pop();
    }
    let events = lines.into_iter().filter_map(|line| {
        let mut line = line.strip_prefix(&BOM).unwrap_or(line);
        while let Some(rest) = line.strip_suffix(b"\r") {
            line = rest;
        }
        match line.len() {
            n if n > limit => Some(Event::TooLong(n)),
            _ if line.iter().all(|byte| b" \t\r".contains(byte)) => None,
            _ => Some(Event::Line(line.to_vec())),
        }
    });
    events.collect()
}

fn event(frame: Frame<'_>, limit: usize) -> Event {
    match frame {
        Frame::Line(line) => {
            let event = Event::Line(line.to_vec());
            line.fill(LF); // the caller may overwrite the line
            event
        }
        Frame::TooLong(event) => {
            assert_eq!(event.limit, limit);
            Event::TooLong(event.dropped)
        }
    }
}

/// Feeds `bytes` in reads of `cuts` bytes, in turn, and drains the framer after each.
fn framed(bytes: &[u8], len: usize, ends: LineEnds, cuts: &[usize]) -> Vec<Event> {
    let mut memory = vec![0; len];
    let mut framer = Framer::new(&mut memory).with_mode(ends);
    let limit = framer.limit();
    let (mut events, mut at) = (Vec::new(), 0);
    for cut in cuts.iter().cycle() {
        if at == bytes.len() {
            break;
        }
        let space = framer.space();
        assert!(!space.is_empty());
        let n = (*cut).min(space.len()).min(bytes.len() - at);
        space[..n].copy_from_slice(&bytes[at..at + n]);
        framer.commit(n);
        at += n;
        while let Some(frame) = framer.next_frame() {
            events.push(event(frame, limit));
        }
        assert_eq!(events, naive(&bytes[..at], limit, ends, false), "after {at} bytes");
    }
    framer.finish();
    while let Some(frame) = framer.next_frame() {
        events.push(event(frame, limit));
    }
    assert!(framer.space().is_empty());
    events
}

fn text(events: &[Event]) -> String {
    let show = |event: &Event| match event {
        Event::Line(line) => String::from_utf8_lossy(line).to_string(),
        Event::TooLong(n) => format!("!{n}"),
    };
    events.iter().map(show).collect::<Vec<_>>().join("|")
}

#[test]
fn lines_are_what_the_module_says() {
    use LineEnds::{Lf, Serial};
    // Memory of 6 bytes: a limit of 5.
    let table: &[(&[u8], LineEnds, &str)] = &[
        (b"", Lf, ""),
        (b"\n", Lf, ""),
        (b"a\n", Lf, "a"),
        (b"a", Lf, "a"),
        (b"a\r", Lf, "a"),
        (b"a\nb\n", Lf, "a|b"),
        (b"a\r\nb\r\r\r\n", Lf, "a|b"),
        (b"\n\r\n \n\t \r\n\r\r\n \ta\n", Lf, " \ta"),
        (b"a\rb\n", Lf, "a\rb"),
        (b"a\rb\n", Serial, "a|b"),
        (b"a\r\nb\r\n\r\n", Serial, "a|b"),
        (b"a\rb", Serial, "a|b"),
        (b"\ra \r \r", Serial, "a "),
        // The limit, one less, one more.
        (b"1234\n", Lf, "1234"),
        (b"12345\n", Lf, "12345"),
        (b"123456\n", Lf, "!6"),
        (b"12345", Lf, "12345"),
        (b"123456", Lf, "!6"),
        (b"123456\r", Lf, "!6"),
        (b"12345\r", Serial, "12345"),
        (b"123456\r", Serial, "!6"),
        (b"12345\r\n", Lf, "12345"),
        (b"12345\r\r\r\r\r\r\r\r\r\n1\n", Lf, "12345|1"),
        (b"123\r\r\r\r\r\r\r\r\r\n1\n", Lf, "123|1"),
        (b"12345\r\r\r\r", Lf, "12345"),
        (b"\r\r\r\r\r\r\r\r\r\n1\n", Lf, "1"),
        (b"123\r4\n", Lf, "123\r4"),
        (b"123\r\r4\n", Lf, "!6"),
        (b"123\r\r\r\r\r\r\r4\r\r\n5\n", Lf, "!11|5"),
        (b"\r\r\r\r\r\r1\n", Lf, "!7"),
        // One event a line, nothing of it delivered, a clean restart.
        (b"a\n123456789012345678901234567890\nb\n", Lf, "a|!30|b"),
        (b"123456789\n123456789\n1\n123456789", Lf, "!9|!9|1|!9"),
        (b"123456\xEF\xBB\xBF\n1", Lf, "!9|1"),
        (b"      \n1", Lf, "!6|1"),
        (b"     \n1", Lf, "1"),
        // Byte-order marks.
        (b"\xEF\xBB\xBFa\n\xEF\xBB\xBFb\n", Lf, "a|b"),
        (b"\xEF\xBB\xBF12345\n\xEF\xBB\xBF12345\r\r\n1", Lf, "12345|12345|1"),
        (b"\xEF\xBB\xBF123456\n", Lf, "!6"),
        (b"\xEF\xBB\xBF\n\xEF\xBB\xBF \r\n\xEF\xBB\xBF", Lf, ""),
        (b"\xEF\xBB\xBF\xEF\xBB\xBFa\n", Lf, "\u{FEFF}a"),
        (b"a\xEF\xBB\xBF\n", Lf, "a\u{FEFF}"),
        (b"\r\xEF\xBB\xBF\n", Lf, "\r\u{FEFF}"),
        (b"\r\xEF\xBB\xBFa", Serial, "a"),
    ];
    for (bytes, ends, expected) in table {
        for cut in 1..=7 {
            let events = framed(bytes, 6, *ends, &[cut]);
            assert_eq!(text(&events), *expected, "{} in reads of {cut}", bytes.escape_ascii());
            assert_eq!(events, naive(bytes, 5, *ends, true), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn tiny_memory_has_exact_limits_too() {
    let bytes = b"a\nbb\n\xEF\xBB\xBF\n\xEF\xBB\xBFb\n\xEF\xBB\r\r\n\xEF\xBBb\n \n\xEF";
    // White space is over a limit of 0.
    for (len, expected) in [(1, "!1|!2|!1|!2|!3|!1|!1"), (2, "a|!2|b|!2|!3|\u{FFFD}")] {
        for cuts in [&[1][..], &[2], &[1, 2]] {
            assert_eq!(text(&framed(bytes, len, LineEnds::Lf, cuts)), expected);
        }
    }
    let mut framer = Framer::new(&mut []);
    assert_eq!((framer.limit(), framer.space().len()), (0, 0));
    framer.commit(3);
    framer.finish();
    assert_eq!(framer.next_frame(), None);
    assert!(framer.take().is_none());
}

#[test]
fn reset_forgets_everything() {
    for start in [&b"a\nb"[..], b"123456789", b"123456789\n1\n", b"1\r\r\r\r\r", b"\xEF"] {
        let mut framer = OwnedFramer::<6>::default();
        for &byte in start {
            framer.space()[0] = byte;
            framer.commit(1);
        }
        framer.reset();
        framer.space()[..2].copy_from_slice(b"c\n");
        framer.commit(2);
        assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"c".to_vec())));
        assert_eq!(framer.next_frame(), None);
        framer.finish();
        framer.reset();
        assert_eq!(framer.space().len(), 6);
    }
}

#[test]
fn small_sessions_touch_only_the_beginning() {
    let mut memory = vec![0; 1 << 20];
    let mut framer = Framer::new(&mut memory);
    for i in 0..10_000 {
        for part in [&b"{\"a\":1}\r\n\n{\"b"[..], b"\":2}\n"] {
            framer.space()[..part.len()].copy_from_slice(part);
            framer.commit(part.len());
            while let Some(frame) = framer.next_frame() {
                assert!(matches!(frame, Frame::Line(_)), "{i}");
            }
        }
    }
    assert!(memory[64..].iter().all(|&byte| byte == 0));
}

#[test]
fn more_than_the_room_is_all_of_it() {
    let mut framer = OwnedFramer::<4>::new();
    framer.space().copy_from_slice(b"abc\n");
    framer.commit(usize::MAX);
    assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"abc".to_vec())));
}

#[test]
fn a_held_line_is_back_pressure_not_an_over_long_line() {
    let mut framer = OwnedFramer::<9>::new();
    framer.space()[..6].copy_from_slice(b"1234\n1");
    framer.commit(6);
    let Some(Taken::Line(line, mut tail)) = framer.take() else { panic!() };
    assert_eq!(tail.space().len(), 4, "the held line's newline is free too");
    tail.space().copy_from_slice(b"2345");
    tail.commit(4);
    assert!(tail.space().is_empty());
    assert!(tail.peek().is_none());
    assert_eq!(line, b"1234");
    framer.space()[..4].copy_from_slice(b"678\n");
    framer.commit(4);
    assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"12345678".to_vec())));
}

#[test]
fn discarded_lines_give_their_room_back() {
    let mut framer = OwnedFramer::<10>::new();
    framer.space().copy_from_slice(b"a\nbb\ncc\ndd");
    framer.commit(10);
    let Some(Taken::Line(_, mut tail)) = framer.take() else { panic!() };
    tail.peek().unwrap().keep();
    tail.peek().unwrap().discard();
    assert!(tail.peek().is_none());
    assert_eq!(tail.space().len(), 4, "three of cc, one of the held line's newline");
    tail.space()[..2].copy_from_slice(b"d\n");
    tail.commit(2);
    assert_eq!(tail.peek().unwrap().line(), b"ddd");
    assert!(tail.peek().is_none());
    tail.finish();
    assert!(tail.space().is_empty());
    for expected in [&b"bb"[..], b"ddd"] {
        assert_eq!(framer.next_frame(), Some(Frame::Line(&mut expected.to_vec())));
    }
    assert_eq!(framer.next_frame(), None);
}

/// Lines are taken or dropped one by one, and room is asked for after each. The bytes behind them are moved only as far as the
/// consumed ones pay for, and then they are: the room is always more than the memory without twice of what is buffered.
#[test]
fn bytes_are_moved_a_bounded_number_of_times() {
    const SIZE: usize = 4096;
    let text = b"abc\n".repeat(1000);
    let (mut moved, mut taken) = (0, 0);
    let mut memory = [0; SIZE];
    let mut framer = Framer::new(&mut memory);
    framer.space()[..text.len()].copy_from_slice(&text);
    framer.commit(text.len());
    while framer.next_frame().is_some() {
        taken += 1;
        framer.state.release();
        let before = framer.state.end;
        let room = framer.space().len();
        let buffered = text.len() - 4 * taken;
        moved += if framer.state.end < before { buffered } else { 0 };
        assert!(room + 2 * buffered > SIZE || buffered == 0, "{room} beside {buffered}");
    }
    assert_eq!(taken, 1000);
    assert!(moved <= text.len(), "{moved}");
    // Behind a line that is held, and one that waits.
    let (mut moved, mut dropped) = (0, 0);
    framer.space()[..text.len()].copy_from_slice(&text);
    framer.commit(text.len());
    let Some(Taken::Line(line, mut tail)) = framer.take() else { panic!() };
    tail.peek().unwrap().keep();
    while let Some(peeked) = tail.peek() {
        peeked.discard();
        dropped += 1;
        let before = tail.state.end;
        let room = tail.space().len();
        let buffered = text.len() - 4 * (dropped + 2);
        moved += if tail.state.end < before { buffered } else { 0 };
        // The newline of the held line is the room's.
        let most = SIZE - line.len() - b"abc\n".len();
        assert!(room + 2 * buffered > most || buffered == 0, "{room} beside {buffered}");
    }
    assert_eq!(dropped, 998);
    assert!(moved <= text.len(), "{moved}");
}

/// A line that is held lies at the beginning of the memory, where that moves no more than was consumed: what was before it is room.
#[test]
fn a_line_that_is_held_leaves_the_room_of_what_was_consumed() {
    const SIZE: usize = 64;
    for (consumed, behind, room) in [(20, 2, SIZE - 4), (20, 18, SIZE - 20), (20, 19, SIZE - 41), (20, 30, SIZE - 52)] {
        let mut memory = [0; SIZE];
        let mut framer = Framer::new(&mut memory);
        let text = [&vec![b'a'; consumed - 1][..], b"\nb\n", &vec![b'c'; behind]].concat();
        framer.space()[..text.len()].copy_from_slice(&text);
        framer.commit(text.len());
        assert!(framer.next_frame().is_some());
        let Some(Taken::Line(line, mut tail)) = framer.take() else { panic!() };
        assert_eq!((&*line, tail.space().len()), (&b"b"[..], room), "{behind}");
    }
}

/// Where there is no other room, the bytes that were consumed are room at once.
#[test]
fn a_full_memory_has_the_room_of_what_was_consumed() {
    for held in [false, true] {
        let mut memory = [0; 64];
        let mut framer = Framer::new(&mut memory);
        framer.space().fill(b'x');
        for end in [1, 3, 5] {
            framer.buf[end] = LF;
        }
        framer.commit(64);
        if held {
            let Some(Taken::Line(line, mut tail)) = framer.take() else { panic!() };
            tail.peek().unwrap().keep();
            tail.peek().unwrap().discard();
            assert_eq!((line.len(), tail.space().len()), (1, 3), "the line and two newlines");
            tail.space().copy_from_slice(b"yz\n");
            tail.commit(3);
        } else {
            assert!(framer.next_frame().is_some());
            assert_eq!(framer.space().len(), 2);
            framer.space().copy_from_slice(b"yy");
            framer.commit(2);
            assert!(framer.next_frame().is_some());
            assert!(framer.next_frame().is_some());
            assert_eq!(framer.space().len(), 4);
            framer.space().copy_from_slice(b"yyz\n");
            framer.commit(4);
        }
        let lines: Vec<_> = core::iter::from_fn(|| framer.next_frame().map(|frame| event(frame, 63))).collect();
        let (last, count) = lines.split_last().map(|(last, before)| (last.clone(), before.len())).unwrap();
        let end = if held { "yz" } else { "yyyyz" };
        assert_eq!((last, count), (Event::Line(format!("{}{end}", "x".repeat(58)).into_bytes()), usize::from(held)));
    }
}

#[test]
fn every_line_end_is_found_wherever_it_stands() {
    for len in 0..150 {
        for at in 0..len {
            for (byte, ends) in [(LF, LineEnds::Lf), (LF, LineEnds::Serial), (CR, LineEnds::Serial)] {
                for other in [0_u8, 9, 11, 12, 14, 0x7F, 0x80, 0x8A, 0x8D, 0xFF] {
                    let mut bytes = vec![other; len];
                    assert_eq!((find(&bytes, ends), find_by_byte(&bytes, ends)), (None, None));
                    bytes[at..].fill(byte);
                    assert_eq!((find(&bytes, ends), find_by_byte(&bytes, ends)), (Some(at), Some(at)));
                }
            }
        }
    }
}

/// Lines that are all that was read, of which whole blocks are looked at, at once and in two reads.
#[test]
fn a_line_alone_is_framed_as_among_others() {
    for ends in [LineEnds::Lf, LineEnds::Serial] {
        for end in ["\n", "\r\n", "\r\r\n", "\r", ""] {
            for length in (0..=20).chain([63, 64, 65, 66, 80, 127, 128, 129, 150, 192, 200]) {
                let line = format!("{}{end}", "x".repeat(length));
                for cut in 1..=line.len().max(1) {
                    framed(line.repeat(2).as_bytes(), 256, ends, &[cut, line.len().wrapping_sub(cut).max(1)]);
                }
                // An end inside, wherever it stands.
                for at in 0..length {
                    let mut line = line.clone().into_bytes();
                    line[at] = if at % 3 == 0 { CR } else { LF };
                    framed(&line, 256, ends, &[line.len()]);
                }
            }
        }
    }
}

/// Lines of lengths around all sizes that its memory may have, then a short one: the memory is
/// small again.
#[cfg(feature = "alloc")]
#[test]
fn the_heap_framer_grows_only_when_a_line_fills_its_memory() {
    let mut framer = HeapFramer::new(1 << 20);
    let first = framer.space().len();
    for (count, capacity) in [(10, first), (first - 11, first), (1, 2 * first), (first - 1, 2 * first), (1, 4 * first)]
    {
        framer.space()[..count].fill(b'a');
        framer.commit(count);
        assert_eq!(framer.next_frame(), None);
        assert_eq!(framer.capacity(), capacity, "{count} bytes more");
    }
    // Twofold up to 64 KiB, and then at once to what the longest line needs.
    let mut rooms = Vec::new();
    while framer.buffered() <= 64 << 10 {
        let room = framer.space().len();
        rooms.push(framer.buffered() + room);
        framer.space().fill(b'a');
        framer.commit(room);
    }
    assert_eq!(rooms, [16 << 10, 32 << 10, 64 << 10, (1 << 20) + 1]);
}

#[test]
fn the_heap_framer_grows_to_its_limit_and_shrinks() {
    for limit in [0, 10, 4094, 4095, 4096, 5000, 65_535, 65_536, 100_000] {
        let sizes = [0, 1, 2, 4093, 4094, 4095, 4096, 4097, 8191, 8192, 65_534, 65_535, 65_536, 65_537];
        let around = [limit.max(1) - 1, limit, limit + 1, limit + 2, limit * 3];
        for size in sizes.into_iter().chain(around) {
            let a = |count: usize| "a".repeat(count);
            for line in [
                format!("{}\nb\r\n", a(size)),
                format!("b\n\u{feff}{}\r\r\n\nc\n", a(size)),
                format!("{}\r\r{}\n{}\nd", a(size / 2), a(size - size / 2), a(size)),
                format!("{}\n{}", "\r".repeat(size), a(size)),
            ] {
                for cut in [1000, 4095, 4096, 70_000] {
                    let mut framer = HeapFramer::new(limit);
                    let (mut events, mut at) = (Vec::new(), 0);
                    while at < line.len() {
                        let space = framer.space();
                        let count = cut.min(space.len()).min(line.len() - at);
                        assert!(count > 0, "limit {limit}, size {size}, cut {cut}");
                        space[..count].copy_from_slice(&line.as_bytes()[at..at + count]);
                        framer.commit(count);
                        at += count;
                        while let Some(frame) = framer.next_frame() {
                            events.push(event(frame, limit));
                        }
                    }
                    framer.finish();
                    while let Some(frame) = framer.next_frame() {
                        events.push(event(frame, limit));
                    }
                    let expected = naive(line.as_bytes(), limit, LineEnds::Lf, true);
                    assert_eq!(text(&events), text(&expected), "limit {limit}, size {size}, cut {cut}");
                    assert_eq!(framer.buffered(), 0);
                }
            }
        }
    }
    let mut framer = HeapFramer::new(8 << 20);
    while framer.capacity() <= 4 << 20 {
        let space = framer.space();
        space.fill(b'a');
        let count = space.len();
        framer.commit(count);
        assert_eq!(framer.next_frame(), None);
    }
    framer.space()[0] = LF;
    framer.commit(1);
    assert!(framer.next_frame().is_some());
    framer.space();
    assert_eq!(framer.capacity(), HeapFramer::START);
}

#[cfg(feature = "alloc")]
#[test]
fn the_heap_framer_tells_what_it_holds() {
    let mut framer = HeapFramer::new(10_000);
    assert_eq!((framer.limit(), framer.capacity(), framer.buffered()), (10_000, 0, 0));
    framer.space()[..9].copy_from_slice(b"one\ntwo\n3");
    framer.commit(9);
    assert_eq!((framer.capacity(), framer.buffered()), (HeapFramer::START, 9));
    assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"one".to_vec())));
    assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"two".to_vec())));
    assert_eq!(framer.next_frame(), None);
    assert_eq!(framer.buffered(), 1);
    assert_eq!(HeapFramer::new(usize::MAX).limit(), usize::MAX - 1);
}

/// The rest of a line over the limit is dropped as it comes, in the least memory.
#[cfg(feature = "alloc")]
#[test]
fn the_heap_framer_takes_no_memory_for_what_it_drops() {
    let mut framer = HeapFramer::new(100_000);
    let mut total = 0;
    while total <= 300_000 {
        let space = framer.space();
        space.fill(b'a');
        let count = space.len();
        framer.commit(count);
        total += count;
        // Up to 64 KiB twice what has come: the line is full, or fills half of it.
        assert!(total > 60_000 || framer.capacity() <= 2 * total, "{} after {total}", framer.capacity());
        assert!(total <= 200_000 || framer.capacity() == HeapFramer::START, "{} after {total}", framer.capacity());
        assert_eq!(framer.next_frame(), None);
    }
    framer.space()[..3].copy_from_slice(b"\nb\n");
    framer.commit(3);
    assert_eq!(framer.next_frame(), Some(Frame::TooLong(TooLong { limit: 100_000, dropped: total })));
    assert_eq!(framer.next_frame(), Some(Frame::Line(&mut b"b".to_vec())));
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => prop::sample::select(vec![&b"\n"[..], b"\r\n", b"\r", b"\r\r\r\r", b"\xEF\xBB\xBF", b"\xEF", b"\xBB", b"\xBF", b" ", b"\t"])
            .prop_map(<[u8]>::to_vec),
        3 => prop::collection::vec(b'a'..=b'z', 1..12),
        1 => prop::collection::vec(any::<u8>(), 1..4),
        1 => prop::collection::vec(b'a'..=b'z', 30..90),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn ends() -> impl Strategy<Value = LineEnds> {
    prop::sample::select(vec![LineEnds::Lf, LineEnds::Serial])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn cuts_do_not_matter(
        bytes in stream(), len in prop_oneof![1..24_usize, 24..100_usize], ends in ends(),
        cuts in prop::collection::vec(1..40_usize, 1..20),
    ) {
        prop_assert_eq!(framed(&bytes, len, ends, &cuts), naive(&bytes, len - 1, ends, true));
    }

    /// Reads, lines, held lines, looks ahead in any order: everything comes once, in order, and
    /// unharmed.
    #[test]
    fn looking_ahead_does_not_matter(
        bytes in stream(), len in prop_oneof![1..24_usize, 24..100_usize], ends in ends(),
        choices in prop::collection::vec((0..8_u8, 1..40_usize), 1..200),
    ) {
        let expected = naive(&bytes, len - 1, ends, true);
        let mut memory = vec![0; len];
        let mut framer = Framer::new(&mut memory).with_mode(ends);
        let mut choices = choices.into_iter();
        let (mut at, mut looked, mut kept) = (0, 0, VecDeque::new());
        let read = |space: &mut [u8], at: &mut usize, n: usize| {
            let n = n.min(space.len()).min(bytes.len() - *at);
            space[..n].copy_from_slice(&bytes[*at..*at + n]);
            *at += n;
            n
        };
        loop {
            // When the choices are used up, the rest is plain reading.
            let chosen = choices.next();
            let (choice, n) = chosen.unwrap_or((0, 40));
            let turn = |kept: &mut VecDeque<usize>, looked: &mut usize| {
                kept.pop_front().unwrap_or_else(|| { *looked += 1; *looked - 1 })
            };
            match choice {
                0 | 1 => {
                    let n = read(framer.space(), &mut at, n);
                    framer.commit(n);
                }
                2 if at == bytes.len() => framer.finish(),
                2 | 3 => if let Some(frame) = framer.next_frame() {
                    prop_assert_eq!(&event(frame, len - 1), &expected[turn(&mut kept, &mut looked)]);
                },
                _ => match framer.take() {
                    None => {}
                    Some(Taken::TooLong(event)) => {
                        prop_assert_eq!(&Event::TooLong(event.dropped), &expected[turn(&mut kept, &mut looked)]);
                    }
                    Some(Taken::Line(line, mut tail)) => {
                        prop_assert_eq!(&Event::Line(line.to_vec()), &expected[turn(&mut kept, &mut looked)]);
                        line.fill(LF);
                        for (choice, n) in choices.by_ref().take(n) {
                            if choice < 4 {
                                let n = read(tail.space(), &mut at, n);
                                tail.commit(n);
                            } else if choice == 4 && at == bytes.len() {
                                tail.finish();
                            } else if let Some(mut peeked) = tail.peek() {
                                prop_assert_eq!(&Event::Line(peeked.line().to_vec()), &expected[looked]);
                                match choice {
                                    5 => { peeked.keep(); kept.push_back(looked); }
                                    6 => { peeked.line().fill(LF); peeked.discard(); }
                                    _ => kept.push_back(looked),
                                }
                                looked += 1;
                            }
                        }
                        prop_assert!(line.iter().all(|&byte| byte == LF), "a held line was written over");
                    }
                },
            }
            if chosen.is_none() {
                let done = at == bytes.len();
                if done {
                    framer.finish();
                }
                while let Some(frame) = framer.next_frame() {
                    prop_assert_eq!(&event(frame, len - 1), &expected[turn(&mut kept, &mut looked)]);
                }
                if done {
                    break;
                }
            }
        }
        prop_assert_eq!((at, looked, kept.len()), (bytes.len(), expected.len(), 0));
    }

    #[test]
    fn the_owned_framer_is_no_different(bytes in stream(), ends in ends(), cut in 1..20_usize) {
        let mut framer = OwnedFramer::<16>::new().with_mode(ends);
        prop_assert_eq!(framer.limit(), 15);
        let (mut events, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let space = framer.space();
            let n = cut.min(space.len()).min(rest.len());
            space[..n].copy_from_slice(&rest[..n]);
            framer.commit(n);
            rest = &rest[n..];
            loop {
                match framer.take() {
                    None => break,
                    Some(Taken::Line(line, _)) => events.push(Event::Line(line.to_vec())),
                    Some(Taken::TooLong(event)) => events.push(Event::TooLong(event.dropped)),
                }
            }
        }
        framer.finish();
        while let Some(frame) = framer.next_frame() {
            events.push(event(frame, 15));
        }
        prop_assert_eq!(events, naive(&bytes, 15, ends, true));
    }
}
