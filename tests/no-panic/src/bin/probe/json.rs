//! `rigline::json`.

use core::hint::black_box;
use core::str::FromStr;

use rigline::json::RawJson;
use rigline::json::check::{check, check_to_depth};
use rigline::json::de::{self, DecodeError, Segment};
use rigline::json::write::{Message, Writer};
use rigline::json::{Decimal, Digits, Json, NumberError, Text, ser};
use serde::{Deserialize, Serialize};

use crate::program::{bytes, keep, show, text};

pub(crate) fn all() {
    checker();
    views();
    numbers();
    decoder();
    writer();
    serializer();
}

fn checker() {
    let text = bytes::<32>();
    for result in [check(&text), check_to_depth::<1>(&text)] {
        if let Err(error) = result {
            keep(error.kind.text());
            show(&error.kind);
            show(&error);
        }
    }
}

fn views() {
    let text = bytes::<32>();
    let Ok(json) = Json::parse(&text) else { return };
    view(json);
    view(black_box(Json::NULL));
    for (name, value) in json.members().clone() {
        string(name);
        view(value);
    }
    for value in json.elements().clone() {
        view(value);
    }
    if let Some(value) = json.get(crate::program::text()) {
        view(value);
    }
}

fn view(json: Json<'_>) {
    keep((json.kind(), json.is_null(), json.as_bytes(), json.as_str(), json.bool()));
    keep(json == Json::NULL);
    show(&json);
    if let Some(text) = json.text() {
        string(text);
    }
    if let Some(digits) = json.number() {
        integers(digits);
    }
}

fn string(string: Text<'_>) {
    keep((string.raw(), string.as_str(), string.is_empty()));
    string.chars().clone().for_each(keep);
    keep(string == *text());
    keep(string == text());
    keep(string == black_box(string));
    keep(string.decode_into(&mut bytes::<16>()));
    show(&string);
}

fn numbers() {
    if let Some(digits) = Digits::new(&bytes::<16>()) {
        integers(digits);
        integers(digits.shifted(black_box(3)));
    }
    decimals::<0>();
    decimals::<3>();
    decimals::<9>();
}

fn integers(digits: Digits<'_>) {
    keep((digits.is_negative(), digits.is_plain()));
    keep((digits.to_u32(), digits.to_i32(), digits.to_u64(), digits.to_i64()));
    keep((digits.to_u128(), digits.to_i128()));
    if let Err(error) = digits.to_u32() {
        show(&error);
        keep(error == NumberError::NotInteger);
    }
}

fn decimals<const PLACES: u8>() {
    match Decimal::<PLACES>::parse(&bytes::<16>()) {
        Err(error) => show(&error),
        Ok(decimal) => {
            show(&decimal);
            keep((decimal.mantissa(), decimal.saturating_abs(), decimal.checked_mul(black_box(3))));
            keep((decimal.checked_add(Decimal::MAX), decimal.checked_sub(Decimal::MIN)));
            keep(decimal > black_box(Decimal::ZERO));
        }
    }
    keep(Decimal::<PLACES>::from_str(text()));
    serialize(&Decimal::<PLACES>::from_mantissa(black_box(3300)));
    deserialize::<Decimal<PLACES>>(&mut bytes::<64>());
}

/// All of serde's data model that works without an allocator.
#[derive(Deserialize, Serialize)]
struct Everything<'a> {
    a: (bool, char, (), Unit),
    b: (u8, u16, u32, u64, u128),
    c: (i8, i16, i32, i64, i128),
    d: (f32, f64),
    #[serde(borrow)]
    text: &'a str,
    raw: RawJson<'a>,
    option: Option<u8>,
    array: [Wrapped; 3],
    choice: Choice<'a>,
    #[serde(default)]
    duration: rigline::GoDuration,
}

#[derive(Deserialize, Serialize)]
struct Unit;

#[derive(Deserialize, Serialize)]
struct Wrapped(i32);

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Choice<'a> {
    Nothing,
    One(u8),
    Two(u8, u16),
    Some { one: u8, other: &'a str },
}

/// A map and a sequence that keep nothing, and keys of every kind.
struct Collected;

