//! JSON Schemas (Draft 2020-12) as constants, rendered at compile time.
//!
//! A type's schema is a [`Node`]: a tree of `&'static` nodes, since a generic type's schema cannot be text of a length that
//! is not known. Where a manifest needs it, the tree is rendered, by the compiler, into the exact bytes that go out; neither
//! the tree nor code that walks it is in the image.

mod literal;

use core::fmt;

use crate::json::write::Writer;
use literal::is_schema;
pub(crate) use literal::numeric;

/// A JSON Schema in a manifest: JSON text in flash, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Schema(Text);

#[derive(Debug, Clone, Copy)]
enum Text {
    Whole(&'static str),
    Pieces(&'static [&'static [u8]; PIECES]),
}

impl Schema {
    /// Takes any arguments: `{}`.
    pub const ANY: Self = Self(Text::Whole("{}"));
    /// Takes an object without members that matter: `{"type":"object"}`.
    pub const OBJECT: Self = Self(Text::Whole(r#"{"type":"object"}"#));

    /// A schema that is written out: a JSON object or a boolean on one line.
    ///
    /// # Panics
    /// If `text` is not JSON or spreads over lines: in a constant, where schemas belong, it does not compile.
    pub const fn text(text: &'static str) -> Self {
        assert!(is_schema(text.as_bytes()), "a schema must be a JSON object or boolean, on one line");
        Self(Text::Whole(text))
    }

    /// The schema of `T`, rendered by the compiler.
    pub(crate) const fn rendered_from<T: HasNode>() -> Self {
        Self(Text::Pieces(const { &Pieces::<T>::ALL }))
    }

    /// Takes text that [`Node::render`] has made, whole.
    #[doc(hidden)]
    pub const fn rendered(text: &'static [u8]) -> Self {
        match str::from_utf8(text) {
            Ok(text) => Self(Text::Whole(text)),
            Err(_) => Self::ANY,
        }
    }

    /// Writes the JSON text.
    pub fn write(&self, out: &mut Writer<'_>) {
        match self.0 {
            Text::Whole(text) => out.raw(text.as_bytes()),
            Text::Pieces(pieces) => pieces.iter().for_each(|piece| out.raw(piece)),
        }
    }

    /// How many bytes the JSON text takes.
    #[allow(clippy::len_without_is_empty, reason = "no schema is empty")]
    pub const fn len(&self) -> usize {
        match self.0 {
            Text::Whole(text) => text.len(),
            Text::Pieces(pieces) => {
                let mut rest = pieces.as_slice();
                let mut length = 0;
                while let [piece, tail @ ..] = rest {
                    length += piece.len();
                    rest = tail;
                }
                length
            }
        }
    }

    /// The text of a schema that was made from text.
    pub(crate) const fn written_out(self) -> &'static str {
        match self.0 {
            Text::Whole(text) => text,
            Text::Pieces(_) => "{}",
        }
    }
}

/// The text in pieces.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Text::Whole(text) => f.write_str(text),
            // A piece may end within a character.
            Text::Pieces(pieces) => {
                let mut rest = pieces.iter().flat_map(|piece| piece.iter().copied());
                while let Some(first) = rest.next() {
                    let more = match first {
                        0..0xc0 => 0,
                        0xc0..0xe0 => 1,
                        0xe0..0xf0 => 2,
                        0xf0.. => 3,
                    };
                    let mut bytes = [first, 0, 0, 0];
                    bytes.iter_mut().skip(1).take(more).for_each(|byte| *byte = rest.next().unwrap_or_default());
                    let character = bytes.get(..=more).and_then(|bytes| str::from_utf8(bytes).ok());
                    f.write_str(character.unwrap_or_default())?;
                }
                Ok(())
            }
        }
    }
}

/// A generic type's text has a length that no array type can name (`[u8; T::LEN]`), so it is cut into arrays of
/// 2^15, 2^14, … 1 bytes: those whose bit is set in the length. A manifest fits 65,535 bytes, and so does each schema in it.
const PIECES: usize = 16;

/// A type that has a schema, of arguments or of outputs.
pub(crate) trait HasNode {
    const NODE: &'static Node;
}

struct Piece<T, const SIZE: usize>(core::marker::PhantomData<T>);

impl<T: HasNode, const SIZE: usize> Piece<T, SIZE> {
    /// Where the piece starts: behind the larger ones.
    const FROM: usize = Pieces::<T>::LEN & !(2 * SIZE - 1);
    const BYTES: [u8; SIZE] = T::NODE.render(Self::FROM);
    const SLICE: &'static [u8] = if Pieces::<T>::LEN & SIZE == 0 { &[] } else { &Self::BYTES };
}

