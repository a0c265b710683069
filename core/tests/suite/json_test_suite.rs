//! `JSONTestSuite` (Nicolas Seriot, "Parsing JSON is a Minefield"), and vectors of our own.

use std::collections::BTreeMap;

use rigline::json::check::{DEPTH, Span, SyntaxError, SyntaxErrorKind, WatchedMember, WatchedMembers, check, scan};
use rigline::json::{Json, JsonKind, de};
use serde::de::IgnoredAny;

/// The cases that the suite leaves open, and our answer. What is accepted here is grammatical: a number's size and a lone surrogate
/// in an escape are whose decodes it.
const UNDECIDED: &[(&str, bool)] = &[
    ("i_number_double_huge_neg_exp", true),
    ("i_number_huge_exp", true),
    ("i_number_neg_int_huge_exp", true),
    ("i_number_pos_double_huge_exp", true),
    ("i_number_real_neg_overflow", true),
    ("i_number_real_pos_overflow", true),
    ("i_number_real_underflow", true),
    ("i_number_too_big_neg_int", true),
    ("i_number_too_big_pos_int", true),
    ("i_number_very_big_negative_int", true),
    ("i_object_key_lone_2nd_surrogate", true),
    ("i_string_1st_surrogate_but_2nd_missing", true),
    ("i_string_1st_valid_surrogate_2nd_invalid", true),
    ("i_string_UTF-16LE_with_BOM", false),
    ("i_string_UTF-8_invalid_sequence", false),
    ("i_string_UTF8_surrogate_U+D800", false),
    ("i_string_incomplete_surrogate_and_escape_valid", true),
    ("i_string_incomplete_surrogate_pair", true),
    ("i_string_incomplete_surrogates_escape_valid", true),
    ("i_string_invalid_lonely_surrogate", true),
    ("i_string_invalid_surrogate", true),
    ("i_string_invalid_utf-8", false),
    ("i_string_inverted_surrogates_U+1D11E", true),
    ("i_string_iso_latin_1", false),
    ("i_string_lone_second_surrogate", true),
    ("i_string_lone_utf8_continuation_byte", false),
    ("i_string_not_in_unicode_range", false),
    ("i_string_overlong_sequence_2_bytes", false),
    ("i_string_overlong_sequence_6_bytes", false),
    ("i_string_overlong_sequence_6_bytes_null", false),
    ("i_string_truncated-utf-8", false),
    ("i_string_utf16BE_no_BOM", false),
    ("i_string_utf16LE_no_BOM", false),
    // Nesting: 500 is beyond our 128. A byte-order mark is the framer's to remove, not the
    // checker's.
    ("i_structure_500_nested_arrays", false),
    ("i_structure_UTF-8_BOM_empty_object", false),
];

#[test]
fn json_test_suite() {
    let Some(directory) = crate::common::shared("vectors/json-test-suite/test_parsing") else { return };
    let (mut accepted, mut refused, mut undecided) = (0, 0, BTreeMap::new());
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read(&path).unwrap();
        let answer = check(&text);
        use_in_every_way(&text);
        match name.as_bytes()[0] {
            b'y' => {
                assert_eq!(answer, Ok(()), "{name}");
                accepted += 1;
            }
            b'n' => {
                assert!(answer.is_err(), "{name} was accepted");
                refused += 1;
            }
            _ => {
                println!("{name}: {}", answer.map_or_else(|error| error.to_string(), |()| "accepted".to_owned()));
                undecided.insert(name, answer.is_ok());
            }
        }
    }
    assert_eq!((accepted, refused, undecided.len()), (95, 188, 35));
    for (name, expected) in UNDECIDED {
        assert_eq!(undecided.get(*name), Some(expected), "{name}");
    }
}

