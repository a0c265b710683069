//! Schemas as trees of constants.

use super::{Schema, contains};

/// A JSON Schema as a tree of constants.
///
/// [`Params`](crate::Params) has one for each type of arguments, and `#[derive(Params)]` makes it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum SchemaNode {
    /// The schema of any value: `{}`.
    Any,
    /// The text of a schema. [`SchemaNode::text`] makes this variant and checks the text.
    Text(&'static str),
    /// The schema of a boolean.
    Bool,
    /// The schema of an integer.
    Integer {
        /// The smallest allowed value.
        minimum: i128,
        /// The largest allowed value.
        maximum: u128,
    },
    /// The schema of a number.
    Number {
        /// The number of which the value must be a multiple, as JSON text; empty if any number is
        /// accepted.
        multiple_of: &'static str,
        /// The smallest allowed value, as JSON text; empty if there is no bound.
        minimum: &'static str,
        /// The largest allowed value, as JSON text; empty if there is no bound.
        maximum: &'static str,
    },
    /// The schema of a string.
    String {
        /// The smallest allowed length, in characters.
        min_length: usize,
        /// The greatest allowed length, in characters; [`usize::MAX`] if there is no bound.
        max_length: usize,
        /// A regular expression that the string must match, escaped for a JSON string; empty if any
        /// text is accepted.
        pattern: &'static str,
    },
    /// The schema of a string from a list.
    Enum {
        /// The allowed strings.
        names: &'static [&'static str],
        /// A description of the type; empty if none is declared.
        description: &'static str,
    },
    /// An array whose elements all have one schema.
    Array {
        /// The schema of each element.
        items: &'static SchemaNode,
        /// The smallest allowed number of elements.
        min_items: usize,
        /// The greatest allowed number of elements; [`usize::MAX`] if there is no bound.
        max_items: usize,
    },
    /// The schema of an object whose members may have any name.
    Map {
        /// The greatest allowed length of a name, in characters; [`usize::MAX`] if there is no
        /// bound.
        max_key: usize,
        /// The schema of each value.
        values: &'static SchemaNode,
        /// The greatest allowed number of members; [`usize::MAX`] if there is no bound.
        max_members: usize,
    },
    /// The schema of an object with declared members.
    Object {
        /// A description of the type; empty if none is declared.
        description: &'static str,
        /// The members of the object.
        fields: &'static [Field],
        /// Whether other members are refused.
        closed: bool,
    },
    /// The schema of `null` or of a value of the inner schema.
    Nullable(&'static SchemaNode),
    /// The inner schema with a description and rules for the value.
    Said(&'static SchemaNode, Keywords),
}

/// A member of a [`SchemaNode::Object`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Field {
    pub(crate) name: &'static str,
    pub(crate) node: &'static SchemaNode,
    pub(crate) required: bool,
    pub(crate) keywords: Keywords,
}

impl Field {
    /// A required member with this name and schema, and with `keywords` as its description and
    /// rules.
    pub const fn new(name: &'static str, node: &'static SchemaNode, keywords: Keywords) -> Self {
        Self { name, node, required: true, keywords }
    }

    /// Sets whether the member may be left out.
    #[must_use]
    pub const fn optional(self, optional: bool) -> Self {
        Self { required: !optional, ..self }
    }
}

/// The description and the rules of a field, beside its type. What is not declared is empty.
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

/// An allowed text of an argument, with its description.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The text that a caller passes as the argument.
    pub name: &'static str,
    /// A description in a few words.
    pub description: &'static str,
}

impl Choice {
    /// An allowed text, with a description in a few words.
    pub const fn new(name: &'static str, description: &'static str) -> Self {
        Self { name, description }
    }
}

/// The list of texts that an argument may be. An empty list allows any text.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum OneOf {
    /// The allowed texts, without descriptions.
    Names(&'static [&'static str]),
    /// The allowed texts with descriptions. In the schema, these descriptions are added to the
    /// description of the argument.
    Described(&'static [Choice]),
}

impl OneOf {
    /// The number of allowed texts.
    #[allow(clippy::len_without_is_empty, reason = "none are any")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Described(choices) => choices.len(),
        }
    }

    /// The allowed texts as an array. `N` is their number, or 2 for a single text, which is then
    /// listed twice.
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
    /// No description and no rules.
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

    /// Sets the description of the value.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Sets the smallest allowed number, as JSON text.
    #[must_use]
    pub const fn minimum(self, minimum: &'static str) -> Self {
        Self { minimum, ..self }
    }

    /// Sets the largest allowed number, as JSON text.
    #[must_use]
    pub const fn maximum(self, maximum: &'static str) -> Self {
        Self { maximum, ..self }
    }

    /// Sets the smallest allowed number of characters, elements or members.
    #[must_use]
    pub const fn min_length(self, length: usize) -> Self {
        Self { min_length: Some(length), ..self }
    }

    /// Sets the greatest allowed number of characters, elements or members.
    #[must_use]
    pub const fn max_length(self, length: usize) -> Self {
        Self { max_length: Some(length), ..self }
    }

    /// Sets the default value, as JSON text.
    #[must_use]
    pub const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// Sets example values, as JSON texts.
    #[must_use]
    pub const fn examples(self, examples: &'static [&'static str]) -> Self {
        Self { examples, ..self }
    }

    /// Sets the list of allowed texts.
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

impl SchemaNode {
    /// The schema of an object without declared members.
    pub const OBJECT: &'static Self = &Self::Object { description: "", fields: &[], closed: false };

    /// A schema from its JSON text.
    ///
    /// # Panics
    /// If [`Schema::text`](crate::Schema::text) refuses the text. In a constant, that is an error
    /// of the compiler.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Schema::text(text).written_out())
    }
}