struct Pieces<T>(core::marker::PhantomData<T>);

impl<T: HasNode> Pieces<T> {
    const LEN: usize = {
        let length = T::NODE.len();
        assert!(length < 1 << PIECES, "a schema takes at most 65,535 bytes");
        length
    };

    const ALL: [&'static [u8]; PIECES] = [
        Piece::<T, 0x8000>::SLICE,
        Piece::<T, 0x4000>::SLICE,
        Piece::<T, 0x2000>::SLICE,
        Piece::<T, 0x1000>::SLICE,
        Piece::<T, 0x800>::SLICE,
        Piece::<T, 0x400>::SLICE,
        Piece::<T, 0x200>::SLICE,
        Piece::<T, 0x100>::SLICE,
        Piece::<T, 0x80>::SLICE,
        Piece::<T, 0x40>::SLICE,
        Piece::<T, 0x20>::SLICE,
        Piece::<T, 0x10>::SLICE,
        Piece::<T, 8>::SLICE,
        Piece::<T, 4>::SLICE,
        Piece::<T, 2>::SLICE,
        Piece::<T, 1>::SLICE,
    ];
}

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
    /// `true` or `false`.
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
        /// What it is a multiple of, as JSON text; empty where any number will do.
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
        /// What they mean together; empty where nothing is said.
        description: &'static str,
    },
    /// An array.
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
        /// What it is; empty where nothing is said.
        description: &'static str,
        /// Its members.
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

/// What a field says of its value beside its type. What it does not say is empty.
#[derive(Debug, Clone, Copy)]
pub struct Keywords {
    description: &'static str,
    minimum: &'static str,
    maximum: &'static str,
    min_length: Option<usize>,
    max_length: Option<usize>,
    default: &'static str,
    examples: &'static [&'static str],
}

impl Keywords {
    /// Nothing is said.
    pub const NONE: Self = Self {
        description: "",
        minimum: "",
        maximum: "",
        min_length: None,
        max_length: None,
        default: "",
        examples: &[],
    };

    /// What the value is.
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

    /// What is not said here is as `inner` has it.
    const fn over(&self, inner: &Self) -> Self {
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
        }
    }

    /// What a schema that is written out says itself is not said twice.
    const fn without_those_in(&self, text: &str) -> Self {
        Self {
            description: if contains(text, "\"description\"") { "" } else { self.description },
            default: if contains(text, "\"default\"") { "" } else { self.default },
            examples: if contains(text, "\"examples\"") { &[] } else { self.examples },
            ..*self
        }
    }

    const fn are_none(&self) -> bool {
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

    /// How many bytes of JSON the schema takes.
    #[allow(clippy::len_without_is_empty, reason = "no schema is empty")]
    pub const fn len(&self) -> usize {
        let mut out = Out::<0>::new(0);
        out.node(self, &Keywords::NONE, false);
        out.len
    }

    /// Bytes of the JSON text, from byte `from` on: as many as there are, up to `N`, then zeros.
    pub const fn render<const N: usize>(&self, from: usize) -> [u8; N] {
        let mut out = Out::<N>::new(from);
        out.node(self, &Keywords::NONE, false);
        out.bytes
    }
}

/// How many bytes `text` takes as a JSON string's content, escaped as [`Writer::text_part`] does.
///
/// [`Writer::text_part`]: crate::json::write::Writer::text_part
pub(crate) const fn escaped_len(text: &str) -> usize {
    let mut out = Out::<0>::new(0);
    out.escaped(text);
    out.len
}

/// Takes JSON text, counts it, and keeps the part that is asked for.
struct Out<const N: usize> {
    bytes: [u8; N],
    from: usize,
    len: usize,
    /// The last byte: a member behind `{` goes without a comma.
    last: u8,
}

// Constants only: indices are checked by hand, since a slice's `get_mut` is not const; a mistake would not compile.
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation)]
impl<const N: usize> Out<N> {
    const fn new(from: usize) -> Self {
        Self { bytes: [0; N], from, len: 0, last: 0 }
    }

    const fn byte(&mut self, byte: u8) {
        if self.len >= self.from && self.len - self.from < N {
            self.bytes[self.len - self.from] = byte;
        }
        self.len += 1;
        self.last = byte;
    }

