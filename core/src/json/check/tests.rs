use super::*;
use crate::json::Json;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

static INNER: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("b", 2)]).with_others(3);
static STRINGS: WatchedMembers = WatchedMembers::strings(5);
static OUTER: WatchedMembers = WatchedMembers::new(&[
    WatchedMember::new("a", 0),
    WatchedMember::new("name", 1).with_members(&INNER),
    WatchedMember::new("env", 6).with_members(&STRINGS),
])
.with_others(4);

/// The spans of all slots of [`OUTER`].
type Found = [Span; 7];

/// The line that the bytes start with, by the framer and then [`scan`], if it is one that
/// [`LineScanner`] takes.
fn by_framing(bytes: &[u8]) -> Option<(usize, usize, Found)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line = &bytes[..end];
    let content = line.strip_suffix(b"\r").unwrap_or(line);
    let is_for_it = content.first() == Some(&b'{') && content.last() == Some(&b'}') && !content.contains(&b'\r');
    let mut spans = [Span::default(); 7];
    (is_for_it && scan(content, &OUTER, &mut spans).is_ok()).then_some((end + 1, content.len(), spans))
}

/// The same by the scanner of lines, which gets all of it at once.
fn by_scanning(bytes: &[u8]) -> Option<(usize, usize, Found)> {
    by_scanning_parts(bytes, &[])
}

/// The same by the scanner of lines, with reads that end at `cuts` and at the end.
fn by_scanning_parts(bytes: &[u8], cuts: &[usize]) -> Option<(usize, usize, Found)> {
    let (mut scanner, mut spans) = (LineScanner::new(), NO_SPANS);
    for end in cuts.iter().copied().chain([bytes.len()]) {
        match scanner.scan(&bytes[..end], &OUTER, &mut spans) {
            Scanned::Line { whole, length } => return Some((whole, length, *spans.first_chunk().unwrap())),
            Scanned::Part => assert!(!bytes[..end].contains(&b'\n'), "a line's end was not found"),
            // Then it stays so.
            Scanned::Other => {
                assert_eq!(scanner.scan(bytes, &OUTER, &mut spans), Scanned::Other);
                return None;
            }
        }
    }
    None
}

