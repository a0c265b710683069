//! Rules about lengths, and texts and booleans as defaults.

use heapless::LenType;

use crate::schema::{Choice, OneOf, has_name};

/// A type whose values have a length, for the attributes `min_length` and `max_length`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no length",
    label = "no min_length or max_length here",
    note = "strings, arrays, vectors and maps have one, and an `Option` of these"
)]
pub trait Length {
    /// The length in characters, elements or members; `None` if there is no value.
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

/// A type whose value can be compared with a list of allowed texts.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not text",
    label = "no one_of here",
    note = "texts are `&str`, `heapless::String`, `String`, `Cow<str>`, and an `Option` of these"
)]
pub trait Chosen {
    /// The text; `None` if there is no value.
    fn text(&self) -> Option<&str>;
}

impl Chosen for &str {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl<L: LenType, const N: usize> Chosen for heapless::String<N, L> {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

#[cfg(feature = "alloc")]
impl Chosen for alloc::string::String {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

#[cfg(feature = "alloc")]
impl Chosen for alloc::borrow::Cow<'_, str> {
    fn text(&self) -> Option<&str> {
        Some(self)
    }
}

impl<T: Chosen> Chosen for Option<T> {
    fn text(&self) -> Option<&str> {
        self.as_ref().and_then(Chosen::text)
    }
}

/// Whether the value is a text that is not in `names`.
pub fn is_none_of(value: &dyn Chosen, names: &[&str]) -> bool {
    value.text().is_some_and(|text| !names.contains(&text))
}

/// The list in the attribute `one_of`: texts, or texts with descriptions.
pub struct List<T>(pub T);

impl List<&'static [&'static str]> {
    /// The list as a part of a schema.
    pub const fn one_of(&self) -> OneOf {
        OneOf::Names(self.0)
    }
}

impl<const N: usize> List<&'static [&'static str; N]> {
    /// The list as a part of a schema.
    pub const fn one_of(&self) -> OneOf {
        OneOf::Names(self.0)
    }
}

impl List<&'static [Choice]> {
    /// The list as a part of a schema.
    pub const fn one_of(&self) -> OneOf {
        OneOf::Described(self.0)
    }
}

impl<const N: usize> List<&'static [Choice; N]> {
    /// The list as a part of a schema.
    pub const fn one_of(&self) -> OneOf {
        OneOf::Described(self.0)
    }
}

/// The length of the decoder's list for these names. A single name is listed twice, because the
/// decoder takes a list of one as a sentence.
///
/// # Panics
/// If there are no names. This is called in a constant, so that it is an error of the compiler.
#[allow(clippy::panic, reason = "it is for constants, where it is a compile error")]
pub const fn places(one_of: &OneOf) -> usize {
    match one_of.len() {
        0 => panic!("one_of names no text"),
        1 => 2,
        more => more,
    }
}

/// A type that can have a text as its default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not text",
    label = "no text as default here",
    note = "texts are `&str`, `heapless::String`, `String`, enums with `#[derive(Params)]`, and an `Option` of these",
    note = "the default of another type can be written as an expression: `default = Type::new(\"text\")`"
)]
pub trait FromText: Sized {
    /// The texts that the type accepts, for [`Takes::check`].
    const TAKES: Takes;

    fn from_text(text: &'static str) -> Option<Self>;
}

/// The texts that a type accepts.
pub enum Takes {
    UpToBytes(usize),
    OneOf(&'static [&'static str]),
}

impl Takes {
    /// Checks that the type can hold `text`.
    ///
    /// # Panics
    /// If it cannot. This is called in a constant, so that it is an error of the compiler.
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

/// A type that can have `true` or `false` as its default.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a `bool`",
    label = "neither true nor false is a default here"
)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    type Small = heapless::String<2>;

    #[test]
    fn a_default_is_a_text_that_the_type_can_hold() {
        let holds = |takes: &Takes, text: &str| catch_unwind(|| takes.check(text)).is_ok();
        for (text, expected) in [("", true), ("ab", true), ("é", true), ("abc", false), ("éa", false)] {
            assert_eq!(holds(&Small::TAKES, text), expected, "{text}");
            assert_eq!(holds(&<Option<Small>>::TAKES, text), expected, "{text}");
            assert!(holds(&<&str>::TAKES, text), "{text}");
        }
        let names = Takes::OneOf(&["slow", "fast"]);
        for (text, expected) in [("slow", true), ("fast", true), ("slo", false), ("slower", false), ("", false)] {
            assert_eq!(holds(&names, text), expected, "{text}");
        }
        assert!(!holds(&Takes::OneOf(&[]), "slow"));
        assert_eq!(Small::from_text("ab").as_deref(), Some("ab"));
        assert_eq!(Small::from_text("abc"), None);
        assert_eq!(<Option<Small>>::from_text("abc"), None);
    }

    /// The decoder takes a list of one as a sentence.
    #[test]
    fn a_single_name_is_listed_twice() {
        const ONE: OneOf = OneOf::Names(&["a"]);
        const THREE: OneOf = OneOf::Described(&[Choice::new("a", ""), Choice::new("b", "x"), Choice::new("c", "")]);
        assert_eq!(places(&ONE), 2);
        assert_eq!(ONE.names::<{ places(&ONE) }>(), ["a", "a"]);
        assert_eq!(places(&OneOf::Names(&["a", "b"])), 2);
        assert_eq!(places(&THREE), 3);
        assert_eq!(THREE.names::<{ places(&THREE) }>(), ["a", "b", "c"]);
        assert!(catch_unwind(|| places(&OneOf::Names(&[]))).is_err());
    }
}