    const fn raw(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        if N == 0
            && let [.., last] = rest
        {
            self.len += rest.len();
            self.last = *last;
            return;
        }
        while let [byte, tail @ ..] = rest {
            self.byte(*byte);
            rest = tail;
        }
    }

    const fn escaped(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        loop {
            rest = match rest {
                [] => return,
                // U+2028 and U+2029, at which some readers of lines end one.
                [0xe2, 0x80, last @ (0xa8 | 0xa9), tail @ ..] => {
                    self.raw(if *last == 0xa8 { "\\u2028" } else { "\\u2029" });
                    tail
                }
                [byte, tail @ ..] => {
                    match *byte {
                        b'"' => self.raw("\\\""),
                        b'\\' => self.raw("\\\\"),
                        0x08 => self.raw("\\b"),
                        0x0c => self.raw("\\f"),
                        b'\n' => self.raw("\\n"),
                        b'\r' => self.raw("\\r"),
                        b'\t' => self.raw("\\t"),
                        control @ 0..0x20 => {
                            self.raw("\\u00");
                            self.byte(b'0' + (control >> 4));
                            self.byte(b"0123456789abcdef"[(control & 0xf) as usize]);
                        }
                        plain => self.byte(plain),
                    }
                    tail
                }
            }
        }
    }

    const fn quoted(&mut self, text: &str) {
        self.byte(b'"');
        self.escaped(text);
        self.byte(b'"');
    }

    const fn integer(&mut self, negative: bool, magnitude: u128) {
        if negative {
            self.byte(b'-');
        }
        let mut unit = 1;
        while magnitude / unit > 9 {
            unit *= 10;
        }
        while unit > 0 {
            self.byte(b'0' + (magnitude / unit % 10) as u8);
            unit /= 10;
        }
    }

    /// A keyword; its value follows.
    const fn name(&mut self, name: &str) {
        self.raw(if self.last == b'{' { "\"" } else { ",\"" });
        self.raw(name);
        self.raw("\":");
    }

