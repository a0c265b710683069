//! The serializer's round trip: what it writes, `serde_json` reads as it reads its own; and memory that is too small gets
//! nothing beyond its end and the size that was needed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rigline::json::check::check;
use rigline::json::ser::{self, SerError};
use rigline::json::write::{TooLarge, Writer};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, SerializeTupleVariant, Serializer};
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let [size, data @ ..] = data else { return };
    let node = Source { data }.node(0);
    let text = match ser::to_vec(&node) {
        Ok(text) => text,
        Err(SerError::NotFinite) => {
            assert!(node.is_not_finite());
            let mut memory = [0; 64];
            let mut out = Writer::new(&mut memory);
            out.byte(b'[');
            assert_eq!(ser::write(&node, &mut out), Err(SerError::NotFinite));
            assert_eq!(out.as_written(), b"[");
            return;
        }
        Err(error) => panic!("{error}: {node:?}"),
    };
    assert!(!node.is_not_finite());
    assert_eq!(check(&text), Ok(()));
    let as_str = str::from_utf8(&text).unwrap();
    assert!(!as_str.contains(|char: char| char < ' ' || matches!(char, '\u{2028}' | '\u{2029}')), "{as_str}");
    let theirs = serde_json::to_string(&node).unwrap();
    let same = if node.any(&|node| matches!(node, Node::Narrow(_))) { same_narrow } else { Value::eq };
    assert!(same(&read(as_str), &read(&theirs)), "{as_str} {theirs}");

    for room in [usize::from(*size), text.len(), text.len().saturating_sub(1)] {
        let mut memory = vec![0xAA; room + 8];
        match ser::to_slice(&node, &mut memory[..room]) {
            Ok(length) => assert_eq!(memory[..length], text),
            Err(error) => assert_eq!(error, SerError::TooLarge(TooLarge { needed: text.len(), capacity: room })),
        }
        assert_eq!(room >= text.len(), memory.starts_with(&text));
        assert_eq!(memory[room..], [0xAA; 8]);
    }
});

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Of two shortest texts of an `f32` that are equally near, such as 3135398.2 and 3135398.3 for 3135398.25, either will do.
#[allow(clippy::cast_possible_truncation, clippy::float_cmp)]
fn same_narrow(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Number(ours), Value::Number(theirs)) => {
            let narrow = |number: &serde_json::Number| number.as_f64().unwrap() as f32;
            ours == theirs || narrow(ours) == narrow(theirs)
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| same_narrow(ours, theirs))
        }
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.keys().eq(theirs.keys()) && ours.values().zip(theirs.values()).all(|(a, b)| same_narrow(a, b))
        }
        _ => ours == theirs,
    }
}

#[derive(Debug)]
enum Node {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Wide(u128),
    WideSigned(i128),
    Float(f64),
    Narrow(f32),
    Char(char),
    Text(String),
    Bytes(Vec<u8>),
    Some(Box<Node>),
    Sequence(Vec<Node>),
    Map(Vec<(Key, Node)>),
    Struct(Box<[Node; 2]>),
    Variant,
    Newtype(Box<Node>),
    Tuple(Box<[Node; 2]>),
    Display(String),
}

#[derive(Debug)]
enum Key {
    Text(String),
    Number(i64),
    Wide(u128),
    Bool(bool),
    Char(char),
    Variant,
}

impl Node {
    fn is_not_finite(&self) -> bool {
        self.any(&|node| match node {
            Self::Float(value) => !value.is_finite(),
            Self::Narrow(value) => !value.is_finite(),
            _ => false,
        })
    }