#[test]
fn our_own_vectors() {
    const GOOD: &[&str] = &[
        "0",
        "-0",
        "-0.0e-0",
        "1E+9",
        "\"\"",
        " \t\r\n1\n",
        "[]",
        "{}",
        "[{}]",
        "{\"\":{\"\":[]}}",
        "\"\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}\"",
        "\"12345678\\\"12345678\"",
        "\"\\ud83d\\ude00\\uD83D\"",
        "[\r{\t\"a\"\n:\r1\t,\n\"b\" : [ ] }\r]",
        "{\"a\":1,\"a\":2}",
    ];
    const BAD: &[&[u8]] = &[
        b"",
        b" ",
        b"-",
        b"00",
        b"-01",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"+1",
        b"0x10",
        b"1_000",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nul",
        b"nulll",
        b"True",
        b"tRue",
        b"'a'",
        b"{a:1}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{,}",
        b"{1:1}",
        b"[1,]",
        b"[,1]",
        b"[1 2]",
        b"[1",
        b"[1}",
        b"{\"a\":1]",
        b"[[]",
        b"]",
        b"[]]",
        b"{}{}",
        b"1 1",
        b"[1]// c",
        b"/* c */1",
        b"\"a",
        b"\"\\",
        b"\"\\u12",
        b"\"\\u12G4\"",
        b"\"\\x41\"",
        b"\"\\'\"",
        b"\"\x00\"",
        b"\"1234567\x1f\"",
        b"\"a\nb\"",
        b"\"\xff\"",
        b"\"\xc0\xaf\"",
        b"\"\xc3",
        b"\"\xc3\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\xef\xbb\xbf1",
        b"1\x0c",
        b"\x0b1",
        b"\xc2\xa01",
        b"1\x00",
        b"[1]\x00",
    ];
    for text in GOOD {
        assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        use_in_every_way(text.as_bytes());
    }
    for text in BAD {
        assert!(check(text).is_err(), "{}", text.escape_ascii());
        use_in_every_way(text);
    }
    // Cut anywhere, no text but a number is whole.
    for text in GOOD.iter().map(|text| text.trim().as_bytes()).filter(|text| !text.starts_with(b"-") && text.len() > 1)
    {
        for end in 0..text.len() {
            assert!(check(&text[..end]).is_err() || text[0].is_ascii_digit(), "{}", text[..end].escape_ascii());
            use_in_every_way(&text[..end]);
        }
    }
}

#[test]
fn nesting_is_limited_exactly_and_costs_nothing() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), (" [ ", " ] ")] {
        for depth in [1, 16, 31, 32, 33, 64, 127, 128, 129, 500, 100_000] {
            let inner = if open.contains('{') { "1" } else { "" };
            let text = open.repeat(depth) + inner + &close.repeat(depth);
            let answer = check(text.as_bytes());
            assert_eq!(answer.is_ok(), depth <= DEPTH, "{depth} of {open}");
            if let Err(error) = answer {
                assert_eq!(error.kind, SyntaxErrorKind::TooDeep { limit: 128 });
            }
            use_in_every_way(text.as_bytes());
            use_in_every_way(open.repeat(depth).as_bytes());
        }
    }
    let mixed = "[{\"a\":".repeat(64) + "1" + &"}]".repeat(64);
    assert_eq!(check(mixed.as_bytes()), Ok(()));
    assert!(check(mixed.replacen(']', "}", 1).as_bytes()).is_err());
}

#[test]
fn a_view_says_what_a_value_is() {
    for (text, kind) in [
        ("null", JsonKind::Null),
        ("true", JsonKind::Bool),
        ("false", JsonKind::Bool),
        ("0", JsonKind::Number),
        ("-1.5e3", JsonKind::Number),
        ("\"true\"", JsonKind::String),
        ("\"\"", JsonKind::String),
        ("[null]", JsonKind::Array),
        ("{\"null\":1}", JsonKind::Object),
    ] {
        let spaced = format!(" \r\n\t{text} ");
        for json in [Json::parse(text.as_bytes()).unwrap(), Json::parse(spaced.as_bytes()).unwrap()] {
            assert_eq!((json.kind(), json.as_str(), json.as_bytes()), (kind, text, text.as_bytes()));
            assert_eq!(json.is_null(), kind == JsonKind::Null, "{text}");
            assert_eq!(json.bool(), if kind == JsonKind::Bool { Some(text == "true") } else { None }, "{text}");
            assert_eq!(json.number().is_some(), kind == JsonKind::Number, "{text}");
            assert_eq!(json.text().map(|text| text.raw().len() + 2), (kind == JsonKind::String).then_some(text.len()));
            assert_eq!(json.elements().count(), usize::from(kind == JsonKind::Array), "{text}");
            assert_eq!(json.members().count(), usize::from(kind == JsonKind::Object), "{text}");
            assert_eq!(
                json.get("null").map(|value| value.to_string()),
                (kind == JsonKind::Object).then(|| "1".to_owned())
            );
        }
    }
    assert_eq!((Json::NULL.kind(), Json::NULL.as_str()), (JsonKind::Null, "null"));
    let text = |raw: &'static str| Json::parse(raw.as_bytes()).unwrap().text().unwrap();
    assert!(text("\"\"").is_empty() && !text("\"\\u0000\"").is_empty());
    assert_eq!((text("\"a\\n\"").as_str(), text("\"an\"").as_str()), (None, Some("an")));
    assert_eq!(text("\"a\\n\"").to_cow(), "a\n");
    assert!(text("\"\\u0061\"") == text("\"a\"") && text("\"\\u0061\"") != text("\"b\""));
    let mut memory = [0; 2];
    assert_eq!(text("\"\\u00e9\"").decode_into(&mut memory), Ok("\u{e9}"));
    let too_large = rigline::json::write::TooLarge { needed: 3, capacity: 2 };
    assert_eq!(text("\"\u{20ac}\"").decode_into(&mut memory), Err(too_large));
}