#[test]
fn a_line_is_found_by_its_check_where_the_framer_would_find_it() {
    for (bytes, expected) in [
        ("{}\n", Some((3, 2))),
        ("{}\r\n", Some((4, 2))),
        ("{\"a\":\"\\n\"}\nrest", Some((11, 10))),
        ("{\"a\" : [1,\t2]}\n{}\n", Some((15, 14))),
        // Left to the framer: what is not an object from its first byte to its end, and CRs of any
        // other number or place.
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

const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"a\"",
    "\"name\"",
    "\"b\"",
    "\"\\n\"",
    "1",
    "null",
    " ",
    "\t",
    "\r",
    "\n",
    "\r\n",
    "{}",
    "{\"a\":1}",
    "{\"name\":{\"b\":2}}",
    "{\"a\":{\"b\":[",
    "]}}",
    "\"",
    "\u{e9}",
    "-1.5e+3",
    "\"\\u00e9\u{1F680}\"",
    "\"x\":true,",
    "\"y\" : \"z\" , ",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 20_000 }))]

    #[test]
    fn the_scan_of_a_line_says_what_framing_and_scanning_say(
        tokens in proptest::collection::vec(prop::sample::select(TOKENS), 0..16),
    ) {
        let text: String = tokens.concat();
        for start in ["", "{"] {
            let bytes: Vec<u8> = [start, &text, "\n"].concat().into_bytes();
            prop_assert_eq!(by_scanning(&bytes), by_framing(&bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 2_000 }))]

    #[test]
    fn an_array_is_scanned_as_it_is_checked_and_its_elements_are_scanned(
        start in prop::sample::select(&["[", " [ ", "", "[["][..]),
        tokens in proptest::collection::vec(prop::sample::select(TOKENS), 0..12),
        elements in proptest::collection::vec(
            prop::sample::select(&[r#"{"a":1,"x":[{}]}"#, r#" {"name":{"b":2}} "#, "7", "[1, 2]", "\"x\"", "{}", "tru", r#"{"a":[[]}"#][..]),
            0..5,
        ),
    ) {
        for text in [[start, &tokens.concat()].concat(), [start, &tokens.concat(), "]"].concat(), [start, &elements.join(","), "]"].concat()] {
            let (mut found, mut spans) = (Vec::new(), NO_SPANS);
            let result = scan_array(text.as_bytes(), &OUTER, &mut spans, &mut |element, spans| found.push((element.to_vec(), *spans)));
            prop_assert_eq!(result, check(text.as_bytes()), "{:?}", text);
            if result.is_err() {
                continue;
            }
            let elements: Vec<_> = Json::of_checked(text.as_bytes()).elements().map(|element| element.as_bytes().to_vec()).collect();
            prop_assert_eq!(found.iter().map(|(element, _)| element.clone()).collect::<Vec<_>>(), elements, "{:?}", text);
            let mut next = text.find('[').map_or(text.len(), |at| at + 1);
            for (element, spans_of_it) in &found {
                let mut expected = NO_SPANS;
                scan(element, &OUTER, &mut expected).unwrap();
                prop_assert_eq!(*spans_of_it, expected);
                let range = scan_next_element(text.as_bytes(), next, &OUTER, &mut spans).unwrap();
                next = range.end;
                prop_assert_eq!((&text.as_bytes()[range], spans), (&element[..], expected));
            }
            if !found.is_empty() {
                prop_assert_eq!(scan_next_element(text.as_bytes(), next, &OUTER, &mut spans), None);
            }
        }
    }

    /// Random members make lines that are right more often than random tokens do.
    #[test]
    fn a_line_in_parts_is_scanned_as_the_whole_is(
        tokens in proptest::collection::vec(prop::sample::select(TOKENS), 0..12),
        members in proptest::collection::vec(
            prop::sample::select(&[
                r#""a":1"#, r#""a":[{"x":"y","b":["\u00e9",-1.5e-3,true]},[]]"#, r#""name":{"b":"\"","c":{"b":1}}"#, r#""n\u0061me" : {}"#,
                r#""name" : {"b" : null , "x" : [ ] }"#, r#""":"é🚀""#, r#""b":"{""#, r#""x":{"y":"z","v":"w"}"#, "\"\u{e9}\":false", r#""name":7"#, r#""env":{"A":"1","B" : "2"}"#,
                r#""env":{"A":"1","B":2,"C":"3"}"#,
            ][..]),
            0..6,
        ),
        cuts in proptest::collection::vec(0usize..400, 0..8),
    ) {
        let text: String = tokens.concat();
        let members = members.join(",");
        for text in [["{", &text, "\n"].concat(), ["{", &members, "}\n"].concat(), ["{", &members, "}\r\n"].concat()] {
            let bytes = text.as_bytes();
            let whole = by_scanning(bytes);
            // Where a read ends behind a CR, a terminal's line may have ended.
            let is_cut = |at: &usize| *at == 0 || bytes[*at - 1] != b'\r';
            for at in (0..bytes.len()).filter(is_cut) {
                prop_assert_eq!(by_scanning_parts(bytes, &[at]), whole, "{:?} cut at {}", text, at);
            }
            let each: Vec<usize> = (0..bytes.len()).filter(is_cut).collect();
            prop_assert_eq!(by_scanning_parts(bytes, &each), whole, "{:?} byte by byte", text);
            let mut some: Vec<usize> = cuts.iter().map(|at| at % bytes.len()).filter(is_cut).collect();
            some.sort_unstable();
            prop_assert_eq!(by_scanning_parts(bytes, &some), whole, "{:?} cut at {:?}", text, some);
        }
    }
}

#[test]
fn the_bytes_that_are_looked_at_twice_are_bounded() {
    // A text goes on where it stopped; a name, a number and a literal begin again, as long as they
    // are short.
    for (start, end, is_taken) in [
        ("{\"a\":\"", "\"}\n", true),
        ("{\"a\":[\"", "\"]}\n", true),
        ("{\"", "\":1}\n", false),
        ("{\"x\":{\"", "\":1}}\n", false),
        ("{\"a\":1", "}\n", false),
        ("{\"a\":[1", "]}\n", false),
    ] {
        for count in [100, 1000] {
            let text = [start, &"1".repeat(count), end].concat();
            let each: Vec<usize> = (0..text.len()).collect();
            let found = by_scanning_parts(text.as_bytes(), &each);
            assert_eq!(found.is_some(), is_taken || count == 100, "{start} {count}");
            assert!(by_scanning(text.as_bytes()).is_some());
        }
    }
}

#[test]
fn a_text_of_many_foreign_characters_goes_on_where_one_of_them_is_cut() {
    // The second byte of the dash is the least one that is not ASCII.
    for character in ["\u{1F680}", "\u{2014}"] {
        let bytes = ["{\"a\":\"", &character.repeat(100), "\"}\n"].concat().into_bytes();
        let end = bytes.len() - b"\"}\n".len();
        for cut in end - character.len()..=end {
            assert_eq!(by_scanning_parts(&bytes, &[cut]), by_framing(&bytes), "{cut} of {end}");
        }
    }
    // Four bytes that are no character are the beginning of none.
    for wrong in [&b"\xF0\x9F\xF0\x9F"[..], b"\xC3\"", b"\xFF\xFF\xFF\xFF"] {
        let (mut scanner, mut spans) = (LineScanner::new(), NO_SPANS);
        let start = [b"{\"a\":\"", wrong].concat();
        assert_eq!(scanner.scan(&start, &OUTER, &mut spans), Scanned::Other, "{}", wrong.escape_ascii());
    }
}

#[test]
fn each_line_begins_anew() {
    let (mut scanner, mut spans) = (LineScanner::new(), NO_SPANS);
    // Given up, and cut in a nest.
    for start in ["{]", "{\"x\":[[{", "{\"name\":{\"b\":\"\\u0", "{\"x\":1\n"] {
        scanner.scan(start.as_bytes(), &OUTER, &mut spans);
        scanner.reset();
        let line = b"{\"name\":{\"b\":[2]}}\n";
        assert_eq!(scanner.scan(line, &OUTER, &mut spans), Scanned::Line { whole: line.len(), length: line.len() - 1 });
        assert_eq!(Some((line.len(), line.len() - 1, *spans.first_chunk().unwrap())), by_framing(line));
    }
}
