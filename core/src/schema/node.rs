//! Schemas as trees of constants.

use super::{Schema, contains};

/// A JSON Schema as a tree of constants.
///
/// [`Params`](crate::Params) gives one for each type that arguments are made of, and `#[derive(Params)]` writes it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Node {
    /// Any value: `{}`.
    Any,
    /// A schema that is written out, checked by [`Schema::text`](crate::Schema::text).
    Text(&'static str),
    /// The schema of a boolean.
    Bool,
    /// An integer.
    Integer {
        /// The smallest.
        minimum: i128,
        /// The largest.
        maximum: u128,
    },
    /// A number.
    Number {
        /// The number of which the value is a multiple, as JSON text; empty if any number is accepted.
        multiple_of: &'static str,
        /// The smallest, as JSON text; empty without a bound.
        minimum: &'static str,
        /// The largest, as JSON text; empty without a bound.
        maximum: &'static str,
    },
    /// A string.
    String {
        /// The fewest characters.
        min_length: usize,
        /// The most characters; [`usize::MAX`] is no bound.
        max_length: usize,
        /// A regular expression as JSON string content, escaped already; empty where any text will do.
        pattern: &'static str,
    },
    /// One of these strings.
    Enum {
        /// The strings.
        names: &'static [&'static str],
        /// Their common meaning; empty if none is declared.
        description: &'static str,
    },
    /// An array whose elements all have one schema.
    Array {
        /// Each of its elements.
        items: &'static Node,
        /// The fewest elements.
        min_items: usize,
        /// The most elements; [`usize::MAX`] is no bound.
        max_items: usize,
    },
    /// An object with members of any name.
    Map {
        /// The longest name, in characters; [`usize::MAX`] is no bound.
        max_key: usize,
        /// Each of its values.
        values: &'static Node,
        /// The most members; [`usize::MAX`] is no bound.
        max_members: usize,
    },
    /// An object with members that are known.
    Object {
        /// The description; empty if none is declared.
        description: &'static str,
        /// The members of the object.
        fields: &'static [Field],
        /// Whether members that are not known are refused.
        closed: bool,
    },
    /// `null`, or the node.
    Nullable(&'static Node),
    /// The node, of which more is said.
    Said(&'static Node, Keywords),
}

/// A member of a [`Node::Object`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Field {
    pub(crate) name: &'static str,
    pub(crate) node: &'static Node,
    pub(crate) required: bool,
    pub(crate) keywords: Keywords,
}

impl Field {
    /// A member of this name and type, of which `keywords` says more.
    pub const fn new(name: &'static str, node: &'static Node, keywords: Keywords) -> Self {
        Self { name, node, required: true, keywords }
    }

    /// A member that may be left out, if `optional`.
    #[must_use]
    pub const fn optional(self, optional: bool) -> Self {
        Self { required: !optional, ..self }
    }
}

/// The rules of a field for its value, beside its type. A rule that is not declared is empty.
#[derive(Debug, Clone, Copy)]
pub struct Keywords {
    pub(super) description: &'static str,
    pub(super) minimum: &'static str,
    pub(super) maximum: &'static str,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) default: &'static str,
    pub(super) examples: &'static [&'static str],
    pub(super) one_of: OneOf,
}

/// One of the texts that an argument may be, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The text that a caller gives as the argument.
    pub name: &'static str,
    /// A description in a few words.
    pub description: &'static str,
}

impl Choice {
    /// A text, and what it is in a few words.
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, description }
    }
}

/// The texts that an argument may be. None stands for any text.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum OneOf {
    /// The listed names.
    Names(&'static [&'static str]),
    /// These, with descriptions, which the argument's own description goes on with.
    Described(&'static [Choice]),
}

impl OneOf {
    /// How many there are.
    #[allow(clippy::len_without_is_empty, reason = "none are any")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Described(choices) => choices.len(),
        }
    }

    /// The texts. `N` is their number; a single one stands there twice.
    #[doc(hidden)]
    #[allow(clippy::indexing_slicing, reason = "it is for constants, where it is a compile error")]
    pub const fn names<const N: usize>(&self) -> [&'static str; N] {
        let mut names = [""; N];
        let mut at = 0;
        while at < N {
            let place = if at < self.len() { at } else { self.len() - 1 };
            names[at] = match self {
                Self::Names(names) => names[place],
                Self::Described(choices) => choices[place].name,
            };
            at += 1;
        }
        names
    }
}

impl Keywords {
    /// No rule is declared.
    pub const NONE: Self = Self {
        description: "",
        minimum: "",
        maximum: "",
        min_length: None,
        max_length: None,
        default: "",
        examples: &[],
        one_of: OneOf::Names(&[]),
    };

    /// The kind of the value.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// The smallest number, as JSON text.
    #[must_use]
    pub const fn minimum(self, minimum: &'static str) -> Self {
        Self { minimum, ..self }
    }

    /// The largest number, as JSON text.
    #[must_use]
    pub const fn maximum(self, maximum: &'static str) -> Self {
        Self { maximum, ..self }
    }

    /// The fewest characters, elements or members.
    #[must_use]
    pub const fn min_length(self, length: usize) -> Self {
        Self { min_length: Some(length), ..self }
    }

    /// The most characters, elements or members.
    #[must_use]
    pub const fn max_length(self, length: usize) -> Self {
        Self { max_length: Some(length), ..self }
    }

    /// The default value, as JSON text.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// Values to show, as JSON texts.
    #[must_use]
    pub const fn examples(self, examples: &'static [&'static str]) -> Self {
        Self { examples, ..self }
    }

    /// The texts that the value may be.
    #[must_use]
    pub const fn one_of(self, one_of: OneOf) -> Self {
        Self { one_of, ..self }
    }

    /// Takes rules that are not declared here from `inner`.
    pub(super) const fn over(&self, inner: &Self) -> Self {
        const fn or(text: &'static str, otherwise: &'static str) -> &'static str {
            if text.is_empty() { otherwise } else { text }
        }
        Self {
            description: or(self.description, inner.description),
            minimum: or(self.minimum, inner.minimum),
            maximum: or(self.maximum, inner.maximum),
            min_length: if self.min_length.is_some() { self.min_length } else { inner.min_length },
            max_length: if self.max_length.is_some() { self.max_length } else { inner.max_length },
            default: or(self.default, inner.default),
            examples: if self.examples.is_empty() { inner.examples } else { self.examples },
            one_of: if self.one_of.len() == 0 { inner.one_of } else { self.one_of },
        }
    }

    /// Removes rules that the text of a schema contains already.
    pub(super) const fn without_those_in(&self, text: &str) -> Self {
        Self {
            description: if contains(text, "\"description\"") { "" } else { self.description },
            default: if contains(text, "\"default\"") { "" } else { self.default },
            examples: if contains(text, "\"examples\"") { &[] } else { self.examples },
            ..*self
        }
    }

    pub(super) const fn are_none(&self) -> bool {
        self.description.is_empty() && self.default.is_empty() && self.examples.is_empty()
    }
}

impl Node {
    /// The schema of an object without members that matter.
    pub const OBJECT: &'static Self = &Self::Object { description: "", fields: &[], closed: false };

    /// A schema that is written out.
    ///
    /// # Panics
    /// As [`Schema::text`](crate::Schema::text) does: in a constant, it does not compile.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Schema::text(text).written_out())
    }
}
