//! Decoding: names, values with a rule, and values that were not given.

use core::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::json::de::{ARGUMENTS, DecodeErrorKind, NEXT_IS_NULL, NEXT_IS_VALUE, expected, rule};

/// A rule in the form that [`rule`] takes.
pub type Rule = &'static [&'static str];

/// The names of a struct's fields or of an enum's variants. As a serde seed, it decodes a name and
/// returns its position. For an unknown name it returns the number of names, or an error as
/// [`otherwise`](Self::otherwise) says. All structs and enums share this code.
pub struct Names {
    /// All names, followed by their aliases.
    pub names: &'static [&'static str],
    /// The position of the real name, for each alias.
    pub aliases: &'static [usize],
    /// The treatment of a name that is not in `names`.
    pub otherwise: Otherwise,
}

/// The treatment of an unknown name.
pub enum Otherwise {
    Ignored,
    /// The name is refused in the arguments of a call, and ignored elsewhere. The error lists these
    /// fields, without aliases.
    RefusedInArguments(&'static [&'static str]),
    /// An unknown field is refused everywhere. The error lists these fields.
    UnknownField(&'static [&'static str]),
    /// An unknown variant of an enum is refused everywhere. The error lists these variants.
    UnknownVariant(&'static [&'static str]),
}

impl<'de> DeserializeSeed<'de> for &Names {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Names {
    /// The place of a name; none if it is not among them.
    #[inline]
    fn place(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|known| known.as_bytes() == name)
    }

    /// The treatment of a name that is not known.
    #[cold]
    fn unknown<E: Error>(&self, name: &[u8], in_arguments: bool) -> Result<usize, E> {
        let name = str::from_utf8(name).unwrap_or_default();
        match &self.otherwise {
            Otherwise::RefusedInArguments(known) if in_arguments => Err(E::unknown_field(name, known)),
            Otherwise::Ignored | Otherwise::RefusedInArguments(_) => Ok(self.names.len()),
            Otherwise::UnknownField(known) => Err(E::unknown_field(name, known)),
            Otherwise::UnknownVariant(known) => Err(E::unknown_variant(name, known)),
        }
    }
}

impl Visitor<'_> for &Names {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        self.visit_bytes(name.as_bytes())
    }

    /// The decoder of this crate gives names of a call's arguments in this way, and no others.
    fn visit_borrowed_bytes<E: Error>(self, name: &[u8]) -> Result<usize, E> {
        self.place(name).map_or_else(|| self.unknown(name, true), Ok)
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<usize, E> {
        self.place(name).map_or_else(|| self.unknown(name, false), Ok)
    }
}

/// The attributes of an argument, as data. As a serde seed, it decodes the value and checks it.
pub struct Argument<T> {
    expected: Option<Rule>,
    broken: Option<fn(&T) -> Option<Rule>>,
    absent: fn(&mut Option<T>) -> bool,
}

impl<T> Argument<T> {
    /// An argument without rules. `absent` inserts the default of a value that was not given, and
    /// returns whether the value may be omitted.
    pub const fn new(absent: fn(&mut Option<T>) -> bool) -> Self {
        Self { expected: None, broken: None, absent }
    }

    /// Adds a check of the decoded value, for types that are no array, map or struct. `broken`
    /// returns the rule that the value breaks. `expected` is what the error names as expected if
    /// decoding fails.
    #[must_use]
    pub const fn checked(self, expected: Option<Rule>, broken: fn(&T) -> Option<Rule>) -> Self {
        Self { expected, broken: Some(broken), ..self }
    }
}

/// The value of an argument that may be omitted, for decoders that do not say whether it is null,
/// which counts as omitted.
struct OrNull<'s, T>(&'s Argument<T>);

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for OrNull<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for OrNull<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for &Argument<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let value = match (T::deserialize(deserializer), self.expected) {
            (Err(_), Some(text)) => return Err(expected(text)),
            (value, _) => value?,
        };
        match self.broken.and_then(|broken| broken(&value)) {
            None => Ok(value),
            Some(broken) => Err(rule(broken)),
        }
    }
}

