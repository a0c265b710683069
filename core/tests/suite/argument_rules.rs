//! The rules and the defaults of arguments, for each type that can have them.

#![allow(deprecated, reason = "the derive warns of fields without a description")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::num::{NonZeroI8, NonZeroU8, NonZeroU64};

use crate::common::{NoTime, Pipe};
use rigline::engine::{Engine, Memory};
use rigline::json::Decimal;
use rigline::json::de::from_checked;
use rigline::params::{Choice, OutputValue};
use rigline::serve::blocking;
use rigline::{Context, Extension as _, Failure, Outcome, Outputs, Params, Schema};
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::{Value, json};

/// The value, or the text of the error.
fn decode<'t, T: Deserialize<'t>>(text: &str) -> Result<T, String> {
    from_checked::<T>(text.as_bytes().to_vec().leak()).map_err(|error| error.to_string())
}

fn properties<T: Params>() -> Value {
    let schema: Value = serde_json::from_str(&Schema::of::<T>().to_string()).unwrap();
    schema["properties"].clone()
}

#[derive(Debug, Params)]
#[allow(dead_code, reason = "the test decodes it and reads no field")]
struct Lengths<'a> {
    #[param(min_length = 2, max_length = 3)]
    text: Option<&'a str>,
    #[param(min_length = 2, max_length = 3)]
    small: Option<heapless::String<16>>,
    #[param(min_length = 2, max_length = 3)]
    owned: Option<String>,
    #[param(min_length = 2, max_length = 3)]
    cow: Option<Cow<'a, str>>,
    #[param(min_length = 2, max_length = 3)]
    list: Option<Vec<u8>>,
    #[param(min_length = 2, max_length = 3)]
    small_list: Option<heapless::Vec<u8, 4>>,
    #[param(min_length = 2, max_length = 3)]
    map: Option<BTreeMap<String, u8>>,
    #[param(min_length = 2, max_length = 3)]
    small_map: Option<heapless::LinearMap<heapless::String<4>, u8, 4>>,
    #[param(min_length = 4)]
    too_short: Option<[u8; 3]>,
    #[param(max_length = 2)]
    too_long: Option<[u8; 3]>,
    #[param(min_length = 3, max_length = 3)]
    array: Option<[u8; 3]>,
}

#[test]
fn lengths_are_counted_in_characters_elements_and_members() {
    let below = |least: usize| Err(format!("is below the minimum {least}"));
    let above = |most: usize| Err(format!("is above the maximum {most}"));
    let outcome = |name: &str, value: &str| {
        let decoded = decode::<Lengths<'_>>(&format!(r#"{{"{name}":{value}}}"#));
        decoded.map(|_| ()).map_err(|error| {
            let rule = error.strip_prefix(&format!("{name}: ")).unwrap();
            rule[rule.find(" is ").unwrap() + 1..].to_owned()
        })
    };
    let values = |kind: &str| match kind {
        "text" => ["\"\"", "\"é\"", "\"😀😀\"", "\"a\u{7ff}\u{800}\"", "\"abcd\"", "\"éééé\""].map(str::to_owned),
        "list" => ["[]", "[1]", "[1,2]", "[1,2,3]", "[1,2,3,4]", "[4,3,2,1]"].map(str::to_owned),
        _ => [
            "",
            r#""a":1"#,
            r#""a":1,"b":2"#,
            r#""a":1,"b":2,"c":3"#,
            r#""a":1,"b":2,"c":3,"d":4"#,
            r#""ab":1,"bc":2,"cd":3,"de":4"#,
        ]
        .map(|members| format!("{{{members}}}")),
    };
    for (name, kind) in [
        ("text", "text"),
        ("small", "text"),
        ("owned", "text"),
        ("cow", "text"),
        ("list", "list"),
        ("small_list", "list"),
        ("map", "map"),
        ("small_map", "map"),
    ] {
        let outcomes = values(kind).map(|value| outcome(name, &value));
        let expected = [below(2), below(2), Ok(()), Ok(()), above(3), above(3)];
        assert_eq!(outcomes, expected, "{name}");
        // What is not given has no length.
        assert_eq!(outcome(name, "null"), Ok(()));
    }
    assert_eq!(outcome("too_short", "[1,2,3]"), below(4));
    assert_eq!(outcome("too_long", "[1,2,3]"), above(2));
    assert_eq!(outcome("array", "[1,2,3]"), Ok(()));
}

