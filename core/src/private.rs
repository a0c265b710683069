//! What the macros' code is made of. Not for anybody else: it changes without notice.
#![allow(clippy::panic, reason = "in constants only, where a panic is an error of the compiler")]
#![allow(missing_docs)]

use core::fmt;
use core::marker::PhantomData;
use core::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize};

use heapless::LenType;

pub use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as DeError, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
pub use serde::ser::{Serialize, SerializeStruct, Serializer};

pub use crate::apart::apart;
pub use crate::event::Event;
pub use crate::json::de::{expected, rule};
pub use crate::manifest::{Effects, Guarantee, Kind as ModuleKind};
pub use crate::params::{Ending, Field, Keywords, Node, OutputValue, Outputs, Params};
pub use crate::service::JobRun;
pub use crate::{Call, CallContext, Config, Context, Extension, Failure, Manifest, Operation, Outcome, Schema};

use crate::json::Decimal;
use crate::schema::has_name;

/// What an operation's arguments and a configuration are decoded into.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be decoded from a call's arguments or a configuration",
    label = "has no decoder",
    note = "a struct or an enum of yours gets one, and its schema, by `#[derive(rigline::Params)]`"
)]
pub trait Arguments<'de>: Deserialize<'de> {}

#[diagnostic::do_not_recommend]
impl<'de, T: Deserialize<'de>> Arguments<'de> for T {}

/// [`Call::args`].
#[inline]
pub fn arguments<'a, T: Arguments<'a>>(call: &mut Call<'a>) -> Result<T, Failure> {
    call.args()
}