    /// Whether this or a node in it is so.
    fn any(&self, is: &dyn Fn(&Self) -> bool) -> bool {
        is(self)
            || match self {
                Self::Some(node) | Self::Newtype(node) => node.any(is),
                Self::Sequence(nodes) => nodes.iter().any(|node| node.any(is)),
                Self::Map(members) => members.iter().any(|(_, node)| node.any(is)),
                Self::Struct(nodes) | Self::Tuple(nodes) => nodes.iter().any(|node| node.any(is)),
                _ => false,
            }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => match (u8::try_from(*value), u16::try_from(*value), u32::try_from(*value)) {
                (Ok(value), ..) => serializer.serialize_u8(value),
                (_, Ok(value), _) => serializer.serialize_u16(value),
                (.., Ok(value)) => serializer.serialize_u32(value),
                _ => serializer.serialize_u64(*value),
            },
            Self::Signed(value) => match (i8::try_from(*value), i16::try_from(*value), i32::try_from(*value)) {
                (Ok(value), ..) => serializer.serialize_i8(value),
                (_, Ok(value), _) => serializer.serialize_i16(value),
                (.., Ok(value)) => serializer.serialize_i32(value),
                _ => serializer.serialize_i64(*value),
            },
            Self::Wide(value) => serializer.serialize_u128(*value),
            Self::WideSigned(value) => serializer.serialize_i128(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Narrow(value) => serializer.serialize_f32(*value),
            Self::Char(value) => serializer.serialize_char(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::Some(node) => serializer.serialize_some(node),
            Self::Sequence(nodes) => serializer.collect_seq(nodes),
            Self::Map(members) => {
                let mut map = serializer.serialize_map(None)?;
                for (key, node) in members {
                    map.serialize_entry(key, node)?;
                }
                map.end()
            }
            Self::Struct(nodes) => {
                let mut map = serializer.serialize_struct("Struct", 2)?;
                map.serialize_field("a", &nodes[0])?;
                map.serialize_field("\"\u{2028}", &nodes[1])?;
                map.end()
            }
            Self::Variant => serializer.serialize_unit_variant("Node", 0, "Variant"),
            Self::Newtype(node) => serializer.serialize_newtype_variant("Node", 1, "Newtype", node),
            Self::Tuple(nodes) => {
                let mut tuple = serializer.serialize_tuple_variant("Node", 2, "Tu\nple", 2)?;
                tuple.serialize_field(&nodes[0])?;
                tuple.serialize_field(&nodes[1])?;
                tuple.end()
            }
            Self::Display(text) => serializer.collect_str(&format_args!("{text}\u{0}{text}")),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(value) => serializer.serialize_str(value),
            Self::Number(value) => serializer.serialize_i64(*value),
            Self::Wide(value) => serializer.serialize_u128(*value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Char(value) => serializer.serialize_char(*value),
            Self::Variant => serializer.serialize_unit_variant("Key", 0, "Variant"),
        }
    }
}

/// Makes values of bytes.
struct Source<'d> {
    data: &'d [u8],
}

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        match self.data {
            [] => 0,
            [byte, rest @ ..] => {
                self.data = rest;
                *byte
            }
        }
    }

    fn word<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.byte() % 40).min(self.data.len());
        let (text, rest) = self.data.split_at(length);
        self.data = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    fn char(&mut self) -> char {
        char::from_u32(u32::from_le_bytes(self.word()) % 0x11_0000).unwrap_or('\u{2029}')
    }

    fn node(&mut self, depth: usize) -> Node {
        let kind = self.byte();
        let leaf = if depth > 60 || self.data.is_empty() { 12 } else { 20 };
        match kind % leaf {
            0 => Node::Null,
            1 => Node::Bool(self.byte() & 1 == 1),
            2 => Node::Unsigned(u64::from_le_bytes(self.word()) >> (kind / 20 * 5)),
            3 => Node::Signed(i64::from_le_bytes(self.word()) >> (kind / 20 * 5)),
            4 => Node::Wide(u128::from_le_bytes(self.word())),
            5 => Node::WideSigned(i128::from_le_bytes(self.word())),
            6 => Node::Float(f64::from_le_bytes(self.word())),
            7 => Node::Narrow(f32::from_le_bytes(self.word())),
            8 => Node::Char(self.char()),
            9 => Node::Text(self.text()),
            10 => Node::Bytes(self.text().into_bytes()),
            11 => Node::Display(self.text()),
            12 => Node::Some(Box::new(self.node(depth + 1))),
            13 => Node::Sequence((0..self.byte() % 8).map(|_| self.node(depth + 1)).collect()),
            14 => Node::Map((0..self.byte() % 8).map(|_| (self.key(), self.node(depth + 1))).collect()),
            15 => Node::Struct(Box::new([self.node(depth + 1), self.node(depth + 1)])),
            16 => Node::Variant,
            17 => Node::Newtype(Box::new(self.node(depth + 1))),
            18 => Node::Tuple(Box::new([self.node(depth + 1), self.node(depth + 1)])),
            _ => Node::Text(self.text() + "\u{2028}"),
        }
    }

    fn key(&mut self) -> Key {
        match self.byte() % 6 {
            0 => Key::Number(i64::from_le_bytes(self.word())),
            1 => Key::Wide(u128::from_le_bytes(self.word())),
            2 => Key::Bool(self.byte() & 1 == 1),
            3 => Key::Char(self.char()),
            4 => Key::Variant,
            _ => Key::Text(self.text()),
        }
    }
}
