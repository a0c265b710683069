//! The JSON text of a schema, made by the compiler.

use super::tree::{Field, Keywords, OneOf, SchemaNode};

impl SchemaNode {
    /// The length of the schema's JSON text, in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no schema is empty")]
    pub const fn len(&self) -> usize {
        let mut out = Out::<0>::new(0);
        out.node(self, &Keywords::NONE, false);
        out.len
    }

    /// Bytes of the schema's JSON text from byte `from` on: up to `N` bytes, then zeros.
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

// Constants only: indices are checked by hand, since a slice's `get_mut` is not const; a mistake
// would not compile.
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
        // The stricter one of two bounds: `max` and `min` are not for constants.
        let [mut least, mut most] = own;
        if let Some(length) = said.min_length {
            least += length.saturating_sub(least);
        }
        if let Some(length) = said.max_length {
            most -= most.saturating_sub(length);
        }
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

    /// Writes the members that every schema has, up to its end. `own` is the type's own
    /// description.
    const fn annotations(&mut self, own: &str, said: &Keywords) {
        self.annotations_with(own, said, 0);
    }

    /// The same of a number with at most so many digits behind its point; 0 where that is not said.
    const fn annotations_with(&mut self, own: &str, said: &Keywords, digits: usize) {
        let description = if said.description.is_empty() { own } else { said.description };
        let is_described = matches!(said.one_of, OneOf::Described([_, ..]));
        if !description.is_empty() || digits > 0 || is_described {
            self.name("description");
            self.byte(b'"');
            self.escaped(description);
            self.choices(said.one_of);
            if digits > 0 {
                let is_sentence = matches!(description.as_bytes(), [.., b'.']);
                self.raw(match description.as_bytes() {
                    [] => "at most ",
                    _ if is_sentence => " At most ",
                    _ => "; at most ",
                });
                self.integer(false, digits as u128);
                self.raw(if digits == 1 { " digit behind the point" } else { " digits behind the point" });
                if is_sentence {
                    self.byte(b'.');
                }
            }
            self.byte(b'"');
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

    const fn node(&mut self, node: &SchemaNode, said: &Keywords, nullable: bool) {
        match node {
            SchemaNode::Nullable(inner) => self.node(inner, said, true),
            SchemaNode::Said(inner, more) => self.node(inner, &said.over(more), nullable),
            // Null is any value too.
            SchemaNode::Any => {
                self.byte(b'{');
                self.annotations("", said);
            }
            SchemaNode::Text(text) => self.text(text, said, nullable),
            SchemaNode::Bool => {
                self.kind("boolean", nullable);
                self.annotations("", said);
            }
            SchemaNode::Integer { minimum, maximum } => {
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
            SchemaNode::Number { multiple_of, minimum, maximum } => {
                self.kind("number", nullable);
                self.keyword("minimum", if said.minimum.is_empty() { minimum } else { said.minimum });
                self.keyword("maximum", if said.maximum.is_empty() { maximum } else { said.maximum });
                // Not by `multipleOf`: readers that compute in floats refuse 3.3 as a multiple of
                // 0.1, and others the keyword.
                self.annotations_with("", said, multiple_of.len().saturating_sub("0.".len()));
            }
            SchemaNode::String { min_length, max_length, pattern } => {
                self.kind("string", nullable);
                self.one_of(said.one_of, nullable);
                self.lengths(["minLength", "maxLength"], [*min_length, *max_length], said);
                if !pattern.is_empty() {
                    self.raw(",\"pattern\":\"");
                    self.raw(pattern);
                    self.byte(b'"');
                }
                self.annotations("", said);
            }
            SchemaNode::Enum { names, description } => {
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
            SchemaNode::Array { items, min_items, max_items } => {
                self.kind("array", nullable);
                self.raw(",\"items\":");
                self.node(items, &Keywords::NONE, false);
                self.lengths(["minItems", "maxItems"], [*min_items, *max_items], said);
                self.annotations("", said);
            }
            SchemaNode::Map { max_key, values, max_members } => {
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
            SchemaNode::Object { description, fields, closed } => {
                self.kind("object", nullable);
                self.properties(fields);
                if *closed {
                    self.raw(",\"additionalProperties\":false");
                }
                self.annotations(description, said);
            }
        }
    }

    /// The texts that a string may be.
    const fn one_of(&mut self, one_of: OneOf, nullable: bool) {
        let mut at = 0;
        while at < one_of.len() {
            self.raw(if at == 0 { ",\"enum\":[" } else { "," });
            self.quoted(match one_of {
                OneOf::Names(names) => names[at],
                OneOf::Described(choices) => choices[at].name,
            });
            at += 1;
        }
        if at > 0 {
            self.raw(if nullable { ",null]" } else { "]" });
        }
    }

    /// Writes the meaning of those texts: `: A (the first), B (the second)`.
    const fn choices(&mut self, one_of: OneOf) {
        let OneOf::Described(mut rest) = one_of else { return };
        let mut lead = ": ";
        while let [choice, tail @ ..] = rest {
            self.raw(lead);
            self.escaped(choice.name);
            if !choice.description.is_empty() {
                self.raw(" (");
                self.escaped(choice.description);
                self.byte(b')');
            }
            lead = ", ";
            rest = tail;
        }
    }

    const fn properties(&mut self, fields: &[Field]) {
        let mut rest = fields;
        let mut required = false;
        let mut first = true;
        self.raw(",\"properties\":{");
        while let [field, tail @ ..] = rest {
            if !first {
                self.byte(b',');
            }
            self.quoted(field.name);
            self.byte(b':');
            self.node(field.node, &field.keywords, false);
            required = required || field.required;
            first = false;
            rest = tail;
        }
        self.byte(b'}');
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