const RAILS: [Choice; 2] = [Choice::new("3V3", "the board"), Choice::new("5V0", "")];
const RAIL_LIST: &[Choice] = &RAILS;
const MODES: [&str; 2] = ["3V3", "5V0"];
const MODE_LIST: &[&str] = &MODES;

#[derive(Debug, Params)]
#[allow(dead_code, reason = "the test decodes it and reads no field")]
struct Chosen<'a> {
    #[param(one_of = MODE_LIST)]
    text: Option<&'a str>,
    #[param(one_of = &MODES)]
    small: Option<heapless::String<8>>,
    #[param(one_of = RAIL_LIST)]
    owned: Option<String>,
    #[param(one_of = &RAILS)]
    cow: Option<Cow<'a, str>>,
    #[param(one_of = &["3V3"])]
    single: Option<&'a str>,
}

#[test]
fn a_text_is_one_of_its_list_in_each_type_of_text() {
    let outcome = |name: &str, value: &str| decode::<Chosen<'_>>(&format!(r#"{{"{name}":{value}}}"#)).map(|_| ());
    for name in ["text", "small", "owned", "cow"] {
        for good in ["\"3V3\"", "\"5V0\"", "\"5\\u00560\"", "null"] {
            assert_eq!(outcome(name, good), Ok(()), "{name} {good}");
        }
        for bad in ["", "3V", "3V33", "3v3", "xyzzy"] {
            let fault = format!("{name}: unknown {name} `{bad}`: expected one of 3V3, 5V0");
            assert_eq!(outcome(name, &format!("\"{bad}\"")), Err(fault), "{name} {bad}");
        }
    }
    assert_eq!(outcome("single", "\"3V3\""), Ok(()));
    assert_eq!(outcome("single", "\"5V0\""), Err("single: unknown single `5V0`: expected 3V3".to_owned()));
    let properties = properties::<Chosen<'_>>();
    for (name, choices, description) in [
        ("text", json!(["3V3", "5V0", null]), Value::Null),
        ("small", json!(["3V3", "5V0", null]), Value::Null),
        ("owned", json!(["3V3", "5V0", null]), json!(": 3V3 (the board), 5V0")),
        ("cow", json!(["3V3", "5V0", null]), json!(": 3V3 (the board), 5V0")),
        ("single", json!(["3V3", null]), Value::Null),
    ] {
        assert_eq!((&properties[name]["enum"], &properties[name]["description"]), (&choices, &description), "{name}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Params)]
#[param(rename_all = "lowercase")]
enum Mode {
    Slow,
    #[param(alias = "quick")]
    Fast,
}

#[derive(Debug, PartialEq, Params)]
struct Defaults<'a> {
    #[param(default = "text")]
    text: &'a str,
    #[param(default = "small")]
    small: heapless::String<8>,
    #[param(default = "owned")]
    owned: String,
    #[param(default = "cow")]
    cow: Cow<'a, str>,
    #[param(default = "fast")]
    mode: Mode,
    #[param(default = "some")]
    some: Option<&'a str>,
    #[param(default = true)]
    yes: bool,
    #[param(default = false)]
    no: bool,
    #[param(default = true)]
    some_yes: Option<bool>,
    #[param(default = -5)]
    signed: i16,
    #[param(default = 340282366920938463463374607431768211455)]
    large: u128,
    #[param(default = -170141183460469231731687303715884105728)]
    low: i128,
    #[param(default = 255)]
    count: NonZeroU8,
    #[param(default = 1)]
    one: NonZeroU64,
    #[param(default = -1.25)]
    volts: Decimal<3>,
    #[param(default = 1.5e1)]
    single: f32,
    #[param(default = -0.1)]
    double: f64,
    #[param(default = 7)]
    some_number: Option<u8>,
}

#[test]
fn a_value_that_is_not_given_or_null_is_the_default() {
    let expected = || Defaults {
        text: "text",
        small: "small".try_into().unwrap(),
        owned: "owned".to_owned(),
        cow: Cow::Borrowed("cow"),
        mode: Mode::Fast,
        some: Some("some"),
        yes: true,
        no: false,
        some_yes: Some(true),
        signed: -5,
        large: u128::MAX,
        low: i128::MIN,
        count: NonZeroU8::MAX,
        one: NonZeroU64::MIN,
        volts: Decimal::from_mantissa(-1250),
        single: 15.0,
        double: -0.1,
        some_number: Some(7),
    };
    let properties = properties::<Defaults<'_>>();
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    assert_eq!(names.len(), 18);
    let nulls = json!(names.iter().map(|name| ((*name).clone(), Value::Null)).collect::<BTreeMap<_, _>>()).to_string();
    for text in ["{}", &nulls] {
        assert_eq!(decode::<Defaults<'_>>(text), Ok(expected()), "{text}");
        // The decoder of another crate does not tell that a value is null.
        assert_eq!(serde_json::from_str::<Defaults<'_>>(text).unwrap(), expected(), "{text}");
    }
    for (name, default) in [
        ("text", json!("text")),
        ("mode", json!("fast")),
        ("yes", json!(true)),
        ("no", json!(false)),
        ("some_yes", json!(true)),
        ("signed", json!(-5)),
        ("volts", json!(-1.25)),
        ("some_number", json!(7)),
    ] {
        assert_eq!(properties[name]["default"], default, "{name}");
    }
    // What is given is taken, by either decoder.
    let given = r#"{"text":"a","small":"b","owned":"c","cow":"d","mode":"quick","some":"e","yes":false,"no":true,"some_yes":false,"signed":1,"large":2,"low":3,"count":4,"one":5,"volts":6.5,"single":7.5,"double":8.5,"some_number":9}"#;
    let taken = Defaults {
        text: "a",
        small: "b".try_into().unwrap(),
        owned: "c".to_owned(),
        cow: Cow::Borrowed("d"),
        some: Some("e"),
        yes: false,
        no: true,
        some_yes: Some(false),
        signed: 1,
        large: 2,
        low: 3,
        count: NonZeroU8::new(4).unwrap(),
        one: NonZeroU64::new(5).unwrap(),
        volts: Decimal::from_mantissa(6500),
        single: 7.5,
        double: 8.5,
        some_number: Some(9),
        ..expected()
    };
    assert_eq!(decode::<Defaults<'_>>(given).as_ref(), Ok(&taken));
    assert_eq!(serde_json::from_str::<Defaults<'_>>(given).unwrap(), taken);
}

#[derive(Debug, Params)]
#[allow(dead_code, reason = "the test decodes it and reads no field")]
struct Bounds {
    #[param(minimum = 2, maximum = 9)]
    unsigned: Option<u64>,
    #[param(minimum = -9, maximum = -2)]
    signed: Option<i8>,
    #[param(minimum = 2, maximum = 9)]
    non_zero: Option<NonZeroU8>,
    #[param(minimum = -0.5, maximum = 1.25)]
    decimal: Option<Decimal<3>>,
    #[param(minimum = -0.5, maximum = 1.25)]
    float: Option<f64>,
    #[param(minimum = -0.5, maximum = 1.25)]
    single: Option<f32>,
    #[param(minimum = 170141183460469231731687303715884105728, maximum = 340282366920938463463374607431768211454)]
    large: Option<u128>,
    #[param(minimum = -170141183460469231731687303715884105727, maximum = 0)]
    low: Option<i128>,
    #[param(maximum = 9)]
    from_0: Option<u8>,
    #[param(maximum = 9)]
    any_to_9: Option<i8>,
    #[param(minimum = 2)]
    from_2: Option<u8>,
}

#[test]
fn numbers_are_within_their_bounds_in_each_type_of_number() {
    let outcome = |name: &str, value: &str| decode::<Bounds>(&format!(r#"{{"{name}":{value}}}"#)).map(|_| ());
    for (name, below, least, most, above) in [
        ("unsigned", "1", "2", "9", "10"),
        ("signed", "-10", "-9", "-2", "-1"),
        ("non_zero", "1", "2", "9", "10"),
        ("decimal", "-0.501", "-0.500", "1.25", "1.251"),
        ("float", "-0.5000001", "-0.5", "1.25", "1.2500001"),
        ("single", "-0.5000001", "-0.5", "1.25", "1.2500002"),
        (
            "large",
            "170141183460469231731687303715884105727",
            "170141183460469231731687303715884105728",
            "340282366920938463463374607431768211454",
            "340282366920938463463374607431768211455",
        ),
        ("low", "-170141183460469231731687303715884105728", "-170141183460469231731687303715884105727", "0", "1"),
    ] {
        assert_eq!(outcome(name, least), Ok(()), "{name}");
        assert_eq!(outcome(name, most), Ok(()), "{name}");
        let [below, above] = [below, above].map(|value| outcome(name, value).unwrap_err());
        assert!(below.starts_with(&format!("{name}: ")) && below.contains(" is below the minimum "), "{below}");
        assert!(above.starts_with(&format!("{name}: ")) && above.contains(" is above the maximum "), "{above}");
        assert_eq!(outcome(name, "null"), Ok(()), "{name}");
    }
    // An error names the bounds that the value has, if these are all.
    for (name, expected) in [
        ("unsigned", "an integer from 2 to 9"),
        ("signed", "an integer from -9 to -2"),
        ("non_zero", "an integer from 2 to 9"),
        ("from_0", "an integer from 0 to 9"),
        ("any_to_9", "an integer from -128 to 127"),
        ("from_2", "an integer from 0 to 255"),
        ("decimal", "a number from -2147483.648 to 2147483.647 with at most 3 decimals"),
        ("float", "a number from -1.7976931348623157e308 to 1.7976931348623157e308"),
    ] {
        let error = outcome(name, "[]").unwrap_err();
        assert_eq!(error, format!("{name}: expected {expected}; got an array"));
    }
}

#[derive(Debug, PartialEq, Params)]
struct Aliased {
    #[param(default = 1)]
    first: u8,
    #[param(alias = "two", alias = "deux")]
    second: u8,
    third: Option<u8>,
}

#[test]
fn an_argument_is_also_known_by_its_aliases() {
    for text in [r#"{"second":2}"#, r#"{"two":2}"#, r#"{"deux":2}"#, r#"{"first":null,"deux":2,"third":null}"#] {
        assert_eq!(decode::<Aliased>(text), Ok(Aliased { first: 1, second: 2, third: None }), "{text}");
        assert_eq!(serde_json::from_str::<Aliased>(text).unwrap(), decode(text).unwrap(), "{text}");
    }
    for (text, fault) in [
        (r#"{"second":2,"two":2}"#, "second: given more than once"),
        (r#"{"two":2,"deux":2}"#, "second: given more than once"),
        (r#"{"third":null,"third":3,"two":1}"#, "third: given more than once"),
        (r#"{"first":1}"#, "second: required, but missing"),
        (r#"{"two":null}"#, "two: expected an integer from 0 to 255; got null"),
    ] {
        assert_eq!(decode::<Aliased>(text), Err(fault.to_owned()), "{text}");
        assert!(serde_json::from_str::<Aliased>(text).is_err(), "{text}");
    }
}

#[derive(Debug, PartialEq, Params)]
#[param(deny_unknown_fields)]
struct Closed {
    a: Option<u8>,
}

#[test]
fn unknown_members_and_variants_are_refused_or_ignored_as_declared() {
    assert_eq!(decode::<Closed>(r#"{"b":1}"#), Err("b is an unknown member; known: a".to_owned()));
    assert_eq!(decode::<Aliased>(r#"{"b":{"x":[1]},"two":2}"#).map(|aliased| aliased.second), Ok(2));
    for (text, mode) in [("\"slow\"", Mode::Slow), ("\"fast\"", Mode::Fast), ("\"quick\"", Mode::Fast)] {
        assert_eq!(decode::<Mode>(text), Ok(mode));
        assert_eq!(serde_json::from_str::<Mode>(text).unwrap(), mode);
    }
    assert!(decode::<Mode>("\"Slow\"").unwrap_err().ends_with("expected one of: slow, fast"));
    let error = serde_json::from_str::<Mode>("\"Slow\"").unwrap_err().to_string();
    assert!(error.starts_with("unknown variant `Slow`, expected `slow` or `fast`"), "{error}");
    let error = serde_json::from_str::<Mode>("5").unwrap_err().to_string();
    assert!(error.contains("expected a name"), "{error}");
}

/// serde's own decoders, behind an untagged enum and of plain values.
#[test]
fn null_is_an_omission_for_every_decoder_of_serde() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Known(Aliased),
    }
    for text in [r#"{"second":2}"#, r#"{"first":null,"second":2,"third":null}"#, r#"{"first":1,"two":2}"#] {
        let known = Either::Known(Aliased { first: 1, second: 2, third: None });
        assert_eq!(serde_json::from_str::<Either>(text).unwrap(), known, "{text}");
    }
    let known = serde_json::from_str::<Either>(r#"{"first":3,"second":2,"third":4}"#).unwrap();
    assert_eq!(known, Either::Known(Aliased { first: 3, second: 2, third: Some(4) }));
    // A decoder that knows no null.
    type Plain<'t> = MapDeserializer<'t, std::array::IntoIter<(&'static str, u8), 1>, serde::de::value::Error>;
    let error = Aliased::deserialize(Plain::new([("first", 1)].into_iter())).unwrap_err().to_string();
    assert_eq!(error, "invalid type: integer `1`, expected a value or null");
}

/// A type of another crate, whose schema is written in the attribute.
#[test]
fn a_field_with_a_schema_in_words_may_be_left_out_if_it_is_an_option() {
    #[derive(Debug, PartialEq, Params)]
    struct Foreign {
        #[param(schema = r#"{"type":"integer"}"#)]
        must: NonZeroI8,
        #[param(schema = r#"{"type":"integer"}"#)]
        may: Option<NonZeroI8>,
    }
    let number = |number| NonZeroI8::new(number).unwrap();
    assert_eq!(decode::<Foreign>(r#"{"must":1}"#), Ok(Foreign { must: number(1), may: None }));
    assert_eq!(decode::<Foreign>(r#"{"must":1,"may":2}"#), Ok(Foreign { must: number(1), may: Some(number(2)) }));
    assert_eq!(decode::<Foreign>(r#"{"may":2}"#), Err("must: required, but missing".to_owned()));
}

macro_rules! assert_decimals {
    ($($places:literal)*) => {$({
        const NAME: &str = concat!("with ", $places, " places");
        let [least, most] = [i32::MIN, i32::MAX].map(|mantissa| Decimal::<$places>::from_mantissa(mantissa).to_string());
        let text = match $places {
            0 => format!(r#"{{"type":"integer","minimum":{least},"maximum":{most}}}"#),
            places => {
                let digits = if places == 1 { "digit" } else { "digits" };
                format!(r#"{{"type":"number","minimum":{least},"maximum":{most},"description":"at most {places} {digits} behind the point"}}"#)
            }
        };
        for node in [<Decimal<$places> as Params>::SCHEMA, <Decimal<$places> as OutputValue>::SCHEMA] {
            let rendered: [u8; 160] = node.render(0);
            assert_eq!(str::from_utf8(&rendered).unwrap().trim_end_matches('\0'), text, "{NAME}");
        }
        for text in [least, most] {
            assert_eq!(decode::<Decimal<$places>>(&text).map(|number| number.to_string()), Ok(text), "{NAME}");
        }
    })*};
}

#[test]
fn the_bounds_of_a_decimal_are_its_least_and_its_greatest_value() {
    assert_decimals! { 0 1 2 3 4 5 6 7 8 9 }
}

#[derive(Outputs)]
struct Reading {
    volts: u16,
    note: Option<&'static str>,
}

struct Meter;

#[rigline::extension(name = "meter", version = "1.0.0", description = "Reads")]
impl Meter {
    /// Nothing
    #[operation]
    async fn nothing(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// A message
    #[operation]
    async fn message(&mut self) -> Result<Outcome, Failure> {
        Ok(Outcome::message("read"))
    }

    /// Outputs
    #[operation]
    async fn reading(&mut self) -> Result<Reading, Failure> {
        Ok(Reading { volts: 3, note: None })
    }

    /// Outputs and a message
    #[operation]
    async fn both(&mut self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.outputs(&Reading { volts: 5, note: Some("bus") })?;
        cx.done("read")
    }

    /// A map
    #[operation]
    async fn map(&mut self) -> Result<BTreeMap<String, u8>, Failure> {
        Ok(BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]))
    }
}

#[test]
fn what_a_method_returns_is_in_the_reply() {
    for (operation, result) in [
        ("nothing", "{}"),
        ("message", r#"{"message":"read"}"#),
        ("reading", r#"{"volts":3}"#),
        ("both", r#"{"volts":5,"note":"bus","message":"read"}"#),
        ("map", r#"{"a":1,"b":2}"#),
    ] {
        let (mut request, mut reply) = ([0; 256], [0; 1024]);
        let mut engine = Engine::new(Meter.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
        let mut pipe = Pipe::new(format!("{{\"op\":\"{operation}\",\"args\":{{}}}}\n").as_bytes());
        blocking::Server::new(&mut Meter, &mut engine, &NoTime).serve(&mut pipe).unwrap();
        let reply = String::from_utf8(pipe.output).unwrap();
        assert_eq!(reply.trim_end(), format!(r#"{{"ok":true,"result":{result}}}"#));
    }
}
