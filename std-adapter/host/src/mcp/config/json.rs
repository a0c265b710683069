//! Members that are set in a JSON text, which may have comments and trailing commas. Every other
//! byte stays as it is, since each edit is made at a place that the parser names.

use jsonc_parser::ast::{Object, ObjectProp, Value as Ast};
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::splice::{Splice, edited, indent_at, indent_of_line, newline_of};

/// The step of indentation in a file that has none.
const STEP: &str = "  ";

/// Syntax that the clients' own readers accept, some of them less: comments and trailing commas.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The value of a text; none of one that has no value.
pub(super) fn value(text: &str) -> Result<Option<Value>, String> {
    let collect = CollectOptions { comments: CommentCollectionStrategy::Off, tokens: false };
    let parsed = parse_to_ast(without_mark(text), &collect, &OPTIONS).map_err(|error| format!("not JSON: {error}"))?;
    Ok(parsed.value.as_ref().map(plain))
}

/// The text with an entry in the object that is the member `member` of the whole; none if it is
/// there already. What an entry of that name has beside `entry` stays, but the members `without`
/// go.
pub(super) fn with_entry(
    text: &str,
    member: &str,
    name: &str,
    entry: &Map<String, Value>,
    without: &[&str],
) -> Result<Option<String>, String> {
    let body = without_mark(text);
    let mark = text.get(..text.len() - body.len()).unwrap_or_default();
    let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
    let parsed = parse_to_ast(body, &collect, &OPTIONS).map_err(|error| format!("not JSON: {error}"))?;
    let page = Page::of(body, parsed.tokens.as_deref().unwrap_or_default(), parsed.value.as_ref());
    let entry = Value::Object(entry.clone());
    let edits = match &parsed.value {
        None => {
            let mut file = Map::new();
            file.insert(member.to_owned(), Value::Object(Map::from_iter([(name.to_owned(), entry.clone())])));
            let gap = if body.is_empty() || body.ends_with('\n') { "" } else { page.newline };
            let whole = page.written(&Value::Object(file), "");
            vec![Splice::insert(body.len(), format!("{gap}{whole}{}", page.newline))]
        }
        Some(Ast::Object(file)) => match last(file, member).map(|property| &property.value) {
            None => {
                let servers = Value::Object(Map::from_iter([(name.to_owned(), entry.clone())]));
                page.add(file, &[(member, &servers)])
            }
            Some(Ast::Object(servers)) => match last(servers, name) {
                None => page.add(servers, &[(name, &entry)]),
                Some(property) => page.update(property, &entry, without),
            },
            Some(_) => return Err(format!("`{member}` is not an object")),
        },
        Some(_) => return Err("not a JSON object".into()),
    };
    if edits.is_empty() {
        return Ok(None);
    }
    let new = edited(body, edits);
    // It is read once more, so that a file is never left worse than it was.
    let is_there = value(&new)?.is_some_and(|file| {
        let found = file.get(member).and_then(|servers| servers.get(name));
        entry_members(&entry).all(|(key, value)| found.and_then(|found| found.get(key)) == Some(value))
    });
    if is_there { Ok(Some(format!("{mark}{new}"))) } else { Err("it cannot be edited: edit it yourself".into()) }
}

fn entry_members(entry: &Value) -> impl Iterator<Item = (&String, &Value)> {
    entry.as_object().into_iter().flatten()
}

/// RFC 8259 §8.1: a byte order mark may be passed over.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The member that counts, where there are several of one name: every reader takes the last one.
fn last<'o, 'a>(object: &'o Object<'a>, name: &str) -> Option<&'o ObjectProp<'a>> {
    object.properties.iter().rev().find(|property| property.name.as_str() == name)
}

fn plain(value: &Ast<'_>) -> Value {
    match value {
        Ast::StringLit(text) => Value::String(text.value.clone().into_owned()),
        Ast::NumberLit(number) => serde_json::from_str(number.value).unwrap_or(Value::Null),
        Ast::BooleanLit(boolean) => Value::Bool(boolean.value),
        Ast::Object(object) => object
            .properties
            .iter()
            .map(|property| (property.name.as_str().to_owned(), plain(&property.value)))
            .collect(),
        Ast::Array(array) => array.elements.iter().map(plain).collect(),
        Ast::NullKeyword(_) => Value::Null,
    }
}

/// A text, and its style.
struct Page<'t> {
    text: &'t str,
    tokens: &'t [TokenAndRange<'t>],
    newline: &'static str,
    step: &'t str,
    /// All of it stands on one line.
    is_compact: bool,
}

