//! A decoder accepts and refuses the values that its schema accepts and refuses, but for the exceptions that
//! `rigline::params` names. The validator is the crate `jsonschema`.

#![allow(deprecated, reason = "the lint of what has no description")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::num::{NonZeroU8, NonZeroU64};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rigline::json::RawJsonBuf;
use rigline::json::{Decimal, RawJson};
use rigline::params::OutputValue;
use rigline::{GoDuration, Outputs, Params, Schema};
use serde_json::Value;

/// One value as an argument.
#[derive(Params)]
struct One<T> {
    #[allow(dead_code)]
    value: T,
}

/// How schema and decoder may differ on a value.
type Exception = fn(&Value) -> bool;

const NONE: Exception = |_| false;

macro_rules! agree {
    ($($type:ty, $exception:expr;)*) => {$({
        let validator = validator(&Schema::of::<One<$type>>());
        check(stringify!($type), &validator, $exception, |text| {
            rigline::json::de::from_checked::<One<$type>>(text).map(drop).map_err(|error| error.to_string())
        });
    })*};
}

#[test]
fn every_type_is_enforced_as_it_is_told() {
    let too_many_bytes: Exception = |value| strings(value).any(|text| text.len() > 4);
    agree! {
        bool, NONE;
        u8, NONE;
        u16, NONE;
        u32, NONE;
        u64, NONE;
        usize, NONE;
        i8, NONE;
        i16, NONE;
        i32, NONE;
        i64, NONE;
        isize, NONE;
        u128, beyond_64_bits;
        i128, beyond_64_bits;
        NonZeroU8, NONE;
        NonZeroU64, NONE;
        Decimal<0>, NONE;
        Decimal<1>, more_digits::<1>;
        Decimal<3>, more_digits::<3>;
        Decimal<9>, more_digits::<9>;
        f32, NONE;
        f64, NONE;
        char, NONE;
        &str, NONE;
        String, NONE;
        Cow<'_, str>, NONE;
        heapless::String<4>, too_many_bytes;
        Option<u8>, NONE;
        Option<Decimal<3>>, more_digits::<3>;
        Option<Mode>, NONE;
        Option<One<u8>>, NONE;
        Option<RawJson<'_>>, NONE;
        Option<Custom>, NONE;
        [u8; 2], NONE;
        [Option<bool>; 1], NONE;
        Vec<i8>, NONE;
        heapless::Vec<u8, 2>, NONE;
        Vec<heapless::Vec<heapless::String<4>, 2>>, too_many_bytes;
        BTreeMap<String, String>, NONE;
        BTreeMap<Cow<'_, str>, Vec<u8>>, NONE;
        heapless::LinearMap<&str, &str, 2>, NONE;
        heapless::LinearMap<heapless::String<4>, u8, 2>, too_many_bytes;
        GoDuration, |value| value.as_str().is_some_and(|text| text.len() > 6);
        RawJson<'_>, NONE;
        RawJsonBuf, NONE;
        Mode, NONE;
        One<One<bool>>, NONE;
        Box<One<u8>>, NONE;
        // Null for an argument that may be left out counts as absent.
        Bounded, |value| {
            value.get("b").is_some_and(more_digits::<2>)
                || value.as_object().is_some_and(|members| members.values().any(Value::is_null))
        };
        Closed, NONE;
        Percent, NONE;
    }
}

#[derive(Params)]
#[param(rename_all = "kebab-case")]
enum Mode {
    Fast,
    VerySlow,
    #[allow(dead_code)]
    #[param(skip)]
    Secret,
}

#[allow(dead_code)]
#[derive(Params)]
struct Bounded {
    #[param(minimum = 1, maximum = 3, default = 2)]
    a: u8,
    #[param(minimum = "-0.5", maximum = 127.25)]
    b: Option<Decimal<2>>,
    #[param(min_length = 1, max_length = 2, default)]
    key: String,
    #[param(max_length = 1, default)]
    value: Vec<u8>,
    #[param(min_length = 1)]
    #[serde(default)]
    map: Option<BTreeMap<String, Value1>>,
    #[param(minimum = 127.5, default = 1000)]
    float: f64,
}