/// [`Config::get`].
#[inline]
pub fn configuration<'a, T: Arguments<'a>>(config: &mut Config<'a>) -> Result<T, Failure> {
    config.get()
}

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

    fn visit_str<E: DeError>(self, name: &str) -> Result<usize, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: DeError>(self, name: &[u8]) -> Result<usize, E> {
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
pub fn missing_field<'de, T: Deserialize<'de>, E: DeError>(name: &'static str) -> Result<T, E> {
    struct Missing<E>(&'static str, PhantomData<E>);

    impl<'de, E: DeError> Deserializer<'de> for Missing<E> {
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

/// A number in an attribute: a bound or a default.
#[derive(Clone, Copy)]
pub struct Limit {
    /// Whole numbers, and the mantissas of decimals, in two's complement.
    whole: u128,
    float: f64,
}

/// How a type takes its numbers.
#[derive(Clone, Copy)]
pub enum NumberKind {
    Integer { minimum: i128, maximum: u128 },
    Decimal { places: u8 },
    Float { maximum: f64 },
}

impl NumberKind {
    /// A rule for integers only.
    pub const fn if_integer(self, rule: Rule) -> Option<Rule> {
        if let Self::Integer { .. } = self { Some(rule) } else { None }
    }

    /// A rule for unsigned integers only.
    pub const fn if_from_0(self, rule: Rule) -> Option<Rule> {
        if let Self::Integer { minimum: 0, .. } = self { Some(rule) } else { None }
    }
}

impl Limit {
    /// The number `text`, which is a JSON number; `float` is the same as the compiler reads it.
    ///
    /// # Panics
    /// If the type cannot hold it: in a constant, where this stands, it does not compile.
    pub const fn new(text: &str, float: f64, kind: NumberKind) -> Self {
        let (places, minimum, maximum) = match kind {
            NumberKind::Integer { minimum, maximum } => (0, minimum, maximum),
            NumberKind::Decimal { places } => (places as i32, i32::MIN as i128, i32::MAX as u128),
            NumberKind::Float { maximum } => {
                assert!(float.abs() <= maximum, "the field's type cannot hold this number");
                return Self { whole: 0, float };
            }
        };
        let Some((negative, magnitude)) = scaled(text, places) else {
            panic!("the field's type cannot hold this number exactly");
        };
        let fits = if negative {
            magnitude <= minimum.unsigned_abs() && (minimum < 0 || magnitude == 0)
        } else {
            magnitude <= maximum
        };
        assert!(fits, "the field's type cannot hold this number");
        Self { whole: if negative { magnitude.wrapping_neg() } else { magnitude }, float }
    }

    /// Whether this is below or equal to `other`, in a type of this kind.
    pub const fn at_most(&self, other: &Self, kind: NumberKind) -> bool {
        match kind {
            NumberKind::Float { .. } => self.float <= other.float,
            NumberKind::Integer { minimum: 0.., .. } => self.whole <= other.whole,
            _ => self.whole.cast_signed() <= other.whole.cast_signed(),
        }
    }
}

/// A JSON number times ten to the power of `places`, if that is whole and has up to 38 digits.
const fn scaled(text: &str, places: i32) -> Option<(bool, u128)> {
    let (negative, mut rest) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (mut magnitude, mut scale) = (0u128, places);
    let mut behind_point = false;
    loop {
        rest = match rest {
            [digit @ b'0'..=b'9', tail @ ..] => {
                let Some(ten_times) = magnitude.checked_mul(10) else { return None };
                let Some(sum) = ten_times.checked_add((*digit - b'0') as u128) else { return None };
                magnitude = sum;
                scale -= behind_point as i32;
                tail
            }
            [b'.', tail @ ..] => {
                behind_point = true;
                tail
            }
            _ => break,
        };
    }
    if let [b'e' | b'E', tail @ ..] = rest {
        #[allow(clippy::match_same_arms, reason = "the plus sign is taken off")]
        let (down, mut rest) = match tail {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] | rest => (false, rest),
        };
        let mut exponent = 0i32;
        while let [digit @ b'0'..=b'9', tail @ ..] = rest {
            if exponent < 10_000 {
                exponent = exponent * 10 + (*digit - b'0') as i32;
            }
            rest = tail;
        }
        scale += if down { -exponent } else { exponent };
    }
    while magnitude != 0 && scale != 0 {
        if scale > 0 {
            let Some(more) = magnitude.checked_mul(10) else { return None };
            magnitude = more;
            scale -= 1;
        } else {
            if magnitude % 10 != 0 {
                return None;
            }
            magnitude /= 10;
            scale += 1;
        }
    }
    Some((negative, magnitude))
}

/// A type with a minimum, a maximum and numbers as defaults.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no number",
    label = "no minimum, maximum or number as default here",
    note = "numbers are the integers, `rigline::json::Decimal`, `f32`, `f64`, and an `Option` of these",
    note = "the default of another type can be written as an expression: `default = Type::new(1)`"
)]
pub trait Number: Sized {
    const KIND: NumberKind;

    fn is_below(&self, limit: Limit) -> bool;
    fn is_above(&self, limit: Limit) -> bool;
    fn from_limit(limit: Limit) -> Self;
}

macro_rules! integers {
    ($($type:ident)*) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "Limit::new has checked the range")]
        impl Number for $type {
            const KIND: NumberKind = NumberKind::Integer { minimum: $type::MIN as i128, maximum: $type::MAX as u128 };

            #[inline(always)]
            fn is_below(&self, limit: Limit) -> bool {
                *self < limit.whole as $type
            }

            #[inline(always)]
            fn is_above(&self, limit: Limit) -> bool {
                *self > limit.whole as $type
            }

            #[inline(always)]
            fn from_limit(limit: Limit) -> Self {
                limit.whole as $type
            }
        }
    )*};
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }

macro_rules! non_zero {
    ($($type:ident $inner:ident)*) => {$(
        #[allow(clippy::cast_possible_truncation, reason = "Limit::new has checked the range")]
        impl Number for $type {
            const KIND: NumberKind = NumberKind::Integer { minimum: 1, maximum: $inner::MAX as u128 };

            #[inline(always)]
            fn is_below(&self, limit: Limit) -> bool {
                self.get() < limit.whole as $inner
            }

            #[inline(always)]
            fn is_above(&self, limit: Limit) -> bool {
                self.get() > limit.whole as $inner
            }

            #[inline(always)]
            fn from_limit(limit: Limit) -> Self {
                Self::MIN.saturating_add((limit.whole as $inner).saturating_sub(1))
            }
        }
    )*};
}

non_zero! { NonZeroU8 u8 NonZeroU16 u16 NonZeroU32 u32 NonZeroU64 u64 NonZeroU128 u128 NonZeroUsize usize }

#[allow(clippy::cast_possible_truncation, reason = "a bound is rounded as a value is")]
impl Number for f32 {
    const KIND: NumberKind = NumberKind::Float { maximum: f32::MAX as f64 };

    #[inline(always)]
    fn is_below(&self, limit: Limit) -> bool {
        *self < limit.float as f32
    }