impl<'t> Page<'t> {
    fn of(text: &'t str, tokens: &'t [TokenAndRange<'t>], value: Option<&Ast<'_>>) -> Self {
        let first = value.and_then(|value| value.as_object()).and_then(|object| object.properties.first());
        let step = first.and_then(|first| indent_at(text, first.range.start)).filter(|indent| !indent.is_empty());
        let is_compact = first.is_some() && !text.trim().contains('\n');
        Self { text, tokens, newline: newline_of(text), step: step.unwrap_or(STEP), is_compact }
    }

    /// A value on several lines, of which the first is indented already.
    fn written(&self, value: &Value, indent: &str) -> String {
        let mut bytes = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.step.as_bytes());
        // Writing into memory does not fail.
        let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter));
        // A newline in a string is escaped.
        String::from_utf8(bytes).unwrap_or_default().replace('\n', &format!("{}{indent}", self.newline))
    }

    /// Adds members at the end of an object, in the way that its members are written.
    fn add(&self, object: &Object<'_>, members: &[(&str, &Value)]) -> Vec<Splice> {
        let inside = object.range.start..object.range.end;
        let text = self.text.get(inside.clone()).unwrap_or_default();
        let spread = text.contains('\n') || (!self.is_compact && object.properties.is_empty());
        let line = indent_of_line(self.text, object.range.start);
        let Some(end) = object.properties.last() else { return self.fill(object, members, spread, line) };
        let rest = self.tokens.iter().filter(|token| token.range.start >= end.range.end);
        let after: Vec<&TokenAndRange<'_>> =
            rest.take_while(|token| token.range.start < object.range.end - 1).collect();
        let comma = after.iter().find(|token| token.token == Token::Comma);
        let mut at = comma.map_or(end.range.end, |comma| comma.range.end);
        // A comment on the line of a member is about that one.
        for token in after.iter().filter(|token| token.range.start >= end.range.end) {
            let between = self.text.get(at.min(token.range.start)..token.range.start).unwrap_or_default();
            if !between.contains('\n') && matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_)) {
                at = at.max(token.range.end);
            }
        }
        let own = indent_at(self.text, end.range.start);
        let deeper = format!("{line}{}", self.step);
        let indent = own.unwrap_or(&deeper);
        let mut edits = Vec::new();
        if comma.is_none() {
            edits.push(Splice::insert(end.range.end, ","));
        }
        let listed: Vec<String> =
            members.iter().map(|(name, value)| self.member(name, value, spread, indent)).collect();
        let gap = if spread { format!("{}{indent}", self.newline) } else { " ".to_owned() };
        let tail = if comma.is_some() { "," } else { "" };
        edits.push(Splice::insert(at, format!("{gap}{}{tail}", listed.join(&format!(",{gap}")))));
        edits
    }

    /// The members of an object that has none.
    fn fill(&self, object: &Object<'_>, members: &[(&str, &Value)], spread: bool, line: &str) -> Vec<Splice> {
        let close = object.range.end - 1;
        let is_comment =
            |token: &&TokenAndRange<'_>| matches!(token.token, Token::CommentLine(_) | Token::CommentBlock(_));
        let mut inside =
            self.tokens.iter().filter(|token| token.range.start > object.range.start && token.range.end <= close);
        let at = inside.rfind(is_comment).map_or(object.range.start + 1, |comment| comment.range.end);
        let indent = format!("{line}{}", self.step);
        let listed: Vec<String> =
            members.iter().map(|(name, value)| self.member(name, value, spread, &indent)).collect();
        if !spread {
            return vec![Splice::insert(at, listed.join(", "))];
        }
        let gap = format!("{}{indent}", self.newline);
        let is_closed_on_its_line = self.text.get(at..close).is_some_and(|rest| rest.contains('\n'));
        let end = if is_closed_on_its_line { String::new() } else { format!("{}{line}", self.newline) };
        vec![Splice::insert(at, format!("{gap}{}{end}", listed.join(&format!(",{gap}"))))]
    }

    fn member(&self, name: &str, value: &Value, spread: bool, indent: &str) -> String {
        let name = Value::from(name);
        if spread { format!("{name}: {}", self.written(value, indent)) } else { format!("{name}: {}", one_line(value)) }
    }

    /// Gives an entry the members that it must have, and leaves its others alone.
    fn update(&self, property: &ObjectProp<'_>, entry: &Value, without: &[&str]) -> Vec<Splice> {
        let place = |value: &Ast<'_>| {
            let range = jsonc_parser::common::Ranged::range(value);
            range.start..range.end
        };
        let Ast::Object(known) = &property.value else {
            let indent = indent_of_line(self.text, property.range.start);
            return vec![Splice::replace(place(&property.value), self.written(entry, indent))];
        };
        if without.iter().any(|name| last(known, name).is_some()) {
            let mut whole = plain(&property.value);
            if let Some(members) = whole.as_object_mut() {
                members.retain(|name, _| !without.contains(&name.as_str()));
                members.extend(entry_members(entry).map(|(name, value)| (name.clone(), value.clone())));
            }
            let indent = indent_of_line(self.text, property.range.start);
            let is_spread = self.text.get(place(&property.value)).is_some_and(|text| text.contains('\n'));
            let text = if is_spread { self.written(&whole, indent) } else { one_line(&whole) };
            return vec![Splice::replace(place(&property.value), text)];
        }
        let (mut edits, mut added) = (Vec::new(), Vec::new());
        for (key, wanted) in entry_members(entry) {
            match last(known, key) {
                Some(found) if plain(&found.value) == *wanted => {}
                Some(found) => {
                    let old = place(&found.value);
                    let is_spread = self.text.get(old.clone()).is_some_and(|text| text.contains('\n'));
                    let indent = indent_of_line(self.text, found.range.start);
                    let text = if is_spread { self.written(wanted, indent) } else { one_line(wanted) };
                    edits.push(Splice::replace(old, text));
                }
                None => added.push((key.as_str(), wanted)),
            }
        }
        if !added.is_empty() {
            edits.extend(self.add(known, &added));
        }
        edits
    }
}

/// A value on one line, with a space where people put one.
fn one_line(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(one_line).collect::<Vec<_>>().join(", ")),
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members =
                members.iter().map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), one_line(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}