/// The place that an argument is decoded into.
pub struct Slot<'s, T> {
    /// The decoded value; none until the member was read.
    pub value: Option<T>,
    argument: &'s Argument<T>,
}

impl<'s, T> Slot<'s, T> {
    /// An empty place for `argument`.
    pub const fn new(argument: &'s Argument<T>) -> Self {
        Self { value: None, argument }
    }
}

/// A [`Slot`] of any type.
pub trait AnySlot<'de, A: MapAccess<'de>> {
    /// Whether the place has a value.
    fn is_given(&self) -> bool;

    /// Decodes the value of the current member into the place.
    fn read(&mut self, map: &mut A) -> Result<(), A::Error>;

    /// Whether the place has a value or may be without one. In the second case its default is
    /// inserted.
    fn is_complete(&mut self) -> bool;
}

impl<'de, T: Deserialize<'de>, A: MapAccess<'de>> AnySlot<'de, A> for Slot<'_, T> {
    fn is_given(&self) -> bool {
        self.value.is_some()
    }

    fn read(&mut self, map: &mut A) -> Result<(), A::Error> {
        // The first is a constant for the decoder of this crate: it has no code for the rest.
        let says_null = matches!(map.size_hint(), Some(NEXT_IS_VALUE | NEXT_IS_NULL));
        if says_null || !(self.argument.absent)(&mut self.value) {
            self.value = Some(map.next_value_seed(self.argument)?);
            return Ok(());
        }
        // The default stays in the place of null.
        if let Some(value) = map.next_value_seed(OrNull(self.argument))? {
            self.value = Some(value);
        }
        Ok(())
    }

    fn is_complete(&mut self) -> bool {
        self.value.is_some() || (self.argument.absent)(&mut self.value)
    }
}

/// Decodes the members of a struct, each into its place. All structs share this code.
#[inline(never)]
pub fn members<'de, A: MapAccess<'de>>(
    map: &mut A,
    known: &'static Names,
    places: &mut [&mut dyn AnySlot<'de, A>],
) -> Result<(), A::Error> {
    while let Some(place) = map.next_key_seed(known)? {
        let place = match place.checked_sub(places.len()) {
            Some(alias) => known.aliases.get(alias).copied(),
            None => Some(place),
        };
        if let Some((place, name)) = place.and_then(|place| Some((places.get_mut(place)?, *known.names.get(place)?))) {
            if place.is_given() {
                return Err(A::Error::duplicate_field(name));
            }
            // The default stays in the place of null.
            let is_omitted = map.size_hint() == Some(NEXT_IS_NULL) && place.is_complete();
            if !is_omitted {
                place.read(map)?;
                continue;
            }
        }
        map.next_value::<IgnoredAny>()?;
    }
    for (place, name) in places.iter_mut().zip(known.names) {
        if !place.is_complete() {
            return Err(A::Error::missing_field(name));
        }
    }
    Ok(())
}

/// The arguments of an operation that has none.
pub(super) struct NoArguments;

static NO_NAMES: Names = Names { names: &[], aliases: &[], otherwise: Otherwise::RefusedInArguments(&[]) };

impl<'de> Deserialize<'de> for NoArguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(ARGUMENTS, NO_NAMES.names, Self)
    }
}

impl<'de> Visitor<'de> for NoArguments {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        members(&mut map, &NO_NAMES, &mut []).map(|()| self)
    }
}

/// The error for a struct that lacks one of its fields. It does not occur, because [`members`]
/// checks the fields.
#[cold]
pub fn incomplete<E: Error>() -> E {
    E::missing_field("")
}

/// The value of a field that was not given, for a type whose schema is written in the attribute.
/// Returns none if the field must be given.
pub fn missing_field<'de, T: Deserialize<'de>>() -> Option<T> {
    struct Missing;

    impl<'de> Deserializer<'de> for Missing {
        type Error = DecodeErrorKind;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, DecodeErrorKind> {
            Err(DecodeErrorKind::Refused)
        }

        fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeErrorKind> {
            visitor.visit_none()
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
            newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
        }
    }

    T::deserialize(Missing).ok()
}