    #[inline(always)]
    fn is_above(&self, limit: Limit) -> bool {
        *self > limit.float as f32
    }

    #[inline(always)]
    fn from_limit(limit: Limit) -> Self {
        limit.float as f32
    }
}

impl Number for f64 {
    const KIND: NumberKind = NumberKind::Float { maximum: f64::MAX };

    #[inline(always)]
    fn is_below(&self, limit: Limit) -> bool {
        *self < limit.float
    }

    #[inline(always)]
    fn is_above(&self, limit: Limit) -> bool {
        *self > limit.float
    }

    #[inline(always)]
    fn from_limit(limit: Limit) -> Self {
        limit.float
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "Limit::new has checked the range")]
impl<const PLACES: u8> Number for Decimal<PLACES> {
    const KIND: NumberKind = NumberKind::Decimal { places: PLACES };

    #[inline(always)]
    fn is_below(&self, limit: Limit) -> bool {
        self.mantissa() < limit.whole as i32
    }

    #[inline(always)]
    fn is_above(&self, limit: Limit) -> bool {
        self.mantissa() > limit.whole as i32
    }

    #[inline(always)]
    fn from_limit(limit: Limit) -> Self {
        Self::from_mantissa(limit.whole as i32)
    }
}

impl<T: Number> Number for Option<T> {
    const KIND: NumberKind = T::KIND;

    #[inline(always)]
    fn is_below(&self, limit: Limit) -> bool {
        self.as_ref().is_some_and(|value| value.is_below(limit))
    }

    #[inline(always)]
    fn is_above(&self, limit: Limit) -> bool {
        self.as_ref().is_some_and(|value| value.is_above(limit))
    }

    #[inline(always)]
    fn from_limit(limit: Limit) -> Self {
        Some(T::from_limit(limit))
    }
}

/// A type with a length.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no length",
    label = "no min_length or max_length here",
    note = "strings, arrays, vectors and maps have one, and an `Option` of these"
)]
pub trait Length {
    /// The length in characters, elements or members; `None` where there is no value.
    fn length(&self) -> Option<usize>;
}

/// Characters: all bytes but those that continue one (RFC 3629 §3).
fn characters(text: &str) -> usize {
    text.bytes().filter(|byte| byte & 0xc0 != 0x80).count()
}

macro_rules! lengths {
    ($([$($generics:tt)*] $type:ty, |$self:ident| $length:expr;)*) => {$(
        impl<$($generics)*> Length for $type {
            fn length(&$self) -> Option<usize> {
                $length
            }
        }
    )*};
}

lengths! {
    [] &str, |self| Some(characters(self));
    [L: LenType, const N: usize] heapless::String<N, L>, |self| Some(characters(self));
    [T, L: LenType, const N: usize] heapless::Vec<T, N, L>, |self| Some(self.len());
    [K: Eq, V, const N: usize] heapless::LinearMap<K, V, N>, |self| Some(self.len());
    [T, const N: usize] [T; N], |self| Some(N);
    [T: Length] Option<T>, |self| self.as_ref().and_then(Length::length);
}

#[cfg(feature = "alloc")]
lengths! {
    [] alloc::string::String, |self| Some(characters(self));
    [] alloc::borrow::Cow<'_, str>, |self| Some(characters(self));
    [T] alloc::vec::Vec<T>, |self| Some(self.len());
    [K, V] alloc::collections::BTreeMap<K, V>, |self| Some(self.len());
}

/// A type with text as its default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no text",
    label = "no text as default here",
    note = "texts are `&str`, `heapless::String`, `String`, enums with `#[derive(Params)]`, and an `Option` of these",
    note = "the default of another type can be written as an expression: `default = Type::new(\"text\")`"
)]
pub trait FromText: Sized {
    /// What it takes, for [`Takes::check`].
    const TAKES: Takes;

    fn from_text(text: &'static str) -> Option<Self>;
}

/// Which texts a type takes.
pub enum Takes {
    UpToBytes(usize),
    OneOf(&'static [&'static str]),
}

impl Takes {
    /// # Panics
    /// If the type cannot hold the text: in a constant, where this stands, it does not compile.
    pub const fn check(&self, text: &str) {
        match self {
            Self::UpToBytes(most) => assert!(text.len() <= *most, "the field's type cannot hold a text of this length"),
            Self::OneOf(names) => assert!(has_name(names, text), "the field's type has no variant of this name"),
        }
    }
}