/// Anything.
#[derive(Params)]
struct Value1(#[allow(dead_code)] RawJsonBuf);

#[allow(dead_code)]
#[derive(Params)]
#[param(deny_unknown_fields)]
struct Closed {
    a: Option<i8>,
    #[param(rename = "b")]
    other: bool,
}

#[derive(Params)]
struct Percent(
    #[allow(dead_code)]
    #[param(maximum = 100)]
    u8,
);

/// A type with a schema in words.
#[derive(Params)]
struct Custom(
    #[allow(dead_code)]
    #[param(schema = r#"{"type":"boolean"}"#)]
    bool,
);

/// Digits behind the point that a decimal has no room for: its schema has no `multipleOf`, which validators that compute in floats get wrong.
fn more_digits<const N: i32>(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| (number * 10_f64.powi(N)).fract() != 0.0)
}

/// The validator's numbers end there.
fn beyond_64_bits(value: &Value) -> bool {
    value.is_f64()
}

fn strings(value: &Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        Value::String(text) => Box::new(std::iter::once(text.as_str())),
        Value::Array(values) => Box::new(values.iter().flat_map(strings)),
        Value::Object(members) => {
            Box::new(members.iter().flat_map(|(name, value)| strings(value).chain([name.as_str()])))
        }
        _ => Box::new(std::iter::empty()),
    }
}

fn validator(schema: &Schema) -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&schema.to_string()).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
    jsonschema::draft202012::new(&schema).unwrap()
}

