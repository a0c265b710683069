//! The traits that arguments and outputs implement, and their implementations for the types of the language and of this crate.

use core::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroU128, NonZeroUsize};

use heapless::LenType;
use serde::Serialize;

use crate::call::Outcome;
use crate::context::Context;
use crate::duration::GoDuration;
use crate::failure::Failure;
use crate::json::{Decimal, RawJson};
use crate::schema::{HasNode, Schema, SchemaNode};

/// A type for arguments. It has a schema, and its decoder is its
/// [`Deserialize`](serde::Deserialize).
///
/// `#[derive(Params)]` implements both. A type of your own can implement both by hand:
///
/// ```
/// use rigline::{params::SchemaNode, Params};
///
/// /// An I²C address.
/// struct Address(u8);
///
/// impl Params for Address {
///     const SCHEMA: &'static SchemaNode = &SchemaNode::Integer { minimum: 0x08, maximum: 0x77 };
/// }
///
/// impl<'de> serde::Deserialize<'de> for Address {
///     fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
///         match u8::deserialize(deserializer)? {
///             address @ 0x08..=0x77 => Ok(Self(address)),
///             _ => Err(rigline::json::de::rule(const { &["is not an address from 8 to 119"] })),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no schema, so that it cannot be an argument",
    label = "has no schema",
    note = "a struct or an enum of yours gets one, and its decoder, by `#[derive(rigline::Params)]`",
    note = "for any other type that implements serde's `Deserialize`, write the schema yourself: `#[param(schema = \"{{...}}\")]`",
    note = "`String`, `Vec`, `Cow` and `BTreeMap` need the feature `alloc` of rigline, `HashMap` the feature `std`"
)]
pub trait Params: Sized {
    /// The schema of the type.
    const SCHEMA: &'static SchemaNode;

    /// Whether a field of this type may be left out. This is true for an `Option`.
    const OPTIONAL: bool = false;

    /// Makes the value of a field that was left out; none if the field must be given. For an
    /// `Option` the value is `None`.
    const MISSING: fn() -> Option<Self> = || None;
}

/// A type for outputs. It has a schema, and it is written by its [`Serialize`].
///
/// `#[derive(Outputs)]` implements this trait and [`Serialize`], for structs and for enums whose
/// variants are names.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no schema, so that it cannot be an output",
    label = "has no schema",
    note = "a struct or an enum of yours gets one, and its serializer, by `#[derive(rigline::Outputs)]`",
    note = "for any other type that implements serde's `Serialize`, write the schema yourself: `#[output(schema = \"{{...}}\")]`"
)]
pub trait OutputValue: Serialize {
    /// The schema of the type.
    const SCHEMA: &'static SchemaNode;
    /// Tells whether there is no value, so that the output is left out, as it is for `None`. A type
    /// whose outputs are never left out has no such function.
    const IS_ABSENT: Option<fn(&Self) -> bool> = None;
}

/// A set of named and typed outputs: a struct with `#[derive(Outputs)]`.
///
/// ```
/// use rigline::{Context, Failure, Outcome, Outputs, json::Decimal};
///
/// #[derive(Outputs)]
/// struct Measured {
///     /// What was measured, in volts.
///     volts: Decimal<3>,
///     /// How many samples that is the mean of.
///     samples: u16,
/// }
///
/// fn measure(cx: &mut Context<'_>) -> Result<Outcome, Failure> {
///     cx.outputs(&Measured { volts: Decimal::from_mantissa(3300), samples: 16 })?;
///     cx.done("3V3 is in order")
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of outputs",
    label = "not a struct with `#[derive(Outputs)]`",
    note = "an operation returns `Outcome`, `()`, a struct with `#[derive(rigline::Outputs)]`, or a map with string keys"
)]
pub trait Outputs: OutputValue {
    /// Writes each field as an output of the same name.
    fn write(&self, cx: &mut Context<'_>) -> Result<(), Failure>;
}

impl Context<'_> {
    /// Writes each field of a struct with `#[derive(Outputs)]` as an output of the same name.
    ///
    /// # Errors
    /// As [`output`](Self::output).
    pub fn outputs<T: Outputs>(&mut self, value: &T) -> Result<(), Failure> {
        value.write(self)
    }
}

/// A type that an operation's method may return in its `Result`.
#[diagnostic::on_unimplemented(
    message = "an operation cannot return `{Self}`",
    label = "not an outcome",
    note = "an operation returns a `Result` of `Outcome`, `()`, or a struct with `#[derive(rigline::Outputs)]`"
)]
pub trait Ending {
    /// The schema of the outputs, if it is known.
    #[doc(hidden)]
    const OUTPUTS: Option<&'static SchemaNode>;

    /// The schema of the outputs as text, if it is known.
    #[doc(hidden)]
    const RENDERED: Option<Schema> = None;

    /// Writes the outputs, if there are any, and ends the call.
    #[doc(hidden)]
    fn end(self, cx: &mut Context<'_>) -> Result<Outcome, Failure>;
}

impl Ending for Outcome {
    const OUTPUTS: Option<&'static SchemaNode> = None;