impl FromText for &str {
    const TAKES: Takes = Takes::UpToBytes(usize::MAX);

    fn from_text(text: &'static str) -> Option<Self> {
        Some(text)
    }
}

impl<L: LenType, const N: usize> FromText for heapless::String<N, L> {
    const TAKES: Takes = Takes::UpToBytes(N);

    fn from_text(text: &'static str) -> Option<Self> {
        let mut string = Self::new();
        string.push_str(text).ok().map(|()| string)
    }
}

#[cfg(feature = "alloc")]
impl FromText for alloc::string::String {
    const TAKES: Takes = Takes::UpToBytes(usize::MAX);

    fn from_text(text: &'static str) -> Option<Self> {
        Some(text.into())
    }
}

#[cfg(feature = "alloc")]
impl FromText for alloc::borrow::Cow<'_, str> {
    const TAKES: Takes = Takes::UpToBytes(usize::MAX);

    fn from_text(text: &'static str) -> Option<Self> {
        Some(Self::Borrowed(text))
    }
}

impl<T: FromText> FromText for Option<T> {
    const TAKES: Takes = T::TAKES;

    fn from_text(text: &'static str) -> Option<Self> {
        T::from_text(text).map(Some)
    }
}

/// A type with `true` or `false` as its default.
#[diagnostic::on_unimplemented(message = "`{Self}` is no `bool`", label = "neither true nor false is a default here")]
pub trait FromBool: Sized {
    fn from_bool(value: bool) -> Self;
}

impl FromBool for bool {
    fn from_bool(value: bool) -> Self {
        value
    }
}

impl<T: FromBool> FromBool for Option<T> {
    fn from_bool(value: bool) -> Self {
        Some(T::from_bool(value))
    }
}

/// The type that a `Result` holds when it is well, whatever it is called.
#[diagnostic::on_unimplemented(
    message = "an operation cannot return `{Self}`",
    label = "not a `Result`",
    note = "an operation returns `Result<Outcome, Failure>`, or a `Result` of a struct with `#[derive(rigline::Outputs)]`"
)]
pub trait Returned {
    type Ok;
    type Err;
    fn result(self) -> Result<Self::Ok, Self::Err>;
}

impl<T, E> Returned for Result<T, E> {
    type Ok = T;
    type Err = E;

    fn result(self) -> Self {
        self
    }
}

/// # Panics
/// If arguments of this schema are no object: in a constant, where this stands, it does not compile.
pub const fn arguments_are_an_object(schema: &Node) {
    let object = match schema {
        Node::Object { .. } | Node::Map { .. } | Node::Any | Node::Text(_) => true,
        Node::Nullable(inner) => matches!(inner, Node::Object { .. } | Node::Map { .. } | Node::Any | Node::Text(_)),
        _ => false,
    };
    assert!(object, "an operation's arguments are an object: a struct with #[derive(Params)]");
}

/// The schema of a value that is there.
pub const fn present(schema: &'static Node) -> &'static Node {
    match schema {
        Node::Nullable(inner) => inner,
        _ => schema,
    }
}

/// The schema of what a method puts out that ends as `T` does. For generic types; see `__schema!` for the others.
pub const fn outputs_of<T: Ending>() -> Option<Schema> {
    T::RENDERED
}

/// The text of a schema that does not depend on generic types, of exactly its length.
#[doc(hidden)]
#[macro_export]
macro_rules! __schema {
    ($node:expr) => {{
        const NODE: &$crate::__private::Node = $node;
        const TEXT: &[::core::primitive::u8; NODE.len()] = &NODE.render(0);
        $crate::Schema::rendered(TEXT)
    }};
}

/// The same, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __optional_schema {
    ($node:expr) => {{
        const NODE: ::core::option::Option<&$crate::__private::Node> = $node;
        const LENGTH: ::core::primitive::usize = match NODE {
            ::core::option::Option::Some(node) => node.len(),
            ::core::option::Option::None => 0,
        };
        const TEXT: &[::core::primitive::u8; LENGTH] = &match NODE {
            ::core::option::Option::Some(node) => node.render(0),
            ::core::option::Option::None => [0; LENGTH],
        };
        match NODE {
            ::core::option::Option::Some(_) => ::core::option::Option::Some($crate::Schema::rendered(TEXT)),
            ::core::option::Option::None => ::core::option::Option::None,
        }
    }};
}
