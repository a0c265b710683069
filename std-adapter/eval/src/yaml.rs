//! A YAML document as a tree that remembers its lines.
//!
//! serde-saphyr parses. Its own values have no lines, and 64 bits for a number: here a number keeps
//! the digits that were written.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, MessageFormatter as _, Spanned, UserMessageFormatter};

use super::placeholders::{is_whole, substitute};
use super::records::StepRecord;
use rigline_host::coerce::{Draft, json_unless_string};
use rigline_host::number;

/// The largest number of values in one file. Values of aliases are counted each time.
pub const VALUE_LIMIT: usize = 100_000;
/// The deepest nesting of lists and maps in one file. Each level needs up to 32 KiB of stack, and a
/// thread has 2 MiB.
pub const DEPTH_LIMIT: usize = 32;

/// A value and its place.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    /// The line in the file, from 1.
    pub(super) line: u32,
    /// The source text of a scalar that is not a string.
    written: Option<String>,
    /// Whether the whole text came from a template. Its type then depends on its place.
    is_filled: bool,
    /// The list or the map that its text stands for, as it was written.
    source: Option<Box<Node>>,
    /// The bytes of the value in the document, where they are known.
    bytes: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum NodeKind {
    #[default]
    Null,
    Bool(bool),
    /// A number as JSON text, with all its digits.
    Number(String),
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
        let node: Spanned<NodeKind> =
            serde_saphyr::from_str_with_options(text, options()).map_err(|error| unreadable(&error))?;
        let mut node = Self::of(node);
        node.keep_what_is_written(text);
        Ok(node)
    }

    /// Takes numbers from the document instead of from the parser, which has 64 bits for them.
    fn keep_what_is_written(&mut self, source: &str) {
        let bytes = self.bytes;
        let written = || {
            let (at, length) = bytes?;
            let written = source.get(at as usize..(at as usize).checked_add(length as usize)?)?.trim();
            (!written.is_empty()).then_some(written)
        };
        match &mut self.kind {
            NodeKind::List(elements) => elements.iter_mut().for_each(|element| element.keep_what_is_written(source)),
            NodeKind::Map(members) => members.iter_mut().for_each(|(_, member)| member.keep_what_is_written(source)),
            NodeKind::Null | NodeKind::Bool(_) => self.written = written().map(str::to_owned),
            NodeKind::Number(json) => {
                if let Some(written) = written() {
                    if let Some(plain) = number::json(written) {
                        *json = plain;
                    }
                    self.written = Some(written.to_owned());
                }
                // JSON has no infinity and no NaN.
                if number::decimal(json).is_none() {
                    self.kind = NodeKind::Text(self.written.take().unwrap_or_else(|| json.clone()));
                }
            }
            NodeKind::Text(text) => {
                // A number beyond the parser's, which it takes for a text.
                let Some(written) =
                    written().filter(|written| !written.starts_with(['"', '\'', '|', '>', '&', '*', '!']))
                else {
                    return;
                };
                if written == text
                    && !bytes.is_some_and(|(at, _)| is_tagged(source.get(..at as usize).unwrap_or_default()))
                    && let Some(json) = number::json(written)
                {
                    self.kind = NodeKind::Number(json);
                    self.written = Some(written.to_owned());
                }
            }
        }
    }

    fn of(node: Spanned<NodeKind>) -> Self {
        let span = node.defined.span();
        let bytes = span.byte_offset().zip(span.byte_len());
        Self {
            kind: node.value,
            line: u32::try_from(node.referenced.line()).unwrap_or(u32::MAX),
            written: None,
            is_filled: false,
            source: None,
            bytes: bytes.and_then(|(at, length)| Some((u32::try_from(at).ok()?, u32::try_from(length).ok()?))),
        }
    }

    /// A member of a map that is not null.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        self.members().iter().find(|(found, node)| found == name && !node.is_null()).map(|(_, node)| node)
    }

    pub(super) fn members(&self) -> &[(String, Node)] {
        match &self.kind {
            NodeKind::Map(members) => members,
            _ => &[],
        }
    }

    pub(super) fn elements(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(elements) => elements,
            _ => &[],
        }
    }

    pub(super) fn members_mut(&mut self) -> &mut [(String, Node)] {
        match &mut self.kind {
            NodeKind::Map(members) => members,
            _ => &mut [],
        }
    }

    pub(super) fn elements_mut(&mut self) -> &mut [Node] {
        match &mut self.kind {
            NodeKind::List(elements) => elements,
            _ => &mut [],
        }
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self.kind, NodeKind::Map(_))
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, NodeKind::List(_))
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    /// The kind of the value, for an error text.
    pub(super) fn what(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool(_) => "true or false",
            NodeKind::Number(_) => "a number",
            NodeKind::Text(_) => "a string",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// A text. A number or a boolean of YAML becomes its source text: `version: 1.10` is "1.10".
    pub(super) fn text(&self) -> Option<String> {
        match &self.kind {
            NodeKind::Text(text) => Some(text.clone()),
            NodeKind::Number(json) => Some(self.written.clone().unwrap_or_else(|| json.clone())),
            NodeKind::Bool(bool) => Some(self.written.clone().unwrap_or_else(|| bool.to_string())),
            _ => None,
        }
    }

    /// A number as JSON text.
    pub(super) fn digits(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Number(json) => Some(json),
            NodeKind::Text(text) if self.is_filled && number::decimal(text).is_some() => Some(text.trim()),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<f64> {
        self.digits()?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    pub(super) fn bool(&self) -> Option<bool> {
        match self.kind {
            NodeKind::Bool(bool) => Some(bool),
            NodeKind::Text(ref text) if self.is_filled => match text.trim() {
                "true" | "True" | "TRUE" => Some(true),
                "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(bool) => Value::Bool(*bool),
            // Beyond what a `Value` holds it is the text.
            NodeKind::Number(json) => serde_json::from_str(json).unwrap_or_else(|_| json.as_str().into()),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::List(elements) => elements.iter().map(Self::value).collect(),
            NodeKind::Map(members) => members.iter().map(|(name, node)| (name.clone(), node.value())).collect(),
        }
    }

    /// As JSON text, for an output to be compared with. What a template filled in as a whole, such
    /// as a number of `matrix`, is the value that it was written as.
    pub(super) fn wanted(&self) -> String {
        match &self.kind {
            NodeKind::Text(text) if self.is_filled => json_unless_string(text.trim()).unwrap_or_else(|| self.json()),
            _ => self.json(),
        }
    }

    /// As JSON text, members in their order.
    pub(super) fn json(&self) -> String {
        let mut out = String::new();
        self.write_json(&mut out);
        // Some readers treat these as line ends. They occur only in strings.
        if out.contains(['\u{2028}', '\u{2029}']) {
            out = out.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
        }
        out
    }

    fn write_json(&self, out: &mut String) {
        match &self.kind {
            NodeKind::List(elements) => {
                out.push('[');
                for (place, element) in elements.iter().enumerate() {
                    if place > 0 {
                        out.push(',');
                    }
                    element.write_json(out);
                }
                out.push(']');
            }
            NodeKind::Map(members) => {
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
            NodeKind::Number(json) => out.push_str(json),
            _ => out.push_str(&self.value().to_string()),
        }
    }

    /// The values that it may mean in an operation's arguments, with the outputs of earlier steps
    /// filled in.
    pub(super) fn draft(&self, steps: &[StepRecord]) -> Result<Draft, String> {
        let scalar = |json: &str| {
            let mut texts = vec![json.to_owned()];
            texts.extend(self.written.as_ref().map(|written| Value::from(written.as_str()).to_string()));
            Draft::Scalar(texts)
        };
        Ok(match &self.kind {
            NodeKind::Null => scalar("null"),
            NodeKind::Bool(bool) => scalar(if *bool { "true" } else { "false" }),
            NodeKind::Number(json) => scalar(json),
            NodeKind::Text(text) => {
                let filled = substitute(text, steps)?;
                if let Some(source) = self.source.as_ref().filter(|_| self.is_filled) {
                    return Ok(Draft::container(&filled, source.draft(steps)?));
                }
                if self.is_filled || is_whole(text) { Draft::output(&filled) } else { Draft::text(&filled) }
            }
            NodeKind::List(elements) => {
                Draft::List(elements.iter().map(|element| element.draft(steps)).collect::<Result<_, _>>()?)
            }
            NodeKind::Map(members) => {
                let member = |(name, member): &(String, Self)| Ok((name.clone(), member.draft(steps)?));
                Draft::Map(members.iter().map(member).collect::<Result<_, String>>()?)
            }
        })
    }

    /// Changes all texts by a function that returns the new text, and whether the replacement is
    /// the whole of it.
    pub(super) fn each_text_mut(&mut self, change: &mut dyn FnMut(&str) -> Option<(String, bool)>) {
        match &mut self.kind {
            NodeKind::Text(text) => {
                if let Some((changed, is_whole)) = change(text) {
                    *text = changed;
                    self.is_filled = is_whole;
                }
            }
            NodeKind::List(elements) => elements.iter_mut().for_each(|element| element.each_text_mut(change)),
            NodeKind::Map(members) => members.iter_mut().for_each(|(_, member)| member.each_text_mut(change)),
            _ => {}
        }
    }

    /// Keeps the lists and maps that texts will stand for: `find` returns that of a text. In the
    /// text their numbers lose the spelling that a schema may want.
    pub(super) fn keep_sources(&mut self, find: &dyn Fn(&str) -> Option<Node>) {
        match &mut self.kind {
            NodeKind::Text(text) => self.source = find(text).map(Box::new),
            NodeKind::List(elements) => elements.iter_mut().for_each(|element| element.keep_sources(find)),
            NodeKind::Map(members) => members.iter_mut().for_each(|(_, member)| member.keep_sources(find)),
            _ => {}
        }
    }

    /// Sets a member of a map.
    pub(super) fn set(&mut self, name: &str, member: Self) {
        if let NodeKind::Map(members) = &mut self.kind {
            match members.iter_mut().find(|(found, _)| found == name) {
                Some((_, old)) => *old = member,
                None => members.push((name.to_owned(), member)),
            }
        }
    }

    /// Removes members from a map.
    pub(super) fn remove(&mut self, names: &[&str]) {
        if let NodeKind::Map(members) = &mut self.kind {
            members.retain(|(name, _)| !names.contains(&name.as_str()));
        }
    }

    /// A text of ours, in the place of another node.
    pub(super) fn of_text(text: &str, at: &Self) -> Self {
        Self { kind: NodeKind::Text(text.to_owned()), line: at.line, ..Self::default() }
    }

    /// A text of a table, whose type depends on its place: `30` is also a number of seconds.
    pub(super) fn of_column(text: &str, at: &Self) -> Self {
        Self { is_filled: true, ..Self::of_text(text, at) }
    }

    /// An empty map in the place of another node.
    pub(super) fn empty_map(at: &Self) -> Self {
        Self { kind: NodeKind::Map(Vec::new()), line: at.line, ..Self::default() }
    }
}

/// Whether a scalar has an explicit tag, such as `!!str`. `before` is the document up to the
/// scalar.
fn is_tagged(before: &str) -> bool {
    let mut properties = before.rsplit(|c: char| c.is_whitespace() || "[{,".contains(c));
    // The text that touches the scalar is empty.
    properties.next() == Some("")
        && properties.take_while(|property| property.starts_with(['!', '&'])).any(|property| property.starts_with('!'))
}

pub(super) fn options() -> serde_saphyr::Options {
    // YAML 1.2: `on` and `off` are texts, such as ids.
    serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! { max_nodes: VALUE_LIMIT, max_depth: DEPTH_LIMIT },
    }
}

pub(super) fn unreadable(error: &serde_saphyr::Error) -> Unreadable {
    let line = error.location().and_then(|location| u32::try_from(location.line()).ok()).filter(|line| *line > 0);
    // Without the place, which follows it.
    let mut error = error;
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } = error {
        error = inner;
    }
    let text = match error {
        Error::Budget { breach: BudgetBreach::Depth { .. }, .. } => format!("nested deeper than {DEPTH_LIMIT}"),
        Error::Budget { breach: BudgetBreach::Nodes { .. }, .. } => {
            format!("more than {VALUE_LIMIT} values, with those of aliases")
        }
        other => UserMessageFormatter.format_message(other).into_owned(),
    };
    // One line, since it is part of a list of errors.
    Unreadable { text: text.split_whitespace().collect::<Vec<_>>().join(" "), line }
}

impl<'de> Deserialize<'de> for NodeKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = NodeKind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<NodeKind, E> {
                Ok(NodeKind::Null)
            }

            fn visit_none<E>(self) -> Result<NodeKind, E> {
                Ok(NodeKind::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<NodeKind, D::Error> {
                deserializer.deserialize_any(self)
            }

            fn visit_bool<E>(self, value: bool) -> Result<NodeKind, E> {
                Ok(NodeKind::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<NodeKind, E> {
                Ok(NodeKind::Number(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<NodeKind, E> {
                Ok(NodeKind::Number(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<NodeKind, E> {
                // A number that an f64 cannot hold is taken from the document afterwards.
                Ok(NodeKind::Number(
                    Number::from_f64(value).map_or_else(|| value.to_string(), |number| number.to_string()),
                ))
            }

            fn visit_str<E>(self, value: &str) -> Result<NodeKind, E> {
                Ok(NodeKind::Text(value.to_owned()))
            }

            fn visit_string<E>(self, value: String) -> Result<NodeKind, E> {
                Ok(NodeKind::Text(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NodeKind, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element::<Spanned<NodeKind>>()? {
                    elements.push(Node::of(element));
                }
                Ok(NodeKind::List(elements))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeKind, A::Error> {
                let mut members = Vec::new();
                // The parser compares keys as YAML does, in which `1` and `"1"` differ. Names of
                // members do not.
                let mut names = HashSet::new();
                while let Some((name, value)) = map.next_entry::<String, Spanned<NodeKind>>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format_args!(
                            "duplicate mapping key `{name}` is not allowed here"
                        )));
                    }
                    members.push((name, Node::of(value)));
                }
                Ok(NodeKind::Map(members))
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
            r#"{"name":"rails","version":1.10,"list":[{"a":1,"b":[true,null,2.5]}],"empty":null,"quoted":"1.0"}"#
        );
        assert_eq!(node.get("version").unwrap().text().unwrap(), "1.10");
        assert_eq!(node.get("quoted").unwrap().text().unwrap(), "1.0");
        assert_eq!(node.get("list").unwrap().elements()[0].get("b").unwrap().line, 5);
        assert!(node.get("empty").is_none());
        // YAML 1.2 has two truth values, each with one spelling or its capitals.
        assert_eq!(
            Node::parse("[on, off, yes, no, true, False]").unwrap().json(),
            r#"["on","off","yes","no",true,false]"#
        );
    }

    /// Reports: MRPT/mrpt#1401, mikefarah/yq#2792, pipecat-ai/pipecat#4887.
    #[test]
    fn scalars_keep_their_digits() {
        for (written, json, text) in [
            ("00123", "123", "00123"),
            ("010", "10", "010"),
            ("+5", "5", "+5"),
            ("-007", "-7", "-007"),
            ("123456789012345678901234567890", "123456789012345678901234567890", "123456789012345678901234567890"),
            ("3.14159265358979323846264338", "3.14159265358979323846264338", "3.14159265358979323846264338"),
            ("0x1F", "31", "0x1F"),
            ("0o17", "15", "0o17"),
            ("1e3", "1e3", "1e3"),
            ("1.10", "1.10", "1.10"),
            (".5", "0.5", ".5"),
            ("5.", "5.0", "5."),
            ("2024-01-01", "\"2024-01-01\"", "2024-01-01"),
            ("yes", "\"yes\"", "yes"),
            ("12:30:45", "\"12:30:45\"", "12:30:45"),
            ("'00123'", "\"00123\"", "00123"),
            ("\"5\"", "\"5\"", "5"),
            ("True", "true", "True"),
            ("1e400", "1e400", "1e400"),
            ("-1e-400", "-1e-400", "-1e-400"),
            (".inf", "\".inf\"", ".inf"),
            ("-.Inf", "\"-.Inf\"", "-.Inf"),
            (".nan", "\".nan\"", ".nan"),
            ("!!str 010", "\"010\"", "010"),
            ("!!str &a 1.50", "\"1.50\"", "1.50"),
            (
                "&b !!str 123456789012345678901234567890",
                "\"123456789012345678901234567890\"",
                "123456789012345678901234567890",
            ),
            ("&c 123456789012345678901234567890", "123456789012345678901234567890", "123456789012345678901234567890"),
            ("!!float 1", "1", "1"),
        ] {
            let node = Node::parse(&format!("a: 0\nb: [{written}]\n")).unwrap();
            let element = &node.get("b").unwrap().elements()[0];
            assert_eq!(element.json(), json, "{written}");
            assert_eq!(element.text().as_deref(), Some(text), "{written}: {element:?}");
        }
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
