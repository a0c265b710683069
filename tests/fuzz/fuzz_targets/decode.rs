//! Typed decoding against `serde_json`: what it takes we take, with the same value. The other way round there are the
//! differences that `rigline::json::de` documents: integers in any spelling, depth, and unknown members whose names have a
//! lone surrogate, which are passed by.
#![no_main]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use rigline::json::check::check;
use rigline::json::de::from_checked;
use rigline::json::{Decimal, RawJson};
use rigline_fuzz::depth;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[derive(Debug, PartialEq, Deserialize)]
struct Numbers {
    a: Option<u8>,
    b: Option<i8>,
    c: Option<u16>,
    d: Option<i16>,
    e: Option<u32>,
    f: Option<i32>,
    g: Option<u64>,
    h: Option<i64>,
    i: Option<u128>,
    j: Option<i128>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Texts<S> {
    a: S,
    #[serde(default)]
    b: Vec<S>,
    c: Option<(S, char)>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Strict {
    #[serde(default)]
    a: u8,
    b: Option<Box<Strict>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Choice {
    A,
    B(u8),
    C(bool, String),
    D { a: u8, b: Option<()> },
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Name {
    A,
    B,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "t")]
enum Tagged {
    A { a: String },
    B(BTreeMap<String, i64>),
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "t", content = "c")]
enum Adjacent {
    A(Vec<bool>),
    B { a: f64 },
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Untagged {
    A(bool),
    B(u64),
    C(String),
    D { a: Box<Untagged> },
    E(Vec<Untagged>),
}

#[derive(Debug, PartialEq, Deserialize)]
struct Flat {
    a: u8,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

fuzz_target!(|text: &[u8]| {
    // Unchecked text is safe too.
    if check(text).is_err() {
        let _ = from_checked::<Value>(&mut text.to_vec());
        let _ = from_checked::<Texts<&str>>(&mut text.to_vec());
        let _ = from_checked::<Numbers>(&mut text.to_vec());
        let _ = from_checked::<RawJson<'_>>(&mut text.to_vec());
        let _ = from_checked::<Choice>(&mut text.to_vec());
        return;
    }
    let numbers = text.windows(2).any(|pair| matches!(pair, b"-0" | [b'0'..=b'9', b'.' | b'e' | b'E']));
    let numbers = if numbers { Integers::InOtherSpellings } else { Integers::Plain };
    same::<Numbers>(text, numbers);
    same::<Texts<String>>(text, Integers::Plain);
    same::<Texts<Cow<'_, str>>>(text, Integers::Plain);
    same::<Strict>(text, numbers);
    same::<Choice>(text, numbers);
    same::<Vec<Choice>>(text, numbers);
    same::<(bool, char, (), [u8; 2])>(text, numbers);
    same::<BTreeMap<String, bool>>(text, Integers::Plain);
    same::<BTreeMap<char, Name>>(text, Integers::Plain);
    same::<BTreeMap<Name, bool>>(text, Integers::Plain);
    same::<BTreeMap<bool, Option<bool>>>(text, Integers::Plain);
    same::<BTreeMap<u8, bool>>(text, numbers);
    same::<BTreeMap<i64, bool>>(text, numbers);
    same::<Tagged>(text, Integers::Plain);
    same::<Adjacent>(text, Integers::Plain);
    same::<Flat>(text, numbers);
    if depth(text) < 128 {
        same::<Untagged>(text, Integers::Plain);
        same::<Value>(text, Integers::Plain);
    }
    floats(text);
    borrowed(text);
    whole(text);
});

#[derive(Clone, Copy, PartialEq)]
enum Integers {
    Plain,
    /// `1.0`, `1e3`: integers to us, none to `serde_json`.
    InOtherSpellings,
}

fn same<T: DeserializeOwned + Debug + PartialEq>(text: &[u8], integers: Integers) {
    let mut ours = text.to_vec();
    let ours = from_checked::<T>(&mut ours);
    match (serde_json::from_slice::<T>(text), ours) {
        (Ok(theirs), Ok(ours)) => assert_eq!(ours, theirs),
        (Ok(theirs), Err(error)) => panic!("{}: {error} instead of {theirs:?}", std::any::type_name::<T>()),
        (Err(_), Err(_)) => {}
        (Err(_), Ok(_)) if integers == Integers::InOtherSpellings || may_have_a_lone_surrogate(text) => {}
        (Err(error), Ok(ours)) => panic!("{}: {ours:?} instead of {error}", std::any::type_name::<T>()),
    }
}

fn may_have_a_lone_surrogate(text: &[u8]) -> bool {
    let is_surrogate =
        |escape: &[u8]| matches!(escape, [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F']);
    text.windows(4).any(is_surrogate)
}

/// Floats have the very same bits. What is not finite in its type is refused; `serde_json` makes `f32::INFINITY` of `1e39`.
fn floats(text: &[u8]) {
    if let Ok(theirs) = serde_json::from_slice::<Vec<f64>>(text) {
        let ours = from_checked::<Vec<f64>>(&mut text.to_vec()).unwrap();
        assert!(ours.iter().map(|value| value.to_bits()).eq(theirs.iter().map(|value| value.to_bits())));
    }
    if let Ok(theirs) = serde_json::from_slice::<Vec<f32>>(text) {
        match from_checked::<Vec<f32>>(&mut text.to_vec()) {
            Ok(ours) => {
                assert!(ours.iter().map(|value| value.to_bits()).eq(theirs.iter().map(|value| value.to_bits())));
            }
            Err(error) => assert!(theirs.iter().any(|value| value.is_infinite()), "{error}"),
        }
    }
}

/// Decoded in place, texts are what they are when copied.
fn borrowed(text: &[u8]) {
    let mut ours = text.to_vec();
    let ours = from_checked::<Texts<&str>>(&mut ours);
    let theirs = serde_json::from_slice::<Texts<String>>(text);
    assert!(ours.is_ok() == theirs.is_ok() || ours.is_ok() && may_have_a_lone_surrogate(text));
    if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
        assert_eq!(ours.a, theirs.a);
        assert_eq!(ours.b, theirs.b);
        assert_eq!(ours.c, theirs.c.as_ref().map(|(text, char)| (text.as_str(), *char)));
    }
}

/// Values that pass through, and decimals.
fn whole(text: &[u8]) {
    let mut copy = text.to_vec();
    let raw = from_checked::<RawJson<'_>>(&mut copy).unwrap();
    assert!(check(raw.as_str().as_bytes()).is_ok() && !raw.as_str().contains(['\r', '\n']));
    if let Ok(decimal) = from_checked::<Decimal<3>>(&mut text.to_vec()) {
        assert_eq!(Decimal::parse(decimal.to_string().as_bytes()), Ok(decimal));
        let float: f64 = serde_json::from_slice(text).unwrap();
        assert!((float * 1000.0 - f64::from(decimal.mantissa())).abs() < 0.5);
    }
}
