use super::*;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

static INNER: Members = Members::of(&[Member::new("b", 2)]).with_others(3);
static OUTER: Members = Members::of(&[Member::new("a", 0), Member::new("name", 1).with(&INNER)]).with_others(4);

/// What the framer and then the scanner make of the line that the bytes start with, if it is one that `scan_line` is for.
fn by_framing(bytes: &[u8]) -> Option<(usize, usize, [Span; 5])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = &bytes[..end];
    let content = line.strip_suffix(b"\r").unwrap_or(line);
    let is_for_it = content.first() == Some(&b'{') && content.last() == Some(&b'}') && !content.contains(&b'\r');
    let mut spans = [Span::default(); 5];
    (is_for_it && scan(content, &OUTER, &mut spans).is_ok()).then_some((end + 1, content.len(), spans))
}

fn by_scanning(bytes: &[u8]) -> Option<(usize, usize, [Span; 5])> {
    let mut spans = [Span::default(); 5];
    let (whole, length) = scan_line(bytes, &OUTER, &mut spans)?;
    Some((whole, length, spans))
}

#[test]
fn k_01_a_line_is_found_by_its_check_where_the_framer_would_find_it() {
    for (bytes, expected) in [
        ("{}\n", Some((3, 2))),
        ("{}\r\n", Some((4, 2))),
        ("{\"a\":\"\\n\"}\nrest", Some((11, 10))),
        ("{\"a\" : [1,\t2]}\n{}\n", Some((15, 14))),
        // Left to the framer: what is no object from its first byte to its end, and CRs of any other number or place.
        (" {}\n", None),
        ("{} \n", None),
        ("{}\r\r\n", None),
        ("{\r\"a\":1}\n", None),
        ("[{}]\n", None),
        ("{}{}\n", None),
        // A line ends at the first LF, also where JSON goes on behind it.
        ("{\n}\n", None),
        ("{\"a\":\n1}\n", None),
        ("{\"a\":1\n}\n", None),
        ("{\"a\":[1,\n2]}\n", None),
        ("{\"a\":\"\n\"}\n", None),
        ("{\"a\"\n:1}\n", None),
        ("{}", None),
        ("{}\r", None),
        ("", None),
    ] {
        let found = by_scanning(bytes.as_bytes());
        assert_eq!(found.map(|(whole, length, _)| (whole, length)), expected, "{bytes:?}");
        assert_eq!(found, by_framing(bytes.as_bytes()), "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 20_000 }))]

    #[test]
    fn k_01_the_scan_of_a_line_says_what_framing_and_scanning_say(
        tokens in proptest::collection::vec(
            prop::sample::select(&[
                "{", "}", "[", "]", ",", ":", "\"a\"", "\"name\"", "\"b\"", "\"\\n\"", "1", "null", " ", "\t", "\r", "\n", "\r\n",
                "{}", "{\"a\":1}", "{\"name\":{\"b\":2}}", "{\"a\":{\"b\":[", "]}}", "\"", "\u{e9}",
            ][..]),
            0..16,
        ),
    ) {
        let text: String = tokens.concat();
        for start in ["", "{"] {
            let bytes: Vec<u8> = [start, &text, "\n"].concat().into_bytes();
            prop_assert_eq!(by_scanning(&bytes), by_framing(&bytes));
        }
    }
}