#[test]
fn each_fault_is_named_with_its_place() {
    use SyntaxErrorKind::{
        BadEscape, BadNumber, ControlCharacter, Empty, HeaderFraming, NotUtf8, TrailingData, UnexpectedByte,
        UnexpectedEnd,
    };
    let faults: &[(&[u8], SyntaxErrorKind, usize)] = &[
        (b"", Empty, 0),
        (b" ", UnexpectedEnd, 1),
        (b"\"a", UnexpectedEnd, 2),
        (b"[1,", UnexpectedEnd, 3),
        (b"{\"a\":", UnexpectedEnd, 5),
        (b"{\"a\":1", UnexpectedEnd, 6),
        (b"{\"a\"", UnexpectedEnd, 4),
        (b"{\"a\":tru", UnexpectedEnd, 8),
        (b"{\"a\":-", UnexpectedEnd, 6),
        (b"\"\\u12", UnexpectedEnd, 5),
        (b"\"\\", UnexpectedEnd, 2),
        (b"{\"a\":\"b\\", UnexpectedEnd, 8),
        (b"[", UnexpectedEnd, 1),
        (b"{", UnexpectedEnd, 1),
        (b"{\"a\":1,", UnexpectedEnd, 7),
        (b"1e", UnexpectedEnd, 2),
        (b"{\"a\":1,}", UnexpectedByte, 7),
        (b"{\"a\":[1,]}", UnexpectedByte, 8),
        (b"{,}", UnexpectedByte, 1),
        (b"{\"a\" 1}", UnexpectedByte, 5),
        (b"{\"a\":1 2}", UnexpectedByte, 7),
        (b"[1 2]", UnexpectedByte, 3),
        (b"[1}", UnexpectedByte, 2),
        (b"trux", UnexpectedByte, 3),
        (b"{} {}", TrailingData, 3),
        (b"\"a\nb\"", ControlCharacter, 2),
        (b"\"\\x41\"", BadEscape, 2),
        (b"\"\\u12G4\"", BadEscape, 5),
        (b"{\"a\":01}", BadNumber, 6),
        (b"{\"a\":+1}", BadNumber, 5),
        (b"{\"a\":1.}", BadNumber, 7),
        // A whole text that ends within a character is not UTF-8.
        (b"\"\xc3", NotUtf8, 1),
        (b"\"\xf0\x9f\x9a", NotUtf8, 1),
        (b"\"\xc3\xa9\xe2\x82", NotUtf8, 3),
        (b"\"\xc3\xa9\xff\xc3\xa9\"", NotUtf8, 3),
        (b"{\"\xff\":1}", NotUtf8, 2),
        (b"[\xff]", NotUtf8, 1),
        // Outside of a string a whole character is only a byte of the wrong kind.
        (b"[\xc2\xa0]", UnexpectedByte, 1),
        (b"1\xc2\xa0", UnexpectedByte, 1),
        (b"1\xff", NotUtf8, 1),
        (b"Content-Length: 2", HeaderFraming, 0),
        (b" content-length:2", HeaderFraming, 1),
        (b"Content: 2", UnexpectedByte, 0),
        (b"[\"Content-Length:\", C]", UnexpectedByte, 20),
    ];
    for (text, kind, offset) in faults {
        assert_eq!(check(text), Err(SyntaxError { kind: *kind, offset: *offset }), "{}", text.escape_ascii());
        use_in_every_way(text);
    }
}

/// Names are compared by words of eight bytes on some processors.
#[test]
fn a_watched_member_is_found_by_its_whole_name_at_any_length() {
    const LETTERS: &str = "abcdefghijklmnopqrst";
    for length in 1..=LETTERS.len() {
        let name = &LETTERS[..length];
        let keys: &'static [WatchedMember] = Box::leak(Box::new([WatchedMember::new(name, 0)]));
        let table: &'static WatchedMembers = Box::leak(Box::new(WatchedMembers::new(keys)));
        let first_escaped = format!("\\u0061{}", &name[1..]);
        let first_other = format!("z{}", &name[1..]);
        let last_other = format!("{}z", &name[..length - 1]);
        let prefixes = (0..=LETTERS.len()).map(|other| (LETTERS[..other].to_owned(), other == length));
        let others = [(first_escaped, true), (first_other, false), (last_other, false)];
        for (other, is_it) in prefixes.chain(others) {
            for (before, colon, after) in
                [("{\"", "\":", "}"), ("{\"", "\" : ", "}"), ("{\"\":[{}],\"", "\":", ",\"other\":\"and more of it\"}")]
            {
                let text = [before, &other, colon, "7", after].concat();
                let mut spans = [Span::default()];
                assert_eq!(scan(text.as_bytes(), table, &mut spans), Ok(()), "{text}");
                let found = &text[spans[0].range()];
                assert_eq!(found, if is_it { "7" } else { "" }, "{name} in {text}");
            }
        }
    }
}

