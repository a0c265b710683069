//! A YAML document as a tree that remembers its lines.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, MessageFormatter as _, Spanned, UserMessageFormatter};

use super::spec::{DEPTH_LIMIT, VALUE_LIMIT};

/// A value and where it stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// From 1.
    pub(super) line: u32,
    /// Its bytes in the document, where they are known.
    bytes: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum Kind {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Why a document cannot be read, and in which line, if that is known.
#[derive(Debug, Clone)]
pub(super) struct Unreadable {
    pub(super) text: String,
    pub(super) line: Option<u32>,
}

impl Node {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Result<Self, Unreadable> {
        let node: Spanned<Kind> =
            serde_saphyr::from_str_with_options(text, options()).map_err(|error| unreadable(&error))?;
        Ok(Self::of(node))
    }

    fn of(node: Spanned<Kind>) -> Self {
        let span = node.defined.span();
        let bytes = span.byte_offset().zip(span.byte_len());
        Self {
            kind: node.value,
            line: u32::try_from(node.referenced.line()).unwrap_or(u32::MAX),
            bytes: bytes.and_then(|(at, length)| Some((u32::try_from(at).ok()?, u32::try_from(length).ok()?))),
        }
    }

    /// A member of a map that is not null.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.members().iter().find(|(found, node)| found == name && !node.is_null()).map(|(_, node)| node)
    }

    pub(super) fn members(&self) -> &[(String, Node)] {
        match &self.kind {
            Kind::Map(members) => members,
            _ => &[],
        }
    }

    pub(super) fn elements(&self) -> &[Node] {
        match &self.kind {
            Kind::List(elements) => elements,
            _ => &[],
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// What it is, in an error text.
    pub(super) fn what(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(_) => "a number",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// A text. What YAML takes for a number or a truth value is the text that was written: `version: 1.10` is "1.10".
    pub(super) fn text(&self, source: &str) -> Option<String> {
        let written = || {
            let (at, length) = self.bytes?;
            let written = source.get(at as usize..(at as usize).checked_add(length as usize)?)?.trim();
            (!written.is_empty()).then(|| written.to_owned())
        };
        match &self.kind {
            Kind::Text(text) => Some(text.clone()),
            Kind::Number(number) => Some(written().unwrap_or_else(|| number.to_string())),
            Kind::Bool(bool) => Some(written().unwrap_or_else(|| bool.to_string())),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        match &self.kind {
            Kind::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match self.kind {
            Kind::Bool(bool) => Some(bool),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(bool) => Value::Bool(*bool),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(elements) => elements.iter().map(Self::value).collect(),
            Kind::Map(members) => members.iter().map(|(name, node)| (name.clone(), node.value())).collect(),
        }
    }

    /// As JSON text, members in their order.
    pub(super) fn json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        // Some readers take these for the ends of lines. They stand in strings only.
        if out.contains(['\u{2028}', '\u{2029}']) {
            out = out.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
        }
        out
    }

    fn write_json(&self, out: &mut String) {
        match &self.kind {
            Kind::List(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    element.write_json(out);
                }
                out.push(']');
            }
            Kind::Map(members) => {
                out.push('{');
                for (place, (name, member)) in members.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(name.as_str()).to_string());
                    out.push(':');
                    member.write_json(out);
                }
                out.push('}');
            }
            _ => out.push_str(&self.value().to_string()),
        }
    }
}

pub(super) fn options() -> serde_saphyr::Options {
    // YAML 1.2: `on` and `off` are texts, such as ids.
    serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_nodes: VALUE_LIMIT, max_depth: DEPTH_LIMIT },
    }
}

pub(super) fn unreadable(error: &serde_saphyr::Error) -> Unreadable {
    let line = error.location().and_then(|location| u32::try_from(location.line()).ok()).filter(|line| *line > 0);
    // Without the place, which stands behind it.
    let mut error = error;
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    let text = match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => format!("nested deeper than {DEPTH_LIMIT}"),
        Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } => {
            format!("more than {VALUE_LIMIT} values, those that aliases stand for counted too")
        }
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    // One line, since it stands in a list of errors.
    Unreadable { text: text.split_whitespace().collect::<Vec<_>>().join(" "), line }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Kind, E> {
                Ok(Kind::Null)
            }

            fn visit_none<E>(self) -> Result<Kind, E> {
                Ok(Kind::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Kind, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
                Ok(Kind::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
                Ok(Kind::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
                Ok(Kind::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
                // JSON has no infinity and no NaN.
                Ok(Number::from_f64(value).map_or_else(|| Kind::Text(value.to_string()), Kind::Number))
            }

            fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
                Ok(Kind::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<Kind, E> {
                Ok(Kind::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kind, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element::<Spanned<Kind>>()? {
                    elements.push(Node::of(element));
                }
                Ok(Kind::List(elements))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kind, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Spanned<Kind>>()? {
                    members.push((name, Node::of(value)));
                }
                Ok(Kind::Map(members))
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_lines_and_their_texts() {
        let source =
            "name: rails\nversion: 1.10\nlist:\n  - a: 1\n    b: [true, null, 2.5]\nempty:\n\"quoted\": \"1.0\"\n";
        let node = Node::parse(source).unwrap();
        assert_eq!(
            node.json(),
            r#"{"name":"rails","version":1.1,"list":[{"a":1,"b":[true,null,2.5]}],"empty":null,"quoted":"1.0"}"#
        );
        assert_eq!(node.get("version").unwrap().text(source).unwrap(), "1.10");
        assert_eq!(node.get("quoted").unwrap().text(source).unwrap(), "1.0");
        assert_eq!(node.get("list").unwrap().elements()[0].get("b").unwrap().line, 5);
        assert!(node.get("empty").is_none());
        // YAML 1.2 has two truth values, each with one spelling or its capitals.
        assert_eq!(
            Node::parse("[on, off, yes, no, true, False]").unwrap().json(),
            r#"["on","off","yes","no",true,false]"#
        );
    }

    #[test]
    fn limits_are_exact() {
        for (levels, is_read) in [(DEPTH_LIMIT, true), (DEPTH_LIMIT + 1, false)] {
            let nested = Node::parse(&format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
            assert_eq!(nested.is_ok(), is_read, "{levels} levels: {nested:?}");
        }
        // The list is one of the values.
        for (values, is_read) in [(VALUE_LIMIT, true), (VALUE_LIMIT + 1, false)] {
            let many = Node::parse(&format!("[{}]", "1,".repeat(values - 1)));
            assert_eq!(many.is_ok(), is_read, "{values} values");
        }
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        for (source, line) in [("a: [1\n", 1), ("a: 1\nb: {", 2), ("a: 1\na: 2\n", 2), ("x: *nothing\n", 1)] {
            let fault = Node::parse(source).unwrap_err();
            assert_eq!(fault.line, Some(line), "{source}: {}", fault.text);
        }
    }
}