    /// A keyword and its value, if it is not empty.
    const fn keyword(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.name(name);
            self.raw(value);
        }
    }

    const fn lengths(&mut self, names: [&str; 2], own: [usize; 2], said: &Keywords) {
        let least = match said.min_length {
            Some(length) if length > own[0] => length,
            _ => own[0],
        };
        let most = match said.max_length {
            Some(length) if length < own[1] => length,
            _ => own[1],
        };
        if least > 0 {
            self.name(names[0]);
            self.integer(false, least as u128);
        }
        if most < usize::MAX {
            self.name(names[1]);
            self.integer(false, most as u128);
        }
    }

    const fn kind(&mut self, name: &str, nullable: bool) {
        self.raw(if nullable { "{\"type\":[\"" } else { "{\"type\":\"" });
        self.raw(name);
        self.raw(if nullable { "\",\"null\"]" } else { "\"" });
    }

    /// What stands in every schema, up to its end. `own` is the type's own description.
    const fn annotations(&mut self, own: &str, said: &Keywords) {
        let description = if said.description.is_empty() { own } else { said.description };
        if !description.is_empty() {
            self.name("description");
            self.quoted(description);
        }
        self.keyword("default", said.default);
        if let [first, rest @ ..] = said.examples {
            self.name("examples");
            self.byte(b'[');
            self.raw(first);
            let mut rest = rest;
            while let [example, tail @ ..] = rest {
                self.byte(b',');
                self.raw(example);
                rest = tail;
            }
            self.byte(b']');
        }
        self.byte(b'}');
    }

    const fn node(&mut self, node: &Node, said: &Keywords, nullable: bool) {
        match node {
            Node::Nullable(inner) => self.node(inner, said, true),
            Node::Said(inner, more) => self.node(inner, &said.over(more), nullable),
            // Null is any value too.
            Node::Any => {
                self.byte(b'{');
                self.annotations("", said);
            }
            Node::Text(text) => self.text(text, said, nullable),
            Node::Bool => {
                self.kind("boolean", nullable);
                self.annotations("", said);
            }
            Node::Integer { minimum, maximum } => {
                self.kind("integer", nullable);
                self.name("minimum");
                if said.minimum.is_empty() {
                    self.integer(*minimum < 0, minimum.unsigned_abs());
                } else {
                    self.raw(said.minimum);
                }
                self.name("maximum");
                if said.maximum.is_empty() {
                    self.integer(false, *maximum);
                } else {
                    self.raw(said.maximum);
                }
                self.annotations("", said);
            }
            Node::Number { multiple_of, minimum, maximum } => {
                self.kind("number", nullable);
                self.keyword("multipleOf", multiple_of);
                self.keyword("minimum", if said.minimum.is_empty() { minimum } else { said.minimum });
                self.keyword("maximum", if said.maximum.is_empty() { maximum } else { said.maximum });
                self.annotations("", said);
            }
            Node::String { min_length, max_length, pattern } => {
                self.kind("string", nullable);
                self.lengths(["minLength", "maxLength"], [*min_length, *max_length], said);
                if !pattern.is_empty() {
                    self.raw(",\"pattern\":\"");
                    self.raw(pattern);
                    self.byte(b'"');
                }
                self.annotations("", said);
            }
            Node::Enum { names, description } => {
                self.raw("{\"enum\":[");
                let mut rest = *names;
                while let [name, tail @ ..] = rest {
                    self.quoted(name);
                    if !tail.is_empty() {
                        self.byte(b',');
                    }
                    rest = tail;
                }
                self.raw(if nullable { ",null]" } else { "]" });
                self.annotations(description, said);
            }
            Node::Array { items, min_items, max_items } => {
                self.kind("array", nullable);
                self.raw(",\"items\":");
                self.node(items, &Keywords::NONE, false);
                self.lengths(["minItems", "maxItems"], [*min_items, *max_items], said);
                self.annotations("", said);
            }
            Node::Map { max_key, values, max_members } => {
                self.kind("object", nullable);
                if *max_key < usize::MAX {
                    self.raw(",\"propertyNames\":{\"maxLength\":");
                    self.integer(false, *max_key as u128);
                    self.byte(b'}');
                }
                self.raw(",\"additionalProperties\":");
                self.node(values, &Keywords::NONE, false);
                self.lengths(["minProperties", "maxProperties"], [0, *max_members], said);
                self.annotations("", said);
            }
            Node::Object { description, fields, closed } => {
                self.kind("object", nullable);
                self.properties(fields);
                if *closed {
                    self.raw(",\"additionalProperties\":false");
                }
                self.annotations(description, said);
            }
        }
    }

    const fn properties(&mut self, fields: &[Field]) {
        let mut rest = fields;
        let mut required = false;
        let mut first = true;
        while let [field, tail @ ..] = rest {
            self.raw(if first { ",\"properties\":{" } else { "," });
            self.quoted(field.name);
            self.byte(b':');
            self.node(field.node, &field.keywords, false);
            required = required || field.required;
            first = false;
            rest = tail;
        }
        if !first {
            self.byte(b'}');
        }
        if required {
            rest = fields;
            first = true;
            while let [field, tail @ ..] = rest {
                if field.required {
                    self.raw(if first { ",\"required\":[" } else { "," });
                    self.quoted(field.name);
                    first = false;
                }
                rest = tail;
            }
            self.byte(b']');
        }
    }

    /// A schema that is written out, with annotations that it does not have itself.
    const fn text(&mut self, text: &str, said: &Keywords, nullable: bool) {
        if nullable {
            self.raw("{\"anyOf\":[");
            self.raw(text);
            self.raw(",{\"type\":\"null\"}]");
            self.annotations("", said);
            return;
        }
        let said = said.without_those_in(text);
        match text.as_bytes() {
            _ if said.are_none() => return self.raw(text),
            b"true" => self.byte(b'{'),
            b"false" => self.raw("{\"not\":{}"),
            [inner @ .., _] => {
                let mut rest = inner;
                while let [byte, tail @ ..] = rest {
                    self.byte(*byte);
                    rest = tail;
                }
            }
            [] => {}
        }
        self.annotations("", &said);
    }
}

const fn contains(text: &str, part: &str) -> bool {
    let part = part.as_bytes();
    let mut rest = text.as_bytes();
    while let Some((start, _)) = rest.split_at_checked(part.len()) {
        if same(start, part) {
            return true;
        }
        let [_, tail @ ..] = rest else { return false };
        rest = tail;
    }
    false
}

const fn same(mut a: &[u8], mut b: &[u8]) -> bool {
    loop {
        match (a, b) {
            ([], []) => return true,
            ([x, a_tail @ ..], [y, b_tail @ ..]) if *x == *y => (a, b) = (a_tail, b_tail),
            _ => return false,
        }
    }
}

/// Whether `names` has `name`.
pub(crate) const fn has_name(names: &[&str], name: &str) -> bool {
    let mut rest = names;
    while let [known, tail @ ..] = rest {
        if same(known.as_bytes(), name.as_bytes()) {
            return true;
        }
        rest = tail;
    }
    false
}
