//! Codex's tables in a TOML text. Every other byte stays as it is, line ends and comments too,
//! since each edit is made at a place that the parser names.

use serde_json::{Map, Value};
use toml_edit::{Document, Item, TableLike};

use super::splice::{Splice, edited, newline_of};

/// The table that has the servers.
const SERVERS: &str = "mcp_servers";

/// The servers in a text.
pub(super) fn servers(text: &str) -> Result<Vec<(String, Value)>, String> {
    let file: ::toml::Table = ::toml::from_str(text).map_err(|error| format!("not TOML: {}", error.message()))?;
    match file.get(SERVERS) {
        None => Ok(Vec::new()),
        Some(::toml::Value::Table(servers)) => {
            Ok(servers.iter().map(|(name, entry)| (name.clone(), plain(entry))).collect())
        }
        Some(_) => Err(format!("`{SERVERS}` is not a table")),
    }
}

fn plain(value: &::toml::Value) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// The table of a server, as a text.
pub(super) fn table(name: &str, entry: &Map<String, Value>, newline: &str) -> String {
    let mut text = format!("[{SERVERS}.{}]{newline}", key(name));
    for (name, value) in entry {
        text += &format!("{} = {}{newline}", key(name), written(value));
    }
    text
}

/// A key, in quotes where it needs them.
fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    if is_bare { name.to_owned() } else { written(&Value::from(name)) }
}

/// A value on one line. JSON's strings are TOML's, too, but for the character DEL.
fn written(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{} = {}", key(name), written(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string().replace('\u{7f}', "\\u007F"),
    }
}

/// The text with a server's table, at the end where it is new; none if it is there already. What a
/// table of that name has beside `entry` stays, but the keys `without` go.
pub(super) fn with_entry(
    text: &str,
    name: &str,
    entry: &Map<String, Value>,
    without: &[&str],
) -> Result<Option<String>, String> {
    let old = servers(text)?;
    let newline = newline_of(text);
    let of =
        |servers: &[(String, Value)]| servers.iter().find(|(known, _)| known == name).map(|(_, entry)| entry.clone());
    let (new, wanted) = match of(&old) {
        None => {
            let gap = match text {
                "" | "\u{feff}" => String::new(),
                text if text.ends_with('\n') => newline.to_owned(),
                _ => newline.repeat(2),
            };
            (format!("{text}{gap}{}", table(name, entry, newline)), Value::Object(entry.clone()))
        }
        Some(known) => {
            let mut wanted = known.clone();
            if let Some(members) = wanted.as_object_mut() {
                members.retain(|name, _| !without.contains(&name.as_str()));
                members.extend(entry.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            if wanted == known {
                return Ok(None);
            }
            (updated(text, name, entry, without)?, wanted)
        }
    };
    // It is read once more, so that a file is never left worse than it was.
    let others =
        |servers: &[(String, Value)]| servers.iter().filter(|(known, _)| known != name).cloned().collect::<Vec<_>>();
    match servers(&new) {
        Ok(servers) if of(&servers) == Some(wanted) && others(&servers) == others(&old) => Ok(Some(new)),
        _ => Err("a table cannot be added to it: edit it yourself".into()),
    }
}

/// The text with the values of a table that is there.
fn updated(text: &str, name: &str, entry: &Map<String, Value>, without: &[&str]) -> Result<String, String> {
    let file = Document::parse(text).map_err(|error| format!("not TOML: {}", error.message()))?;
    let found = file.get(SERVERS).and_then(|servers| servers.get(name));
    let Some(table) = found.and_then(Item::as_table_like) else {
        return Err("it is not a table: edit it yourself".into());
    };
    let newline = newline_of(text);
    let is_inline = found.is_some_and(Item::is_inline_table);
    let mut edits = Vec::new();
    for gone in without {
        let Some((start, end)) = pair(table, gone) else { continue };
        if is_inline {
            return Err("its inline table cannot be changed: edit it yourself".into());
        }
        // With its line.
        let end = text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |length| end + length + 1);
        let start = text.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
        edits.push(Splice::replace(start..end, ""));
    }
    let mut added = Vec::new();
    for (key, wanted) in entry {
        match table.get(key).and_then(Item::span) {
            Some(place) => {
                let old: Option<::toml::Value> = text
                    .get(place.clone())
                    .and_then(|text| ::toml::from_str::<::toml::Table>(&format!("v = {text}")).ok()?.remove("v"));
                if old.as_ref().map(plain).as_ref() != Some(wanted) {
                    edits.push(Splice::replace(place, written(wanted)));
                }
            }
            None => added.push(format!("{} = {}", self::key(key), written(wanted))),
        }
    }
    if !added.is_empty() {
        let ends =
            table.iter().filter(|(_, item)| item.is_value()).filter_map(|(_, item)| item.span()).map(|place| place.end);
        let span = found.and_then(Item::span).unwrap_or_default();
        edits.push(if is_inline {
            match ends.max() {
                Some(end) => Splice::insert(end, format!(", {}", added.join(", "))),
                None => Splice::insert(span.start + 1, format!(" {} ", added.join(", "))),
            }
        } else {
            // After the line of the last value, or of the head.
            let at = ends.max().unwrap_or(span.start);
            let rest = text.get(at..).unwrap_or_default();
            let lines = added.join(newline);
            match rest.find('\n') {
                Some(length) => Splice::insert(at + length + 1, format!("{lines}{newline}")),
                None => Splice::insert(text.len(), format!("{newline}{lines}")),
            }
        });
    }
    Ok(edited(text, edits))
}

/// Where a key and its value are.
fn pair(table: &dyn TableLike, name: &str) -> Option<(usize, usize)> {
    let (key, item) = table.get_key_value(name)?;
    Some((key.span()?.start, item.span()?.end))
}
