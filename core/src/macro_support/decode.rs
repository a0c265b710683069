//! Decoding: names, values with a rule, and values that were not given.

use core::fmt;
use core::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, Visitor};

use crate::json::de::{expected, rule};

/// A rule, as [`rule`] takes it.
pub type Rule = &'static [&'static str];

/// Decodes a name and returns its place among `names`, or as many as there are for a name that is none of them.
///
/// One piece of code for the fields of every struct and the variants of every enum.
pub struct Names {
    pub names: &'static [&'static str],
    pub otherwise: Otherwise,
}

/// What a name that is not known comes to.
pub enum Otherwise {
    Ignored,
    /// The fields to name in the error, without aliases.
    UnknownField(&'static [&'static str]),
    /// The same, of an enum.
    UnknownVariant(&'static [&'static str]),
}

impl<'de> DeserializeSeed<'de> for Names {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Names {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<usize, E> {
        match (self.names.iter().position(|known| known.as_bytes() == name), self.otherwise) {
            (Some(place), _) => Ok(place),
            (None, Otherwise::Ignored) => Ok(self.names.len()),
            (None, Otherwise::UnknownField(known)) => {
                Err(E::unknown_field(str::from_utf8(name).unwrap_or_default(), known))
            }
            (None, Otherwise::UnknownVariant(known)) => {
                Err(E::unknown_variant(str::from_utf8(name).unwrap_or_default(), known))
            }
        }
    }
}

/// Decodes a value, and checks it while the decoder still knows where it stands.
pub struct Checked<T, F> {
    expected: Option<Rule>,
    check: F,
    of: PhantomData<fn() -> T>,
}

/// A [`Checked`]; `check` gives the rule that the value breaks. What is no `T` is answered with what is `expected`, for types
/// without parts.
pub fn checked<'de, T: Deserialize<'de>, F: FnOnce(&T) -> Option<Rule>>(
    expected: Option<Rule>,
    check: F,
) -> Checked<T, F> {
    Checked { expected, check, of: PhantomData }
}

impl<'de, T: Deserialize<'de>, F: FnOnce(&T) -> Option<Rule>> DeserializeSeed<'de> for Checked<T, F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = T::deserialize(deserializer).map_err(|error| self.expected.map_or(error, expected))?;
        match (self.check)(&value) {
            None => Ok(value),
            Some(broken) => Err(rule(broken)),
        }
    }
}

/// The value of a field that was not given, of a type whose schema is written out.
pub fn missing_field<'de, T: Deserialize<'de>, E: Error>(name: &'static str) -> Result<T, E> {
    struct Missing<E>(&'static str, PhantomData<E>);

    impl<'de, E: Error> Deserializer<'de> for Missing<E> {
        type Error = E;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, E> {
            Err(E::missing_field(self.0))
        }

        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
            visitor.visit_none()
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
            newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }

    T::deserialize(Missing(name, PhantomData))
}
