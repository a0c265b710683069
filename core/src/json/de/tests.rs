use super::*;
use proptest::prelude::*;
use serde::de::{self, DeserializeOwned};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::{
    borrow::{Cow, ToOwned},
    boxed::Box,
    collections::BTreeMap,
    fmt::Debug,
    format,
    string::{String, ToString},
    vec,
    vec::Vec,
};

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, DecodeError> {
    from_checked(&mut Vec::from(text))
}

/// Both this decoder and `serde_json` take the text, for the same value.
#[track_caller]
fn same<T: DeserializeOwned + PartialEq + Debug>(texts: &[&str]) {
    for text in texts {
        let expected: T = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(decode::<T>(text), Ok(expected), "{text}");
    }
}

/// Both refuse it.
#[track_caller]
fn refused<T: DeserializeOwned + Debug>(texts: &[&str]) {
    for text in texts {
        serde_json::from_str::<T>(text).expect_err(text);
        decode::<T>(text).expect_err(text);
    }
}

#[derive(Deserialize, Debug, PartialEq)]
struct Unit;
#[derive(Deserialize, Debug, PartialEq)]
struct Newtype(u16);
#[derive(Deserialize, Debug, PartialEq)]
struct Pair(u8, String);
#[derive(Deserialize, Debug, PartialEq)]
struct Inner {
    b: i8,
    #[serde(default)]
    name: String,
}
#[derive(Deserialize, Debug, PartialEq)]
struct Outer {
    a: Vec<Inner>,
    o: Option<Box<Outer>>,
    #[serde(rename = "sch\u{f6}n \"quoted\"", default)]
    odd: Option<f64>,
}
#[derive(Deserialize, Debug, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Off,
    VeryFast,
    Level(u8),
    Range(u8, u8),
    Custom { speed: u16, label: String },
    Nested(Box<Mode>),
}
#[derive(Deserialize, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
struct Strict {
    x: u8,
}
#[derive(Deserialize, Debug, PartialEq)]
#[serde(tag = "type")]
enum Internal {
    Point { x: f32, y: i64 },
    Name { name: String },
}
#[derive(Deserialize, Debug, PartialEq)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    One(u8),
    Two { a: String },
    Unit,
}
#[derive(Deserialize, Debug, PartialEq)]
#[serde(untagged)]
enum Untagged {
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Untagged>),
    Object { k: Box<Untagged> },
    Nothing,
}
#[derive(Deserialize, Debug, PartialEq)]
struct Flat {
    id: u32,
    #[serde(flatten)]
    inner: Inner,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[test]
fn values_are_those_of_serde_json() {
    same::<bool>(&["true", " false\n"]);
    same::<()>(&["null"]);
    same::<Unit>(&["null"]);
    same::<Newtype>(&["7"]);
    same::<Pair>(&["[1,\"x\"]", " [ 1 , \"\\n\" ] "]);
    same::<(u8, (), [bool; 2])>(&["[255,null,[true,false]]"]);
    same::<Option<Option<u8>>>(&["null", "3"]);
    same::<char>(&["\"x\"", "\"\\u20ac\"", "\"\\ud83d\\ude00\"", "\"\u{1f600}\""]);
    same::<f32>(&["0", "-0.0", "1.5", "3.4e38", "1e-46", "16777217"]);
    same::<f64>(&["0", "-0", "1.5E+3", "1e-400", "0.1", "123456789012345678901234567890", "1.7976931348623157e308"]);
    same::<Vec<i16>>(&["[]", "[ ]", "[1]", "[ 1 , -2,\t3 ]"]);
    same::<Outer>(&[
        r#"{"a":[],"o":null}"#,
        r#" { "o" : { "a" : [ ] } , "a" : [ { "b" : -1 , "name" : "\u003c\"\\\/\b\f\n\r\t" } ] } "#,
        r#"{"sch\u00f6n \"quoted\"":1.25,"\u0061":[{"b":1,"x":[{"y":"]}"},[[]],"\\",null,-1e5]}]}"#,
        "[[],null,2.5]",
    ]);
    same::<Mode>(&[
        r#""off""#,
        r#""very-f\u0061st""#,
        r#"{"off":null}"#,
        r#"{"level":3}"#,
        r#"{ "range" : [1,2] }"#,
        r#"{"custom":{"label":"\"","speed":9,"ignored":{}}}"#,
        r#"{"custom":[9,"x"]}"#,
        r#"{"nested":{"nested":"off"}}"#,
    ]);
    same::<BTreeMap<i8, Mode>>(&[r#"{"-128":"off","127":{"level":1}}"#, "{}"]);
    same::<BTreeMap<u64, bool>>(&[r#"{"18446744073709551615":true,"0":false}"#]);
    same::<BTreeMap<i128, Newtype>>(&[r#"{"-170141183460469231731687303715884105728":1}"#]);
    same::<BTreeMap<bool, u8>>(&[r#"{"true":1,"false":2}"#]);
    same::<BTreeMap<char, u8>>(&[r#"{"\n":1}"#]);
    same::<BTreeMap<String, u8>>(&[r#"{"a\tb":1,"":2,"a\u0009b":3}"#]);
    same::<Result<u8, String>>(&[r#"{"Ok":1}"#, r#"{"Err":"e"}"#]);
    same::<core::time::Duration>(&[r#"{"secs":1,"nanos":2}"#]);
    same::<core::ops::Range<u8>>(&[r#"{"start":1,"end":2}"#]);
    same::<core::net::IpAddr>(&[r#""::1""#]);
    same::<std::ffi::CString>(&["\"hi\"", "[104,105]", "[]"]);
    same::<Cow<'static, str>>(&[r#""\u0000""#]);
    same::<serde::de::IgnoredAny>(&["[[[{\"a\":[1,\"]\"]}]]]"]);
}

#[test]
fn serdes_other_tags_work_with_an_allocator() {
    same::<Internal>(&[
        r#"{"type":"Point","x":1.5,"y":-3}"#,
        r#"{"y":2,"x":1,"type":"Point"}"#,
        r#"{"name":"\n","t\u0079pe":"Name"}"#,
    ]);
    same::<Adjacent>(&[r#"{"t":"One","c":3}"#, r#"{"c":{"a":"\""},"t":"Two"}"#, r#"{"t":"Unit"}"#]);
    same::<Untagged>(&["1", "-1", "1.0", "1e2", "\"\\n\"", "[1,[\"x\"]]", r#"{"k":{"k":2.5}}"#, "null"]);
    same::<Flat>(&[r#"{"more":[1,{"x":null}],"id":7,"name":"a\\b","b":2,"z":-0}"#]);
}

#[test]
fn what_serde_json_refuses_is_refused() {
    refused::<bool>(&["1", "null", "\"true\"", "tru", "truex", ""]);
    refused::<()>(&["0", "[]", "nul", "{}"]);
    refused::<char>(&["\"\"", "\"ab\"", "1"]);
    refused::<f64>(&["1e400", "-1e400", "\"1\"", "null", "[]"]);
    refused::<u8>(&["\"1\"", "null", "true", "[1]", "{}", "-1", "256"]);
    refused::<Pair>(&["[1]", "[1,\"x\",2]", "{}", "[]", "1"]);
    refused::<Vec<u8>>(&["{}", "1", "\"\"", "[1,]", "[,1]", "[1 2]", "[1", "["]);
    refused::<Mode>(&["{}", "\"level\"", "\"none\"", r#"{"off":1}"#, r#"{"off":null,"level":1}"#, "1", "null", "[]"]);
    refused::<(u8, u16)>(&[
        "[01,1]",
        "[1,01]",
        "[00,1]",
        "[001 ,1]",
        "[1,10000 0]",
        "[1,1x]",
        "[1,]",
        "[,1]",
        "[1,-]",
        "[1,00]",
    ]);
    refused::<Inner>(&[r#"{,"b":1}"#, r#"{"b":1"name":"x"}"#, r#"{"b":1,,"name":"x"}"#, r#"{"b":1,}"#, r#"{"b",1}"#]);
    refused::<BTreeMap<String, u8>>(&[
        r#"{,"b":1}"#,
        r#"{"b":1"c":1}"#,
        r#"{"b":1,,"c":1}"#,
        r#"{"b":1,}"#,
        r#"{"b",1}"#,
    ]);
    refused::<BTreeMap<u8, bool>>(&[
        r#"{"256":true}"#,
        r#"{"1.0":true}"#,
        r#"{"":true}"#,
        r#"{"-":true}"#,
        r#"{"01":true}"#,
    ]);
    refused::<Strict>(&[r#"{"x":1,"y":2}"#, r#"{"x":1,"x":2}"#, "{}", r#"{"x":1 "y":2}"#, r#"{"x":1"#, r#"{"x" 1}"#]);
    refused::<String>(&["\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u123g\"", "1", "\"a\" 1"]);
}

#[test]
fn a_borrowed_str_is_decoded_where_it_stood() {
    #[derive(Deserialize)]
    struct Borrowed<'a> {
        s: &'a str,
        #[serde(with = "bytes")]
        b: &'a [u8],
        o: Option<&'a str>,
        #[serde(borrow)]
        c: Cow<'a, str>,
        #[serde(borrow)]
        m: BTreeMap<&'a str, &'a str>,
    }
    mod bytes {
        pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<&'de [u8], D::Error> {
            serde::Deserialize::deserialize(deserializer)
        }
    }
    let mut text =
        r#"{"s":"a\n\u003c\ud83d\ude00\u20ac\u00e9z","b":"\"\u0000","o":"pl\u0061in","c":"\t","m":{"\\":"\/","k":""}}"#
            .to_owned()
            .into_bytes();
    let within = text.as_ptr_range();
    let value: Borrowed<'_> = from_checked(&mut text).unwrap();
    assert_eq!(value.s, "a\n<\u{1f600}\u{20ac}\u{e9}z");
    assert_eq!(value.b, b"\"\0");
    assert_eq!(value.o, Some("plain"));
    assert!(matches!(value.c, Cow::Borrowed("\t")));
    assert_eq!(value.m, BTreeMap::from([("\\", "/"), ("k", "")]));
    assert!(within.contains(&value.s.as_ptr()) && within.contains(&value.b.as_ptr()));
}

#[test]
fn a_lone_surrogate_is_no_text() {
    for text in [
        r#""\ud800""#,
        r#""\udc00""#,
        r#""x\ud800\n""#,
        r#""\ud800\ud800""#,
        r#""\udc00\ud800""#,
        r#""\uD800x""#,
        r#""\ud800\u0041""#,
    ] {
        assert_eq!(decode::<String>(text).map_err(|error| error.kind()), Err(DecodeErrorKind::LoneSurrogate), "{text}");
    }
    // Ignored, it harms nobody.
    assert_eq!(decode::<Inner>(r#"{"b":1,"x":"\ud800"}"#).unwrap().b, 1);
    // Nor does a name, which is no field's; where there are no others than the known ones, it is
    // one too many.
    for text in [r#"{"\ud800":2,"b":1}"#, r#"{"b":1,"b\udc00":{"\ud800":[]}}"#, r#"{"\ud800" : 0, "\ud800":0,"b":1}"#] {
        assert_eq!(decode::<Inner>(text).unwrap().b, 1, "{text}");
    }
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[allow(dead_code, reason = "the test looks at the error alone")]
        b: Option<u8>,
    }
    let error = decode::<Strict>(r#"{"\ud800":2}"#).unwrap_err();
    assert_eq!(error.to_string(), "unknown member; known: b");
    assert_eq!(
        decode::<BTreeMap<String, u8>>(r#"{"\ud800":2}"#).map_err(|error| error.kind()),
        Err(DecodeErrorKind::LoneSurrogate),
        "a map has to keep it"
    );
}

macro_rules! width {
    ($($int:ident)*) => {$(
        for value in [$int::MIN, $int::MAX, 0, 1, 100] {
            // `-0` is checked elsewhere; `value / 10` with a digit behind the point spells the same
            // number.
            let mut spellings = vec![format!("{value}"), format!("{value}.0"), format!("{value}.000e+0"), format!("{value}E0")];
            if value % 10 == 0 {
                spellings.push(format!("{}e1", value / 10));
            }
            for text in spellings {
                assert_eq!(decode::<$int>(&text), Ok(value), "{text}");
            }
        }
        assert_eq!(decode::<$int>("1000e-3"), Ok(1));
        assert_eq!(decode::<$int>("-0"), Ok(0));
        let named = format!("expected an integer from {} to {}", $int::MIN, $int::MAX);
        // No bound of a type ends in 9.
        let beyond = |text: String| format!("{}{}", &text[..text.len() - 1], text[text.len() - 1..].parse::<u8>().unwrap() + 1);
        let low = if $int::MIN == 0 { "-1".to_owned() } else { beyond($int::MIN.to_string()) };
        for text in [low, beyond($int::MAX.to_string()), "1e999999999999".into(), "1.5".into()] {
            assert_eq!(decode::<$int>(&text).unwrap_err().to_string(), named, "{text}");
        }
        for (text, came) in [
            ("\"1\"", "the text \"1\""),
            ("null", "null"),
            ("true", "true"),
            ("[1]", "an array"),
            ("{}", "an object"),
            (" \"0123456789012345678901234567890123456789\"", "the text \"01234567890123456789012345678...\""),
            ("\"0123456789012345678901234567µµµ\"", "the text \"0123456789012345678901234567...\""),
        ] {
            assert_eq!(decode::<$int>(text).unwrap_err().to_string(), format!("{named}; got {came}"), "{text}");
        }
    )*};
}

#[test]
fn every_integer_width_is_exact_and_names_its_bounds() {
    width!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 usize isize);
}

#[test]
fn errors_name_the_place_and_what_is_expected_there() {
    #[derive(Deserialize, Debug)]
    #[allow(dead_code)]
    struct Args {
        #[serde(default)]
        samples: Option<core::num::NonZeroU16>,
        #[serde(default)]
        a: Vec<Inner>,
        #[serde(default)]
        m: BTreeMap<String, Vec<u8>>,
        #[serde(default)]
        k: BTreeMap<u8, u8>,
        #[serde(default)]
        mode: Option<Mode>,
        #[serde(default)]
        three: Option<[u8; 3]>,
        #[serde(default)]
        strict: Option<Strict>,
        #[serde(default)]
        flag: bool,
        #[serde(default)]
        unit: (),
        #[serde(default)]
        letter: char,
        #[serde(default)]
        small: f32,
    }
    for (text, error) in [
        (r#"{"samples":65536}"#, "args.samples: expected an integer from 0 to 65535"),
        (r#"{"samples":0}"#, "args.samples: this value is not accepted here"),
        (r#"{"\u0073amples":"1"}"#, r#"args.samples: expected an integer from 0 to 65535; got the text "1""#),
        (r#"{"a":[{"b":1},{"b":2},{"b":200}]}"#, "args.a[2].b: expected an integer from -128 to 127"),
        (r#"{"a":[{"b":1,"name":null}]}"#, "args.a[0].name: expected a string; got null"),
        (r#"{"a":[{}]}"#, "args.a[0].b: required, but missing"),
        (r#"{"a":[3]}"#, "args.a[0]: expected an object; got 3"),
        (r#"{"a":{}}"#, "args.a: expected an array; got an object"),
        (r#"{"a":[],"a":[]}"#, "args.a: given more than once"),
        (r#"{"a":[[1,"x",3]]}"#, "args.a[0]: expected an array of 2 elements"),
        (r#"{"m":{"x":[1,256]}}"#, "args.m.*[1]: expected an integer from 0 to 255"),
        (r#"{"k":{"x":1}}"#, "args.k.*: expected an integer from 0 to 255 as the member name"),
        (r#"{"mode":"fast"}"#, "args.mode: expected one of: off, very-fast, level, range, custom, nested"),
        (r#"{"mode":{"custom":{"speed":-1}}}"#, "args.mode.custom.speed: expected an integer from 0 to 65535"),
        (r#"{"mode":{"range":[1]}}"#, "args.mode.range: expected an array of 2 elements"),
        (r#"{"mode":{"range":[1,-1]}}"#, "args.mode.range[1]: expected an integer from 0 to 255"),
        (r#"{"mode":"level"}"#, "args.mode: expected an object of one member"),
        (r#"{"mode":{}}"#, "args.mode: expected an object of one member"),
        (r#"{"three":[1,2]}"#, "args.three: expected an array of 3 elements"),
        (r#"{"three":[1,2,3,4]}"#, "args.three: expected an array of 3 elements"),
        (r#"{"three":[1,2,[]]}"#, "args.three[2]: expected an integer from 0 to 255; got an array"),
        (r#"{"strict":{"x":1,"y":1}}"#, "args.strict: y is an unknown member; known: x"),
        (r#"{"flag":1}"#, "args.flag: expected true or false; got 1"),
        (r#"{"unit":1}"#, "args.unit: expected null; got 1"),
        (r#"{"letter":"ab"}"#, "args.letter: expected a string of one character"),
        (r#"{"small":1e39}"#, "args.small: expected a number from -3.4028235e38 to 3.4028235e38"),
        (r#"{"a":[{"b":1,"name":"\ud800"}]}"#, "args.a[0].name: a lone surrogate"),
        ("3", "args: expected an object; got 3"),
        ("null", "args: expected an object; got null"),
        (r#"{"flag":tru}"#, "args.flag: the text is not JSON"),
    ] {
        assert_eq!(decode::<Args>(text).unwrap_err().display_in("args").to_string(), error, "{text}");
    }
    assert_eq!(decode::<Args>("3").unwrap_err().to_string(), "expected an object; got 3");
    assert_eq!(decode::<Args>(r#"{"a":[7]}"#).unwrap_err().to_string(), "a[0]: expected an object; got 7");
    assert_eq!(decode::<Internal>(r#"{"type":"X"}"#).unwrap_err().to_string(), "*: expected one of: Point, Name");
    assert_eq!(decode::<Internal>(r#"{"x":1}"#).unwrap_err().to_string(), "type: required, but missing");
    assert_eq!(decode::<Untagged>("true").unwrap_err().kind(), DecodeErrorKind::Refused);
}

#[test]
fn what_was_not_given_is_empty() {
    assert_eq!(from_empty(), Ok(()));
    assert_eq!(from_empty(), Ok(Unit));
    assert_eq!(from_empty(), Ok(None::<Strict>));
    assert_eq!(from_empty(), Ok(BTreeMap::<String, u8>::new()));
    assert_eq!(from_empty(), Ok(json!({})));
    #[derive(Deserialize, Debug, PartialEq)]
    struct Members(BTreeMap<String, u8>);
    assert_eq!(from_empty(), Ok(Members(BTreeMap::new())));
    let no_number = from_empty::<super::super::decimal::Decimal<0>>().unwrap_err();
    assert_eq!(no_number.to_string(), "expected an integer from -2147483648 to 2147483647");
    assert_eq!(from_empty::<super::super::raw::RawJson<'_>>().map(|raw| raw.as_str()), Ok("{}"));
    let missing = from_empty::<Strict>().unwrap_err();
    assert_eq!(missing.display_in("args").to_string(), "args.x: required, but missing");
    assert!(from_empty::<u8>().is_err() && from_empty::<String>().is_err() && from_empty::<Mode>().is_err());
}

#[test]
fn a_long_path_keeps_its_inner_end() {
    let error = decode::<Vec<Vec<Vec<Vec<Vec<Vec<Vec<u8>>>>>>>>("[[],[[[[[[0,\"\"]]]]]]]").unwrap_err();
    assert_eq!(
        error.display_in("args").to_string(),
        "args...[0][0][1]: expected an integer from 0 to 255; got the text \"\""
    );
    assert_eq!(error.path().count(), MAX_PATH);
}

#[test]
fn rules_name_the_value_and_the_bound() {
    struct Ruled<T>(T);
    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Ruled<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            T::deserialize(deserializer).map(Self).and_then(|_| Err(rule(const { &["is wrong"] })))
        }
    }
    fn broken<T: DeserializeOwned>(value: &str) -> String {
        decode::<BTreeMap<String, Ruled<T>>>(&format!("{{\"\":{value}}}")).err().unwrap().to_string()
    }
    for (error, text) in [
        (broken::<u8>("0"), "*: 0 is wrong"),
        (broken::<u8>(" 1e2 "), "*: 1e2 is wrong"),
        (broken::<i16>("-0"), "*: -0 is wrong"),
        (broken::<u64>("18446744073709551615"), "*: 18446744073709551615 is wrong"),
        (broken::<i64>("-9223372036854775808"), "*: -9223372036854775808 is wrong"),
        (broken::<u128>("340282366920938463463374607431768211455"), "*: 34028236692093846346337460743... is wrong"),
        (broken::<f64>("0.10"), "*: 0.10 is wrong"),
        (broken::<super::super::decimal::Decimal<3>>("3.3"), "*: 3.3 is wrong"),
        (broken::<String>("\"\\u00e9x\""), "*: length 2 is wrong"),
        (broken::<String>("\"\""), "*: length 0 is wrong"),
        (broken::<Vec<u8>>("[1,2,3]"), "*: length 3 is wrong"),
        (broken::<Vec<Vec<u8>>>("[[1,2,3]]"), "*: length 1 is wrong"),
        (broken::<BTreeMap<String, u8>>("{\"a\":1,\"b\":2}"), "*: length 2 is wrong"),
    ] {
        assert_eq!(error, text);
    }
    let by_hand = DecodeError::rule("is below the minimum 1", "0").within(Segment::Field("samples"));
    assert_eq!(by_hand.display_in("args").to_string(), "args.samples: 0 is below the minimum 1");
    assert_eq!((by_hand.kind(), by_hand.found()), (DecodeErrorKind::Rule("is below the minimum 1"), "0"));
    assert!(size_of::<DecodeError>() < 120);
}

#[test]
fn a_wrong_value_is_kept_whole_up_to_the_limit_and_else_cut_between_characters() {
    for (found, kept) in [
        ("x".repeat(MAX_FOUND), "x".repeat(MAX_FOUND)),
        ("x".repeat(MAX_FOUND + 1), "x".repeat(MAX_FOUND - 3) + "..."),
        ("\u{20ac}".repeat(10) + "xx", "\u{20ac}".repeat(10) + "xx"),
        ("\u{20ac}".repeat(11), "\u{20ac}".repeat(9) + "..."),
        ("xx".to_owned() + &"\u{20ac}".repeat(11), "xx".to_owned() + &"\u{20ac}".repeat(9) + "..."),
        ("x".to_owned() + &"\u{20ac}".repeat(11), "x".to_owned() + &"\u{20ac}".repeat(9) + "..."),
    ] {
        assert_eq!(DecodeError::rule("is wrong", &found).found(), kept);
        let error = decode::<Strict>(&format!("{{\"{found}\":1}}")).unwrap_err();
        assert_eq!(error.to_string(), format!("{kept} is an unknown member; known: x"));
    }
}

#[test]
fn a_text_that_is_none_of_the_allowed_is_named_with_its_member() {
    #[derive(Debug)]
    struct Choice;
    impl<'de> Deserialize<'de> for Choice {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            <&str>::deserialize(deserializer)?;
            Err(rule(const { &["on", "off"] }))
        }
    }
    #[derive(Deserialize, Debug)]
    #[allow(dead_code, reason = "the test looks at the error alone")]
    struct Args {
        mode: Choice,
    }
    assert_eq!(decode::<Choice>("\"x\"").unwrap_err().to_string(), "unknown `x`: expected one of on, off");
    let error = decode::<Args>(r#"{"mode":"x"}"#).unwrap_err();
    assert_eq!(error.to_string(), "mode: unknown mode `x`: expected one of on, off");
    let error = decode::<[Choice; 1]>(r#"["x"]"#).unwrap_err();
    assert_eq!(error.to_string(), "[0]: unknown `x`: expected one of on, off");
}

#[test]
fn a_value_that_its_type_does_not_take_is_named_by_its_kind() {
    #[derive(Debug)]
    struct TakesNothing;
    impl de::Visitor<'_> for TakesNothing {
        type Value = Self;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("nothing")
        }
    }
    #[derive(Debug)]
    struct ByKind;
    impl<'de> Deserialize<'de> for ByKind {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(TakesNothing).map(|_| Self)
        }
    }
    #[derive(Debug)]
    struct Optional;
    impl<'de> Deserialize<'de> for Optional {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_option(TakesNothing).map(|_| Self)
        }
    }
    #[derive(Debug)]
    struct Letter;
    impl<'de> Deserialize<'de> for Letter {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_char(TakesNothing).map(|_| Self)
        }
    }
    for (text, kind) in [
        ("true", "a boolean"),
        ("false", "a boolean"),
        ("1", "such a number"),
        ("-1", "such a number"),
        ("1.5", "such a number"),
        ("\"x\"", "a string"),
        ("null", "null"),
        ("[1]", "an array"),
        ("{\"x\":1}", "an object"),
    ] {
        assert_eq!(decode::<ByKind>(text).unwrap_err().to_string(), format!("{kind} is not accepted here"), "{text}");
    }
    assert_eq!(DecodeErrorKind::Unexpected("null").to_string(), "null is not accepted here");
    assert_eq!(decode::<Optional>("null").unwrap_err().to_string(), "null is not accepted here");
    assert_eq!(decode::<Letter>("\"x\"").unwrap_err().to_string(), "a string is not accepted here");
}

#[test]
fn neither_a_decimal_nor_json_text_is_the_name_of_a_member() {
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct AnyText;
    impl<'de> Deserialize<'de> for AnyText {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            super::super::raw::RawJson::deserialize(deserializer).map(|_| Self)
        }
    }
    for error in [
        decode::<BTreeMap<super::super::decimal::Decimal<3>, u8>>(r#"{"1":1}"#).err(),
        decode::<BTreeMap<AnyText, u8>>(r#"{"1":1}"#).err(),
    ] {
        assert_eq!(error.unwrap().to_string(), "*: a member name is not accepted here");
    }
    #[derive(Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Channel(u8);
    assert_eq!(decode::<BTreeMap<Channel, u8>>(r#"{"1":2}"#), Ok(BTreeMap::from([(Channel(1), 2)])));
}

#[test]
fn a_visitor_gets_names_of_fields_and_variants_as_bytes_and_no_size() {
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Bytes(Vec<u8>);
    impl<'de> Deserialize<'de> for Bytes {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_identifier(BytesOnly)
        }
    }
    struct BytesOnly;
    impl de::Visitor<'_> for BytesOnly {
        type Value = Bytes;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("bytes")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
            Ok(Bytes(bytes.to_vec()))
        }
    }
    /// A struct's names with what its size is said to be, or the name of a variant.
    #[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Names<const IS_ENUM: bool>(Vec<Bytes>, Option<usize>);
    impl<'de, const IS_ENUM: bool> Deserialize<'de> for Names<IS_ENUM> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            if IS_ENUM {
                deserializer.deserialize_enum("Names", &["on", "off"], NamesOnly)
            } else {
                deserializer.deserialize_struct("Names", &["a", "b"], NamesOnly)
            }
        }
    }
    struct NamesOnly<const IS_ENUM: bool>;
    impl<'de, const IS_ENUM: bool> de::Visitor<'de> for NamesOnly<IS_ENUM> {
        type Value = Names<IS_ENUM>;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("names")
        }

        fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let (mut names, size) = (Vec::new(), map.size_hint());
            while let Some((name, de::IgnoredAny)) = map.next_entry()? {
                names.push(name);
            }
            Ok(Names(names, size))
        }

        fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<Self::Value, A::Error> {
            let (name, content) = data.variant()?;
            de::VariantAccess::unit_variant(content)?;
            Ok(Names(vec![name], None))
        }
    }
    let names = |names: &[&str]| names.iter().map(|name| Bytes(name.as_bytes().to_vec())).collect::<Vec<_>>();
    assert_eq!(decode(r#"{"a":1,"\u0062":null}"#), Ok(Names::<false>(names(&["a", "b"]), None)));
    let variant = || Names::<true>(names(&["on"]), None);
    assert_eq!(decode("\"on\""), Ok(variant()));
    assert_eq!(decode(r#"{"on":null}"#), Ok(variant()));
    assert_eq!(decode(r#"{"on":1}"#), Ok(BTreeMap::from([(variant(), 1)])));
}

#[test]
fn an_enum_of_one_variant_names_it() {
    #[derive(Deserialize, Debug)]
    enum Single {
        Only,
    }
    assert_eq!(decode::<Single>("\"Other\"").unwrap_err().to_string(), "expected one of: Only");
    assert!(matches!(decode::<Single>("\"Only\""), Ok(Single::Only)));
}

#[test]
fn where_a_value_should_be_and_the_text_ends_it_is_not_json() {
    fn is_not_json<T: DeserializeOwned + Debug>() {
        for text in ["", " "] {
            let kind = decode::<T>(text).map_err(|error| error.kind());
            assert!(matches!(kind, Err(DecodeErrorKind::NotJson)), "{kind:?} of {}", core::any::type_name::<T>());
        }
    }
    is_not_json::<bool>();
    is_not_json::<u8>();
    is_not_json::<u64>();
    is_not_json::<f32>();
    is_not_json::<f64>();
    is_not_json::<[u8; 2]>();
    is_not_json::<Pair>();
    is_not_json::<Vec<u8>>();
    is_not_json::<BTreeMap<String, u8>>();
    is_not_json::<Inner>();
    is_not_json::<Mode>();
    is_not_json::<Value>();
    is_not_json::<Untagged>();
    is_not_json::<de::IgnoredAny>();
    is_not_json::<super::super::raw::RawJsonBuf>();
    let bytes = from_checked::<&[u8]>(&mut []).map_err(|error| error.kind());
    assert_eq!(bytes, Err(DecodeErrorKind::NotJson));
}

#[test]
fn a_length_that_does_not_fit_is_named_where_it_is_known() {
    assert_eq!(decode::<heapless::String<4>>("\"abcde\"").unwrap_err().to_string(), "length 5 does not fit");
    assert_eq!(decode::<heapless::Vec<u8, 2>>("[1,2,3]").unwrap_err().to_string(), "length 3 does not fit");
    let inner = decode::<(heapless::String<2>, u8)>(r#"["abc",1]"#).unwrap_err();
    assert_eq!(inner.to_string(), "[0]: length 3 does not fit");
    let of_unknown = DecodeError::new(DecodeErrorKind::Length(0)).within(Segment::Index(2));
    assert_eq!(of_unknown.display_in("args").to_string(), "args[2]: the wrong length");
    let of_unknown = DecodeError::rule("is not prime", "");
    assert_eq!(of_unknown.to_string(), "the value is not prime");
}

#[test]
fn a_text_of_ones_own_goes_through_serde() {
    #[derive(Debug)]
    struct Picky;
    impl<'de> Deserialize<'de> for Picky {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            <&str>::deserialize(deserializer)?;
            Err(expected(const { &["a duration like 1m30s"] }))
        }
    }
    assert_eq!(decode::<[Picky; 1]>("[\"x\"]").unwrap_err().to_string(), "[0]: expected a duration like 1m30s");
}

#[test]
fn depth_is_limited_exactly_and_skipping_is_not() {
    #[derive(Deserialize, Debug)]
    #[allow(dead_code)]
    struct Nest(Vec<Nest>);
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [1, 127, 128] {
        assert!(decode::<Nest>(&nested(depth)).is_ok(), "{depth}");
        assert!(decode::<Value>(&nested(depth)).is_ok(), "{depth}");
    }
    for depth in [129, 200_000] {
        assert_eq!(decode::<Nest>(&nested(depth)).unwrap_err().kind(), DecodeErrorKind::Depth, "{depth}");
        assert_eq!(decode::<Value>(&nested(depth)).unwrap_err().kind(), DecodeErrorKind::Depth, "{depth}");
    }
    // Containers that are closed again do not count.
    assert!(decode::<Value>(&format!("[{}[]]", "[],{},".repeat(300))).is_ok());
    let text = format!("{{\"x\":{},\"b\":1}}", nested(200_000));
    assert_eq!(decode::<Inner>(&text).unwrap().b, 1);
}

#[test]
fn strings_end_where_they_end_at_any_length() {
    for length in 0..40 {
        for (written, read) in [("", ""), ("\\\"", "\""), ("\\\\", "\\"), ("\\u00e9", "\u{e9}"), ("\u{e9}", "\u{e9}")] {
            let text = format!("[\"{0}{written}{0}\",1]", "x".repeat(length));
            let expected = format!("{0}{read}{0}", "x".repeat(length));
            assert_eq!(decode::<(String, u8)>(&text), Ok((expected, 1)), "{text}");
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Writes every UTF-16 unit as `\uXXXX`, in either case.
fn escaped(text: &str) -> String {
    let unit = |(at, unit)| if at % 2 == 0 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") };
    format!("\"{}\"", text.encode_utf16().enumerate().map(unit).collect::<String>())
}

proptest! {
    #[test]
    fn any_value_survives(value in value()) {
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            // As serde_json reads it: it may round the last digit of a float.
            let expected: Value = serde_json::from_str(&text).unwrap();
            assert_floats_close(&decode::<Value>(&text).unwrap(), &expected);
        }
    }

    #[test]
    fn any_string_survives(text in any::<String>()) {
        prop_assert_eq!(decode::<String>(&serde_json::to_string(&text).unwrap()), Ok(text.clone()));
        prop_assert_eq!(decode::<String>(&escaped(&text)), Ok(text.clone()));
        let object = format!("{{{}:{}}}", escaped(&text), json!(text));
        prop_assert_eq!(decode::<BTreeMap<String, String>>(&object), Ok(BTreeMap::from([(text.clone(), text)])));
    }

    #[test]
    fn no_bytes_panic(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        "[\\[\\]{}\",:0-9eE.+\\-ntfabox\\\\u ]{0,48}".prop_map(String::into_bytes),
    ]) {
        anything_goes(&bytes);
    }

    #[test]
    fn no_damage_panics(value in value(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        anything_goes(&bytes);
    }
}

fn anything_goes(bytes: &[u8]) {
    fn attempt<T: DeserializeOwned>(bytes: &[u8]) {
        let _ = from_checked::<T>(&mut bytes.to_vec()).map_err(|error| error.to_string());
    }
    attempt::<Value>(bytes);
    attempt::<Outer>(bytes);
    attempt::<Mode>(bytes);
    attempt::<Flat>(bytes);
    attempt::<(u8, i64, u128, f32, char)>(bytes);
    attempt::<BTreeMap<u8, String>>(bytes);
    attempt::<Vec<Untagged>>(bytes);
    attempt::<de::IgnoredAny>(bytes);
    attempt::<super::super::decimal::Decimal<3>>(bytes);
    let _ = from_checked::<Vec<super::super::raw::RawJson<'_>>>(&mut bytes.to_vec());
    // What serde_json takes, this decoder takes too.
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        assert_floats_close(&from_checked::<Value>(&mut bytes.to_vec()).unwrap(), &value);
    }
}

/// Equal, but for the last digit of a float: `serde_json` is exact only with its feature
/// `float_roundtrip`.
fn assert_floats_close(ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            ours.iter().zip(theirs).for_each(|(ours, theirs)| assert_floats_close(ours, theirs));
        }
        (Value::Object(ours), Value::Object(theirs)) if ours.keys().eq(theirs.keys()) => {
            ours.values().zip(theirs.values()).for_each(|(ours, theirs)| assert_floats_close(ours, theirs));
        }
        (Value::Number(ours), Value::Number(theirs)) if ours.is_f64() && theirs.is_f64() => {
            let (ours, theirs) = (ours.as_f64().unwrap(), theirs.as_f64().unwrap());
            assert!((ours - theirs).abs() <= ours.abs() * 1e-15 || (ours - theirs).abs() < 1e-300, "{ours} {theirs}");
        }
        _ => assert_eq!(ours, theirs),
    }
}

#[test]
fn an_array_or_object_without_an_end_is_itself_at_fault() {
    for error in [decode::<Vec<u8>>("[").err(), decode::<Outer>("{").err(), decode::<BTreeMap<String, u8>>("{").err()] {
        assert_eq!(error.unwrap().display_in("args").to_string(), "args: the text is not JSON");
    }
}

/// A text that was not checked may have no beginning of a character at all.
#[test]
fn a_long_text_that_is_no_utf_8_is_refused() {
    for text in [
        &[0xAE; 80][..],
        &[&[0x85][..], &[0xAE; 70], b"\"["].concat(),
        &[&b"{\"a\":\""[..], &[0xAE; 80], b"\"}"].concat(),
    ] {
        assert!(from_checked::<u8>(&mut text.to_vec()).is_err());
        assert!(from_checked::<(u8, u8)>(&mut text.to_vec()).is_err());
    }
}