static INNER: WatchedMembers = WatchedMembers::new(&[WatchedMember::new("b", 2), WatchedMember::new("", 3)]);
static OUTER: WatchedMembers =
    WatchedMembers::new(&[WatchedMember::new("a", 0), WatchedMember::new("name", 1).with_members(&INNER)]);

/// A scan that watches members says of a text what the check says, and finds the values that a view of it finds.
pub(crate) fn scans_as_it_is_checked(text: &[u8]) {
    let mut spans = [Span::default(); 4];
    let checked = check(text);
    assert_eq!(scan(text, &OUTER, &mut spans), checked, "{}", text.escape_ascii());
    if checked.is_ok() {
        let json = Json::parse(text).unwrap();
        let inner = |name: &str| json.get("name").and_then(|inner| inner.get(name));
        for (span, value) in spans.iter().zip([json.get("a"), json.get("name"), inner("b"), inner("")]) {
            let found = if span.is_absent() { None } else { text.get(span.range()) };
            assert_eq!(found, value.map(|value| value.as_bytes()), "{}", text.escape_ascii());
        }
    }
}

/// Whatever the text: nothing panics. What is checked is viewed; what is not is decoded all the
/// same.
fn use_in_every_way(text: &[u8]) {
    scans_as_it_is_checked(text);
    if let Ok(json) = Json::parse(text) {
        view(json, 0);
    }
    let _ = de::from_checked::<IgnoredAny>(&mut text.to_vec());
    let _ = de::from_checked::<serde_json::Value>(&mut text.to_vec());
    let _ = de::from_checked::<BTreeMap<&str, f64>>(&mut text.to_vec());
    let _ = de::from_checked::<BTreeMap<i32, Option<bool>>>(&mut text.to_vec());
    let _ = de::from_checked::<(i8, u64, char)>(&mut text.to_vec());
    let _ = de::from_checked::<Vec<&str>>(&mut text.to_vec());
    let _ = de::from_checked::<&str>(&mut text.to_vec());
    let _ = de::from_checked::<f32>(&mut text.to_vec());
    let _ = de::from_checked::<i128>(&mut text.to_vec());
    let _ = de::from_checked::<rigline::json::Decimal<3>>(&mut text.to_vec());
    let _ = de::from_checked::<rigline::json::RawJson<'_>>(&mut text.to_vec());
    let _ = de::from_checked::<Vec<Shape<'_>>>(&mut text.to_vec());
}

#[derive(serde::Deserialize)]
#[allow(dead_code, reason = "read by the decoder only")]
enum Shape<'a> {
    None,
    One(u8),
    Two(&'a str, i16),
    Named { a: Option<&'a str>, b: [u8; 2] },
}

fn view(json: Json<'_>, depth: usize) {
    assert!(check(json.as_bytes()).is_ok());
    let _ = (json.bool(), json.is_null(), json.number(), json.get("a"), json.to_string());
    if let Some(text) = json.text() {
        let decoded: String = text.chars().collect();
        let mut room = vec![0; text.raw().len()];
        assert_eq!(text.decode_into(&mut room), Ok(&*decoded));
        assert!(text == *decoded);
        assert_eq!(text.as_str().is_some(), !text.raw().contains('\\'));
        // Where serde_json can decode it (it refuses lone surrogates), it says the same.
        if let Ok(theirs) = serde_json::from_slice::<String>(json.as_bytes()) {
            assert_eq!(decoded, theirs);
        }
    }
    if depth < 200 {
        for element in json.elements() {
            view(element, depth + 1);
        }
        for (name, value) in json.members() {
            let _ = name.to_string();
            view(value, depth + 1);
        }
    }
    match json.kind() {
        JsonKind::Array | JsonKind::Object => {
            let theirs: Option<serde_json::Value> = serde_json::from_slice(json.as_bytes()).ok();
            if let Some(array) = theirs.as_ref().and_then(|value| value.as_array()) {
                assert_eq!(json.elements().count(), array.len());
            }
        }
        _ => assert_eq!((json.elements().count(), json.members().count()), (0, 0)),
    }
}
