//! The decoder of a value that was not given.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::error::DecodeErrorKind;
use super::key::ONE_MEMBER;
use crate::json::text::{NUMBER_TOKEN, RAW_TOKEN};

/// A value that was not given, and an object without members.
pub(super) struct Nothing;

impl<'de> Deserializer<'de> for Nothing {
    type Error = DecodeErrorKind;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_map(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_unit()
    }

    // As in `decoder`: the name is a constant at the call.
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        if name == RAW_TOKEN || name == NUMBER_TOKEN {
            visitor.visit_borrowed_bytes(b"{}")
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        Err(DecodeErrorKind::Expected(ONE_MEMBER))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        seq tuple tuple_struct map struct identifier
    }
}

impl<'de> MapAccess<'de> for Nothing {
    type Error = DecodeErrorKind;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, _: K) -> Result<Option<K::Value>, DecodeErrorKind> {
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, _: V) -> Result<V::Value, DecodeErrorKind> {
        Err(DecodeErrorKind::NotJson)
    }
}
