//! The checker and the views against `serde_json`, both ways: the same texts pass, and what passes reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rigline::json::check::{DEPTH, SyntaxErrorKind, check, check_to_depth};
use rigline::json::{Json, JsonKind, RawJson};
use rigline_fuzz::depth;
use serde::de::IgnoredAny;
use serde_json::Value;

fuzz_target!(|text: &[u8]| {
    let ours = check(text);
    let grammatical = str::from_utf8(text).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    match ours {
        Ok(()) => {
            assert!(grammatical, "taken: {text:?}");
            assert!(depth(text) <= DEPTH);
        }
        Err(error) => {
            assert!(error.offset <= text.len());
            let too_deep = matches!(error.kind, SyntaxErrorKind::TooDeep { limit: DEPTH });
            assert!(!grammatical || too_deep && depth(text) > DEPTH, "refused, {error}: {text:?}");
        }
    }
    assert_eq!(check_to_depth::<1>(text).is_ok(), grammatical && depth(text) <= 32);
    if ours.is_err() {
        assert!(Json::parse(text).is_err());
        return;
    }
    let json = Json::parse(text).unwrap();
    if let Ok(value) = serde_json::from_slice(text) {
        same(json, &value);
        let mut copy = text.to_vec();
        let raw = RawJson::from_checked(&mut copy).unwrap();
        assert!(!raw.as_str().contains(['\r', '\n']));
        assert_eq!(serde_json::from_str::<Value>(raw.as_str()).unwrap(), value);
    }
});

fn same(json: Json<'_>, value: &Value) {
    match value {
        Value::Null => assert!(json.is_null()),
        Value::Bool(value) => assert_eq!(json.bool(), Some(*value)),
        Value::Number(number) => {
            assert_eq!(json.kind(), JsonKind::Number);
            assert_eq!(serde_json::from_str::<serde_json::Number>(json.as_str()).unwrap(), *number);
            let digits = json.number().unwrap();
            if let Some(value) = number.as_u64() {
                assert_eq!(digits.to_u64(), Ok(value));
            }
            if let Some(value) = number.as_i64() {
                assert_eq!(digits.to_i64(), Ok(value));
            }
            let _ = (digits.to_u32(), digits.to_i32(), digits.to_u128(), digits.to_i128());
        }
        Value::String(value) => {
            let text = json.text().unwrap();
            assert!(text == value.as_str() && text.to_cow() == *value && text.chars().eq(value.chars()));
            let mut memory = vec![0; text.raw().len()];
            assert_eq!(text.decode_into(&mut memory).unwrap(), value);
        }
        Value::Array(values) => {
            assert_eq!(json.elements().count(), values.len());
            json.elements().zip(values).for_each(|(json, value)| same(json, value));
        }
        Value::Object(members) => {
            assert_eq!(json.kind(), JsonKind::Object);
            for (name, _) in json.members() {
                assert!(members.contains_key(&*name.to_cow()));
            }
            for (name, value) in members {
                same(json.get(name).unwrap(), value);
            }
        }
    }
}