    fn end(self, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(self)
    }
}

impl Ending for () {
    const OUTPUTS: Option<&'static SchemaNode> = None;

    fn end(self, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(Outcome::DONE)
    }
}

impl<T: Outputs> Ending for T {
    const OUTPUTS: Option<&'static SchemaNode> = Some(T::SCHEMA);
    const RENDERED: Option<Schema> = Some(Schema::of_outputs::<T>());

    fn end(self, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        self.write(cx)?;
        Ok(Outcome::DONE)
    }
}

impl Schema {
    /// The schema of the arguments `T`, made at compile time.
    pub const fn of<T: Params>() -> Self {
        Self::rendered_from::<Arguments<T>>()
    }

    /// The schema of the outputs `T`, made at compile time.
    pub const fn of_outputs<T: OutputValue>() -> Self {
        Self::rendered_from::<OutputsOf<T>>()
    }
}

struct Arguments<T>(core::marker::PhantomData<T>);

impl<T: Params> HasNode for Arguments<T> {
    const NODE: &'static SchemaNode = T::SCHEMA;
}

struct OutputsOf<T>(core::marker::PhantomData<T>);

impl<T: OutputValue> HasNode for OutputsOf<T> {
    const NODE: &'static SchemaNode = T::SCHEMA;
}

macro_rules! both {
    ($([$($generics:tt)*] $type:ty = $node:expr;)*) => {$(
        #[allow(clippy::cast_possible_wrap, reason = "the minimum of an unsigned type is 0")]
        impl<$($generics)*> Params for $type {
            const SCHEMA: &'static SchemaNode = &$node;
        }

        #[allow(clippy::cast_possible_wrap, reason = "the minimum of an unsigned type is 0")]
        impl<$($generics)*> OutputValue for $type {
            const SCHEMA: &'static SchemaNode = &$node;
        }
    )*};
}

macro_rules! integers {
    ($($type:ident)*) => {
        both! {$([] $type = SchemaNode::Integer { minimum: $type::MIN as i128, maximum: $type::MAX as u128 };)*}
    };
}

macro_rules! non_zero {
    ($($type:ident)*) => {
        both! {$([] $type = SchemaNode::Integer { minimum: 1, maximum: $type::MAX.get() as u128 };)*}
    };
}

integers! { u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize }
non_zero! { NonZeroU8 NonZeroU16 NonZeroU32 NonZeroU64 NonZeroU128 NonZeroUsize }

const TEXT: SchemaNode = SchemaNode::String { min_length: 0, max_length: usize::MAX, pattern: "" };

both! {
    [] bool = SchemaNode::Bool;
    [] char = SchemaNode::String { min_length: 1, max_length: 1, pattern: "" };
    [] f32 = SchemaNode::Number { multiple_of: "", minimum: "-3.4028235e38", maximum: "3.4028235e38" };
    [] f64 = SchemaNode::Number { multiple_of: "", minimum: "", maximum: "" };
    [const PLACES: u8] Decimal<PLACES> = decimal(PLACES);
    [] &str = TEXT;
    [L: LenType, const N: usize] heapless::String<N, L> = SchemaNode::String { min_length: 0, max_length: N, pattern: "" };
    // `[-+]?([0-9]*(\.[0-9]*)?[a-z]+)+` with a digit in each number, and `0`.
    [] GoDuration = SchemaNode::String {
        min_length: 0,
        max_length: usize::MAX,
        pattern: r"^[-+]?(0|(([0-9]+(\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$",
    };
    [] RawJson<'_> = SchemaNode::Any;
}

const fn decimal(places: u8) -> SchemaNode {
    match places {
        0 => SchemaNode::Integer { minimum: i32::MIN as i128, maximum: i32::MAX as u128 },
        1 => SchemaNode::Number { multiple_of: "0.1", minimum: "-214748364.8", maximum: "214748364.7" },
        2 => SchemaNode::Number { multiple_of: "0.01", minimum: "-21474836.48", maximum: "21474836.47" },
        3 => SchemaNode::Number { multiple_of: "0.001", minimum: "-2147483.648", maximum: "2147483.647" },
        4 => SchemaNode::Number { multiple_of: "0.0001", minimum: "-214748.3648", maximum: "214748.3647" },
        5 => SchemaNode::Number { multiple_of: "0.00001", minimum: "-21474.83648", maximum: "21474.83647" },
        6 => SchemaNode::Number { multiple_of: "0.000001", minimum: "-2147.483648", maximum: "2147.483647" },
        7 => SchemaNode::Number { multiple_of: "0.0000001", minimum: "-214.7483648", maximum: "214.7483647" },
        8 => SchemaNode::Number { multiple_of: "0.00000001", minimum: "-21.47483648", maximum: "21.47483647" },
        _ => SchemaNode::Number { multiple_of: "0.000000001", minimum: "-2.147483648", maximum: "2.147483647" },
    }
}

/// A reference is written as what it points to.
impl<T: OutputValue> OutputValue for &T {
    const SCHEMA: &'static SchemaNode = T::SCHEMA;
    const IS_ABSENT: Option<fn(&Self) -> bool> = match T::IS_ABSENT {
        Some(_) => Some(|value| T::IS_ABSENT.is_some_and(|is_absent| is_absent(value))),
        None => None,
    };
}

impl<T: Params> Params for Option<T> {
    const SCHEMA: &'static SchemaNode = &SchemaNode::Nullable(T::SCHEMA);
    const OPTIONAL: bool = true;