impl<'de> Deserialize<'de> for Collected {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Collected;

            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("anything")
            }

            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Collected, E> {
                Err(if black_box(true) { E::custom("custom") } else { de::rule(&["a rule"]) })
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Collected, A::Error> {
                keep(seq.size_hint());
                while seq.next_element::<Option<&str>>()?.is_some() {}
                Ok(Collected)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Collected, A::Error> {
                while let Some(key) = map.next_key::<u32>()? {
                    keep(key);
                    map.next_value::<serde::de::IgnoredAny>()?;
                }
                keep(map.next_entry::<i64, bool>()?);
                keep(map.next_entry::<u128, f32>()?);
                keep(map.next_entry::<i128, f64>()?);
                keep(map.next_entry::<char, &[u8]>()?);
                keep(map.next_entry::<bool, u8>()?);
                keep(map.next_entry::<&str, u8>()?);
                keep(map.next_entry::<Unit, u8>()?);
                keep(map.next_entry::<f64, u8>()?);
                Ok(Collected)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

fn decoder() {
    deserialize::<Everything<'_>>(&mut bytes::<64>());
    deserialize::<Collected>(&mut bytes::<64>());
    deserialize::<heapless::Vec<u16, 4>>(&mut bytes::<64>());
    deserialize::<heapless::String<16>>(&mut bytes::<64>());
    match de::from_empty::<Everything<'_>>() {
        Ok(value) => keep(value.d),
        Err(error) => decode_error(error),
    }
    keep(de::from_empty::<Option<Choice<'_>>>());
    decode_error(DecodeError::rule(text(), text()));
    decode_error(DecodeError::new(de::DecodeErrorKind::Expected(text())).within(Segment::Index(black_box(1))));
    let mut text = bytes::<16>();
    match RawJson::from_checked(&mut text) {
        Ok(raw) => {
            show(&raw);
            serialize(&raw);
        }
        Err(error) => show(&error),
    }
    keep(RawJson::from_checked_str(crate::program::text()).map(|raw| raw.as_str()));
}

fn deserialize<'de, T: Deserialize<'de>>(text: &'de mut [u8]) {
    match de::from_checked::<T>(text) {
        Ok(value) => keep(value),
        Err(error) => decode_error(error),
    }
}

fn decode_error(error: DecodeError) {
    show(&error);
    show(&error.kind());
    show(&error.display_in(text()));
    error.path().for_each(keep);
    keep(error == error.within(black_box(Segment::ANY_KEY)));
}

fn writer() {
    let mut memory = bytes::<64>();
    let mut out = Writer::new(&mut memory);
    out.raw(&bytes::<16>());
    out.byte(black_box(b'x'));
    out.str(text());
    out.text_part(text());
    out.u32(black_box(1));
    out.i32(black_box(1));
    out.u64(black_box(1));
    out.i64(black_box(1));
    out.usize(black_box(1));
    out.u128(black_box(1));
    out.i128(black_box(1));
    out.bool(black_box(true));
    out.message(text());
    out.message(&black_box('x'));
    out.message(&text());
    let messages: [&dyn Message; 2] = [&format_args!("{}", black_box(1_u32)), &black_box('x')];
    for message in messages {
        out.message(message);
    }
    keep((out.len(), out.is_empty(), out.needed(), out.capacity(), out.fits()));
    keep(out.as_written());
    keep(out.as_written_mut());
    out.truncate(black_box(1));
    if let Err(error) = out.check() {
        show(&error);
        out.message(&error);
    }
    match out.finish() {
        Ok(text) => keep(text),
        Err(error) => show(&error),
    }
}

fn serializer() {
    serialize(&Everything {
        a: (black_box(true), black_box('x'), (), Unit),
        b: black_box((1, 2, 3, 4, 5)),
        c: black_box((1, 2, 3, 4, 5)),
        d: black_box((1.0, 2.0)),
        text: text(),
        raw: RawJson::NULL,
        option: black_box(None),
        array: [Wrapped(black_box(1)), Wrapped(2), Wrapped(3)],
        choice: black_box(Choice::One(1)),
        duration: black_box(rigline::GoDuration::ZERO),
    });
    serialize(&black_box(Choice::Nothing));
    serialize(text());
    serialize(&Keys);
    serialize(&black_box(heapless::Vec::<u16, 4>::new()));
    serialize(&format_args!("{}", black_box(1_u32)));
}

/// A map with a key of every kind, and bytes.
struct Keys;

impl Serialize for Keys {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(text(), &Bytes)?;
        map.serialize_entry(&black_box(1_u8), &1)?;
        map.serialize_entry(&black_box(1_i64), &1)?;
        map.serialize_entry(&black_box(1_u128), &1)?;
        map.serialize_entry(&black_box('x'), &1)?;
        map.serialize_entry(&black_box(true), &1)?;
        map.serialize_entry(&black_box(Choice::Nothing), &1)?;
        map.serialize_entry(&black_box(Wrapped(1)), &1)?;
        map.serialize_entry(&black_box(1.0), &1)?;
        map.serialize_entry(&format_args!("{}", black_box(1_u32)), &1)?;
        map.end()
    }
}

struct Bytes;

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&bytes::<4>())
    }
}

fn serialize<T: Serialize + ?Sized>(value: &T) {
    let mut memory = bytes::<64>();
    match ser::to_slice(value, &mut memory) {
        Ok(length) => keep(length),
        Err(error) => {
            show(&error);
            Writer::new(&mut memory).message(&error);
        }
    }
    keep(ser::write(value, &mut Writer::new(&mut memory)));
}