fn check(
    name: &str,
    validator: &jsonschema::Validator,
    exception: Exception,
    decode: impl Fn(&mut [u8]) -> Result<(), String>,
) {
    let (accepted, refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let agree = |text: &str| {
        // Neither side sees what is not JSON, or a number beyond all floats.
        let Ok(value) = serde_json::from_str::<Value>(text) else { return };
        let told = validator.is_valid(&value);
        let enforced = decode(&mut text.as_bytes().to_vec());
        let count = if told { &accepted } else { &refused };
        count.set(count.get() + 1);
        let excused = exception(value.get("value").unwrap_or(&Value::Null));
        assert!(
            told == enforced.is_ok() || excused,
            "{name}: the schema says {told}, the decoder {enforced:?}: {text}"
        );
    };
    for text in NOTABLE {
        agree(&format!("{{\"value\":{text}}}"));
    }
    agree("{}");
    agree("[]");
    agree(r#"{"value":1,"other":2}"#);
    let mut runner = TestRunner::new_with_rng(
        Config { cases: 200, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    runner
        .run(&json(), |text| {
            agree(&format!("{{\"value\":{text}}}"));
            Ok(())
        })
        .unwrap();
    assert!(accepted.get() > 0 && refused.get() > 0, "{name}: {} accepted, {} refused", accepted.get(), refused.get());
}

/// Values on both sides of each bound that there is.
const NOTABLE: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1",
    "1.0",
    "10e-1",
    "1e0",
    "0.5",
    "-0.5",
    "1e400",
    "2",
    "3",
    "4",
    "100",
    "101",
    "127",
    "128",
    "127.25",
    "127.26",
    "127.5",
    "127.49",
    "-128",
    "-129",
    "255",
    "256",
    "255.0",
    "256.0",
    "32767",
    "32768",
    "-32768",
    "-32769",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854777857",
    "18446744073709551615",
    "18446744073709553665",
    "3.4028234e38",
    "3.4028236e38",
    "-3.4028236e38",
    "1e300",
    "5e-324",
    "0.1",
    "0.001",
    "0.0001",
    "3.3",
    "3.300",
    "3.3001",
    "33e-1",
    "2147483.647",
    "2147483.648",
    "-2147483.648",
    "-2147483.649",
    "2.147483647",
    "2.147483648",
    "0.000000001",
    "0.0000000001",
    "214748364.7",
    "214748364.8",
    "\"\"",
    "\"a\"",
    "\"ab\"",
    "\"abcd\"",
    "\"abcde\"",
    "\"\u{e9}\"",
    "\"\\u00e9\\u00e9\\u00e9\"",
    "\"\u{1f600}\u{1f600}\"",
    "\"\\ud83d\\ude00\"",
    "\"fast\"",
    "\"very-slow\"",
    "\"VerySlow\"",
    "\"Secret\"",
    "\"secret\"",
    "{\"fast\":null}",
    "\"0\"",
    "\"+0\"",
    "\"1\"",
    "\"1m30s\"",
    "\"-1.5h\"",
    "\".5s\"",
    "\"1.s\"",
    "\".s\"",
    "\"s\"",
    "\"1d\"",
    "\"1\u{b5}s\"",
    "\"1\u{3bc}s\"",
    "\"1ms \"",
    "\"1s\\n\"",
    "[]",
    "[1]",
    "[1,2]",
    "[1,2,3]",
    "[null]",
    "[true]",
    "[-1,-128]",
    "[[]]",
    "[[\"a\",\"b\"]]",
    "[[\"a\",\"b\",\"c\"]]",
    "{}",
    "{\"value\":1}",
    "{\"value\":true}",
    "{\"value\":{\"value\":true}}",
    "{\"a\":\"b\"}",
    "{\"a\":1,\"b\":2}",
    "{\"abcde\":1}",
    "{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\"}",
    "{\"a\":1,\"b\":2,\"c\":3}",
    "{\"a\":4}",
    "{\"a\":null,\"b\":true}",
    "{\"b\":true}",
    "{\"b\":true,\"c\":1}",
    "{\"b\":-0.5}",
    "{\"b\":-0.51}",
    "{\"b\":127.25}",
    "{\"b\":127.26}",
    "{\"b\":0.125}",
    "{\"key\":\"\"}",
    "{\"key\":\"ab\"}",
    "{\"key\":\"abc\"}",
    "{\"key\":\"\u{e9}\u{e9}\"}",
    "{\"value\":[1,2]}",
    "{\"map\":{}}",
    "{\"map\":{\"a\":[]}}",
    "{\"map\":null}",
    "{\"float\":127.5}",
    "{\"float\":127.25}",
    "{\"float\":null}",
];

/// JSON of all sorts, drawn towards the notable.
fn json() -> impl Strategy<Value = String> {
    let number = (any::<i64>(), 0u32..64, 0usize..12).prop_map(|(digits, shift, places)| {
        let digits = digits >> shift;
        let mut text = digits.unsigned_abs().to_string();
        if places > 0 {
            text = format!("{text:0>width$}", width = places + 1);
            text.insert(text.len() - places, '.');
        }
        if digits < 0 { format!("-{text}") } else { text }
    });
    let text = "[a-e\u{e9}\u{1f600}]{0,6}".prop_map(|text| Value::from(text).to_string());
    let duration =
        "[-+]?([0-9]{0,2}(\\.[0-9]{0,2})?(ns|us|ms|s|m|h|x)?){1,2}".prop_map(|text| Value::from(text).to_string());
    let leaf = prop_oneof![
        prop::sample::select(NOTABLE).prop_map(str::to_owned),
        any::<i16>().prop_map(|number| number.to_string()),
        number,
        text,
        duration,
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let name = prop::sample::select(&["value", "a", "b", "key", "map", "abcd", "\u{e9}\u{e9}\u{e9}"][..]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|values| format!("[{}]", values.join(","))),
            prop::collection::btree_map(name, inner, 0..4).prop_map(|members| {
                let mut text = String::new();
                for (name, value) in members {
                    let _ = write!(text, ",\"{name}\":{value}");
                }
                format!("{{{}}}", text.trim_start_matches(','))
            }),
        ]
    })
}

#[derive(Outputs)]
struct Readings {
    volts: Decimal<3>,
    label: Option<String>,
    verdict: Verdict,
    per_rail: BTreeMap<String, [u16; 2]>,
    inner: Inner,
    raw: RawJsonBuf,
    #[output(schema = r#"{"type":"string","format":"ipv4"}"#)]
    address: std::net::Ipv4Addr,
}

#[derive(Outputs)]
#[output(rename_all = "SCREAMING_SNAKE_CASE")]
enum Verdict {
    QuiteGood,
    Bad,
}

#[derive(Outputs)]
struct Inner {
    #[output(rename = "empty?")]
    empty: Option<u8>,
    float: f32,
}

#[test]
fn outputs_are_as_they_are_told() {
    let validator = validator(&Schema::of_outputs::<Readings>());
    let raw = || RawJsonBuf::from(RawJson::from_checked_str("[1e3]").unwrap());
    for (mantissa, label, verdict, empty) in [
        (3300, Some("3V3".to_owned()), Verdict::QuiteGood, None),
        (i32::MIN, None, Verdict::Bad, Some(0)),
        (i32::MAX, Some(String::new()), Verdict::Bad, Some(255)),
    ] {
        let per_rail = BTreeMap::from([("a".to_owned(), [0, 65535])]);
        let inner = Inner { empty, float: -0.5 };
        let address = std::net::Ipv4Addr::LOCALHOST;
        let readings =
            Readings { volts: Decimal::from_mantissa(mantissa), label, verdict, per_rail, inner, raw: raw(), address };
        assert!(<Readings as OutputValue>::IS_ABSENT.is_none());
        let text = rigline::json::ser::to_string(&readings).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(validator.is_valid(&value), "{text}: {:?}", validator.validate(&value));
        assert!(value.as_object().unwrap().values().all(|value| !value.is_null()), "{text}");
    }
}
