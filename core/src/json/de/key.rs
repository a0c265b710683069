//! Names: of members, of variants without content.

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, VariantAccess, Visitor};

use super::error::DecodeErrorKind;
use super::scalar::{one_char, read_f32, read_f64};
use crate::json::number;
use crate::json::text::{NUMBER_TOKEN, RAW_TOKEN};

pub(super) const ONE_MEMBER: &str = "an object of one member";

/// The decoded text of a member's name, or of a variant without content.
pub(super) struct Name<'de> {
    pub(super) text: &'de [u8],
    /// Whether an identifier is handed out as bytes. Not in a map: serde's `flatten` keeps the keys
    /// that it sees.
    pub(super) as_bytes: bool,
    /// It is of a struct that refuses those it does not know, which its visitor is told by getting
    /// it as borrowed bytes.
    pub(super) is_strict: bool,
}

impl<'de> Name<'de> {
    fn str(&self) -> Result<&'de str, DecodeErrorKind> {
        str::from_utf8(self.text).map_err(|_| DecodeErrorKind::NotJson)
    }

    /// The digits of an integer in its plain form: `"1.0"` and `"1e0"` would be further names for the key `1`.
    fn digits(&self, what: &'static str) -> Result<number::Digits<'de>, DecodeErrorKind> {
        number::Digits::new(self.text).filter(number::Digits::is_plain).ok_or(DecodeErrorKind::Expected(what))
    }
}

macro_rules! integer_keys {
    ($($method:ident $visit:ident $int:ident $to:ident $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            let value = self.digits($what)?.$to().ok().and_then(|value| $int::try_from(value).ok());
            visitor.$visit(value.ok_or(DecodeErrorKind::Expected($what))?)
        }
    )*};
}

macro_rules! float_keys {
    ($($method:ident $visit:ident $read:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            let value = number::Digits::new(self.text).and_then(|_| $read(self.text));
            visitor.$visit(value.ok_or(DecodeErrorKind::Expected("a number as the member name"))?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = DecodeErrorKind;

    integer_keys! {
        deserialize_u8 visit_u8 u8 to_u32 "an integer from 0 to 255 as the member name";
        deserialize_u16 visit_u16 u16 to_u32 "an integer from 0 to 65535 as the member name";
        deserialize_u32 visit_u32 u32 to_u32 "an integer of 32 bits without sign as the member name";
        deserialize_u64 visit_u64 u64 to_u64 "an integer of 64 bits without sign as the member name";
        deserialize_u128 visit_u128 u128 to_u128 "an integer of 128 bits without sign as the member name";
        deserialize_i8 visit_i8 i8 to_i32 "an integer from -128 to 127 as the member name";
        deserialize_i16 visit_i16 i16 to_i32 "an integer from -32768 to 32767 as the member name";
        deserialize_i32 visit_i32 i32 to_i32 "an integer of 32 bits as the member name";
        deserialize_i64 visit_i64 i64 to_i64 "an integer of 64 bits as the member name";
        deserialize_i128 visit_i128 i128 to_i128 "an integer of 128 bits as the member name";
    }

    float_keys! { deserialize_f32 visit_f32 read_f32 deserialize_f64 visit_f64 read_f64 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_borrowed_str(self.str()?)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        match self.text {
            b"true" => visitor.visit_bool(true),
            b"false" => visitor.visit_bool(false),
            _ => Err(DecodeErrorKind::Expected("true or false as the member name")),
        }
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_char(one_char(self.text)?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_borrowed_bytes(self.text)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_borrowed_bytes(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_some(self)
    }

    // As in `decoder`: the name is a constant at the call.
    #[inline(always)]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        if name == RAW_TOKEN || name == NUMBER_TOKEN {
            Err(DecodeErrorKind::Unexpected("a member name"))
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_enum(self)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        if self.is_strict {
            visitor.visit_borrowed_bytes(self.text)
        } else if self.as_bytes {
            visitor.visit_bytes(self.text)
        } else {
            self.deserialize_any(visitor)
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        str string unit unit_struct seq tuple tuple_struct map struct
    }
}

impl<'de> EnumAccess<'de> for Name<'de> {
    type Error = DecodeErrorKind;
    type Variant = NoContent;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, NoContent), DecodeErrorKind> {
        Ok((seed.deserialize(Name { as_bytes: true, ..self })?, NoContent))
    }
}

/// The content of a variant that is a mere name.
pub(super) struct NoContent;

impl<'de> VariantAccess<'de> for NoContent {
    type Error = DecodeErrorKind;

    fn unit_variant(self) -> Result<(), DecodeErrorKind> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, DecodeErrorKind> {
        Err(DecodeErrorKind::Expected(ONE_MEMBER))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, DecodeErrorKind> {
        Err(DecodeErrorKind::Expected(ONE_MEMBER))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, DecodeErrorKind> {
        Err(DecodeErrorKind::Expected(ONE_MEMBER))
    }
}