    const MISSING: fn() -> Option<Self> = || Some(None);
}

impl<T: OutputValue> OutputValue for Option<T> {
    const SCHEMA: &'static SchemaNode = &SchemaNode::Nullable(T::SCHEMA);
    const IS_ABSENT: Option<fn(&Self) -> bool> = Some(Self::is_none);
}

/// The types that hold others, for arguments and for outputs.
macro_rules! holders {
    ($trait:ident) => {
        impl<T: $trait, L: LenType, const N: usize> $trait for heapless::Vec<T, N, L> {
            const SCHEMA: &'static SchemaNode = &SchemaNode::Array { items: T::SCHEMA, min_items: 0, max_items: N };
        }

        impl<K: Key + Eq + Serialize, V: $trait, const N: usize> $trait for heapless::LinearMap<K, V, N> {
            const SCHEMA: &'static SchemaNode =
                &SchemaNode::Map { max_key: K::MAX_LENGTH, values: V::SCHEMA, max_members: N };
        }

        #[cfg(feature = "alloc")]
        impl<T: $trait> $trait for alloc::vec::Vec<T> {
            const SCHEMA: &'static SchemaNode =
                &SchemaNode::Array { items: T::SCHEMA, min_items: 0, max_items: usize::MAX };
        }

        #[cfg(feature = "alloc")]
        impl<T: $trait> $trait for alloc::boxed::Box<T> {
            const SCHEMA: &'static SchemaNode = T::SCHEMA;
        }

        #[cfg(feature = "alloc")]
        impl<K: Key + Serialize, V: $trait> $trait for alloc::collections::BTreeMap<K, V> {
            const SCHEMA: &'static SchemaNode =
                &SchemaNode::Map { max_key: K::MAX_LENGTH, values: V::SCHEMA, max_members: usize::MAX };
        }

        #[cfg(feature = "std")]
        impl<K: Key + Serialize, V: $trait, S> $trait for std::collections::HashMap<K, V, S> {
            const SCHEMA: &'static SchemaNode =
                &SchemaNode::Map { max_key: K::MAX_LENGTH, values: V::SCHEMA, max_members: usize::MAX };
        }
    };
}

holders!(Params);
holders!(OutputValue);

#[cfg(feature = "alloc")]
impl<K: Key + AsRef<str> + Serialize, V: OutputValue> Outputs for alloc::collections::BTreeMap<K, V> {
    fn write(&self, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.iter().try_for_each(|(name, value)| cx.output(name.as_ref(), value))
    }
}

#[cfg(feature = "std")]
impl<K: Key + AsRef<str> + Serialize, V: OutputValue, S> Outputs for std::collections::HashMap<K, V, S> {
    fn write(&self, cx: &mut Context<'_>) -> Result<(), Failure> {
        self.iter().try_for_each(|(name, value)| cx.output(name.as_ref(), value))
    }
}

impl<T: Params, const N: usize> Params for [T; N] {
    const SCHEMA: &'static SchemaNode = &SchemaNode::Array { items: T::SCHEMA, min_items: N, max_items: N };
}

/// The lengths for which serde has arrays.
macro_rules! arrays {
    ($($n:literal)*) => {$(
        impl<T: OutputValue> OutputValue for [T; $n] {
            const SCHEMA: &'static SchemaNode = &SchemaNode::Array { items: T::SCHEMA, min_items: $n, max_items: $n };
        }
    )*};
}

arrays! { 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 }

#[cfg(feature = "alloc")]
mod allocated {
    use super::{Key, OutputValue, Params, SchemaNode, TEXT};
    use alloc::{borrow::Cow, string::String};

    both! {
        [] String = TEXT;
        [] Cow<'_, str> = TEXT;
        [] crate::json::raw::RawJsonBuf = SchemaNode::Any;
    }

    impl Key for String {}
    impl Key for Cow<'_, str> {}
}

/// A string type that can be the key of a map.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot name the members of a JSON object",
    note = "a map's keys are strings: `&str`, `heapless::String`, or `String` with the feature `alloc`"
)]
pub trait Key {
    /// The greatest length of a key, in characters.
    const MAX_LENGTH: usize = usize::MAX;
}

impl Key for &str {}

impl<L: LenType, const N: usize> Key for heapless::String<N, L> {
    const MAX_LENGTH: usize = N;
}
