//! What an extension is and offers, known at compile time and kept in flash.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

use crate::json::write::Writer;
use crate::params::{OutputValue, Params};
use crate::schema::Node;

/// An extension's name, version and operations.
///
/// ```
/// use rigline::{Manifest, Operation, Schema};
/// const MANIFEST: Manifest = Manifest::new("greeter", "1.2.0")
///     .description("Says hello")
///     .operations(&[Operation::new("greet", Schema::text(r#"{"type":"object"}"#)).description("Greets")]);
/// assert_eq!(MANIFEST.operations[0].name, "greet");
/// ```
///
/// A version that is not semantic does not compile in a constant:
/// ```compile_fail
/// const MANIFEST: rigline::Manifest = rigline::Manifest::new("greeter", "1.2");
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Manifest {
    /// The extension's identifier.
    pub name: &'static str,
    /// Its semantic version.
    pub version: &'static str,
    /// What it is for, in a sentence; empty where nothing is said.
    pub description: &'static str,
    /// Commands that must be found in `PATH` before an operation runs (gevals "Requirement Object"; on desktops only).
    pub requires: &'static [&'static str],
    /// What it can do.
    pub operations: &'static [Operation],
    /// What it is to an Amplifier host.
    pub kind: Kind,
    /// What it promises to a namel3ss host.
    pub guarantees: &'static [Guarantee],
    /// The secrets that it makes use of, by their names (namel3ss `secrets_allowed`): it runs only where all of them are
    /// allowed.
    pub secrets: &'static [&'static str],
}

impl Manifest {
    /// Where the operation of this name stands.
    pub(crate) fn position(&self, name: crate::json::Text<'_>) -> Option<usize> {
        self.operations.iter().position(|known| name == *known.name)
    }

    /// A manifest without operations.
    ///
    /// # Panics
    /// If `version` is not semantic (semver.org 2.0.0): in a constant, where manifests belong, it does not compile.
    #[allow(clippy::panic, reason = "it is for constants, where it is a compile error")]
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        match Self::try_new(name, version) {
            Ok(manifest) => manifest,
            Err(_) => panic!("the manifest's version is not a semantic version such as 1.2.0"),
        }
    }

    /// [`new`](Self::new) for a version that is known only at run time.
    pub const fn try_new(name: &'static str, version: &'static str) -> Result<Self, NotSemantic> {
        if !is_semantic(version.as_bytes()) {
            return Err(NotSemantic);
        }
        Ok(Self {
            name,
            version,
            description: "",
            requires: &[],
            operations: &[],
            kind: Kind::Tool,
            guarantees: &[],
            secrets: &[],
        })
    }

    /// With a description.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// With the commands that must be in `PATH`.
    #[must_use]
    pub const fn requires(self, requires: &'static [&'static str]) -> Self {
        Self { requires, ..self }
    }

    /// As another kind of Amplifier module than a tool.
    #[must_use]
    pub const fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// With the guarantees that it keeps.
    #[must_use]
    pub const fn guarantees(self, guarantees: &'static [Guarantee]) -> Self {
        Self { guarantees, ..self }
    }

    /// With the names of the secrets that it makes use of.
    #[must_use]
    pub const fn secrets(self, secrets: &'static [&'static str]) -> Self {
        Self { secrets, ..self }
    }

    /// With operations.
    #[must_use]
    pub const fn operations(self, operations: &'static [Operation]) -> Self {
        Self { operations, ..self }
    }

    /// The manifest as it is, if a gevals host can read it: its reply to `initialize`, with envelope and an id of 20
    /// digits, takes at most 65,535 bytes without its newline. `#[rigline::extension]` checks this; in a manifest written by
    /// hand, put it last.
    ///
    /// # Panics
    /// If it is longer: in a constant, where manifests belong, it does not compile.
    #[must_use]
    pub const fn fitting(self) -> Self {
        assert!(
            crate::protocol::gevals::manifest_reply_len(&self, 20) <= crate::protocol::gevals::HOST_LINE_LIMIT,
            "the manifest takes more than the 65,535 bytes of a line that a gevals host reads: shorten descriptions, or split the extension"
        );
        self
    }
}

/// A version that is not semantic (semver.org 2.0.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSemantic;

impl fmt::Display for NotSemantic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a semantic version such as 1.2.0")
    }
}

impl core::error::Error for NotSemantic {}

/// The kinds of Amplifier modules (PROTOCOLS.md §1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Kind {
    /// Gives access to a model or service.
    Provider,
    /// Does things when asked.
    #[default]
    Tool,
    /// Works on its own.
    Agent,
    /// Is told of events: its [`on_event`](crate::Extension::on_event) runs.
    Hook,
    /// Directs others.
    Orchestrator,
    /// Keeps context.
    Context,
}

impl Kind {
    /// All kinds, in the text's order.
    pub const ALL: [Self; 6] = [Self::Provider, Self::Tool, Self::Agent, Self::Hook, Self::Orchestrator, Self::Context];

    /// The kind's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Tool => "tool",
            Self::Agent => "agent",
            Self::Hook => "hook",
            Self::Orchestrator => "orchestrator",
            Self::Context => "context",
        }
    }

    /// The kind that has this name on the wire.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Its name.
impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// From its name.
impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameVisitor;

        impl Visitor<'_> for NameVisitor {
            type Value = Kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a kind of module")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Kind, E> {
                const NAMES: [&str; 6] = [
                    Kind::Provider.name(),
                    Kind::Tool.name(),
                    Kind::Agent.name(),
                    Kind::Hook.name(),
                    Kind::Orchestrator.name(),
                    Kind::Context.name(),
                ];
                Kind::from_name(name).ok_or_else(|| E::unknown_variant(name, &NAMES))
            }
        }

        deserializer.deserialize_str(NameVisitor)
    }
}

/// Something that an extension promises not to do: namel3ss `capability_context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Guarantee {
    /// It writes no files.
    NoFilesystemWrite,
    /// It reads no files.
    NoFilesystemRead,
    /// It does not use the network.
    NoNetwork,
    /// It starts no programs.
    NoSubprocess,
    /// It does not read environment variables.
    NoEnvRead,
    /// It does not change environment variables.
    NoEnvWrite,
}

impl Guarantee {
    /// All guarantees, in the order in which the real host lists them.
    pub const ALL: [Self; 6] = [
        Self::NoFilesystemWrite,
        Self::NoFilesystemRead,
        Self::NoNetwork,
        Self::NoSubprocess,
        Self::NoEnvRead,
        Self::NoEnvWrite,
    ];

    /// The guarantee's name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoFilesystemWrite => "no_filesystem_write",
            Self::NoFilesystemRead => "no_filesystem_read",
            Self::NoNetwork => "no_network",
            Self::NoSubprocess => "no_subprocess",
            Self::NoEnvRead => "no_env_read",
            Self::NoEnvWrite => "no_env_write",
        }
    }

    /// The capability that it rules out.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::NoFilesystemWrite => "filesystem_write",
            Self::NoFilesystemRead => "filesystem_read",
            Self::NoNetwork => "network",
            Self::NoSubprocess => "subprocess",
            Self::NoEnvRead => "env_read",
            Self::NoEnvWrite => "env_write",
        }
    }
}

/// One operation of an extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Operation {
    /// The name a call says.
    pub name: &'static str,
    /// What it does, in a sentence; empty where nothing is said.
    pub description: &'static str,
    /// The JSON Schema of its arguments.
    pub params: Schema,
    /// The JSON Schema of its outputs, where it is known, for the protocols that tell it.
    pub outputs: Option<Schema>,
}

impl Operation {
    /// An operation whose arguments are described by `params`.
    pub const fn new(name: &'static str, params: Schema) -> Self {
        Self { name, description: "", params, outputs: None }
    }

    /// With a description.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// With a schema of its outputs, if there is one.
    #[doc(hidden)]
    #[must_use]
    pub const fn optional_outputs(self, outputs: Option<Schema>) -> Self {
        Self { outputs, ..self }
    }

    /// With a schema of its outputs.
    #[must_use]
    pub const fn outputs(self, outputs: Schema) -> Self {
        Self { outputs: Some(outputs), ..self }
    }
}

/// A JSON Schema, as it stands in a manifest: JSON text in flash, ready to be sent.
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

    /// The schema of the arguments `T`, rendered by the compiler.
    pub const fn of<T: Params>() -> Self {
        Self(Text::Pieces(const { &Pieces::<Arguments<T>>::ALL }))
    }

    /// The schema of the outputs `T`, rendered by the compiler.
    pub const fn of_outputs<T: OutputValue>() -> Self {
        Self(Text::Pieces(const { &Pieces::<Outputs<T>>::ALL }))
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

/// The text in pieces, for whoever joins it.
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

trait HasNode {
    const NODE: &'static Node;
}

struct Arguments<T>(core::marker::PhantomData<T>);

impl<T: Params> HasNode for Arguments<T> {
    const NODE: &'static Node = T::SCHEMA;
}

struct Outputs<T>(core::marker::PhantomData<T>);

impl<T: OutputValue> HasNode for Outputs<T> {
    const NODE: &'static Node = T::SCHEMA;
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

/// `<valid semver>` of semver.org 2.0.0.
const fn is_semantic(text: &[u8]) -> bool {
    let mut rest = text;
    let mut number = 0;
    while number < 3 {
        let Some(after) = numeric(rest) else { return false };
        rest = match (number, after) {
            (0 | 1, [b'.', more @ ..]) => more,
            (2, more) => more,
            _ => return false,
        };
        number += 1;
    }
    if let [b'-', more @ ..] = rest {
        let Some(after) = identifiers(more, true) else { return false };
        rest = after;
    }
    if let [b'+', more @ ..] = rest {
        let Some(after) = identifiers(more, false) else { return false };
        rest = after;
    }
    rest.is_empty()
}

const fn identifiers(text: &[u8], strict: bool) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        let mut length = 0;
        let mut digits = true;
        let mut ahead = rest;
        while let [byte @ (b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-'), more @ ..] = ahead {
            digits = digits && byte.is_ascii_digit();
            length += 1;
            ahead = more;
        }
        let leading_zero = length > 1 && digits && matches!(rest, [b'0', ..]);
        if length == 0 || strict && leading_zero {
            return None;
        }
        match ahead {
            [b'.', more @ ..] => rest = more,
            _ => return Some(ahead),
        }
    }
}

/// A number without leading zeros; gives what follows.
const fn numeric(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    let mut length = 0;
    while let [b'0'..=b'9', more @ ..] = rest {
        rest = more;
        length += 1;
    }
    if length == 0 || length > 1 && matches!(text, [b'0', ..]) { None } else { Some(rest) }
}

/// Whether `text` is a JSON object or a boolean on one line: RFC 8259's grammar, for constants only (the checker's own
/// code cannot run there).
const fn is_schema(text: &[u8]) -> bool {
    match text {
        b"true" | b"false" => true,
        [b'{', ..] => match const_value(text, 0) {
            Some(rest) => rest.is_empty(),
            None => false,
        },
        _ => false,
    }
}

const fn const_space(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

const fn const_value(text: &[u8], depth: usize) -> Option<&[u8]> {
    if depth > 64 {
        return None;
    }
    match text {
        [b'"', rest @ ..] => const_string(rest),
        [b'{', rest @ ..] => const_container(rest, depth, true),
        [b'[', rest @ ..] => const_container(rest, depth, false),
        [b't', b'r', b'u', b'e', rest @ ..]
        | [b'f', b'a', b'l', b's', b'e', rest @ ..]
        | [b'n', b'u', b'l', b'l', rest @ ..] => Some(rest),
        _ => const_number(text),
    }
}

const fn const_container(text: &[u8], depth: usize, object: bool) -> Option<&[u8]> {
    let mut rest = const_space(text);
    match (rest, object) {
        ([b'}', after @ ..], true) | ([b']', after @ ..], false) => return Some(after),
        _ => {}
    }
    loop {
        if object {
            let [b'"', name @ ..] = rest else { return None };
            let Some(after) = const_string(name) else { return None };
            let [b':', after @ ..] = const_space(after) else { return None };
            rest = const_space(after);
        }
        let Some(after) = const_value(rest, depth + 1) else { return None };
        rest = const_space(after);
        match (rest, object) {
            ([b',', after @ ..], _) => rest = const_space(after),
            ([b'}', after @ ..], true) | ([b']', after @ ..], false) => return Some(after),
            _ => return None,
        }
    }
}

const fn const_string(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = match text {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => rest,
            [b'\\', b'u', a, b, c, d, rest @ ..]
                if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() && c.is_ascii_hexdigit() && d.is_ascii_hexdigit() =>
            {
                rest
            }
            [] | [0..0x20 | b'\\', ..] => return None,
            [_, rest @ ..] => rest,
        };
    }
}

const fn const_number(text: &[u8]) -> Option<&[u8]> {
    let unsigned = match text {
        [b'-', rest @ ..] => rest,
        _ => text,
    };
    let Some(mut rest) = numeric(unsigned) else { return None };
    if let [b'.', fraction @ ..] = rest {
        let Some(after) = const_digits(fraction) else { return None };
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let digits = match exponent {
            [b'+' | b'-', digits @ ..] => digits,
            _ => exponent,
        };
        let Some(after) = const_digits(digits) else { return None };
        rest = after;
    }
    Some(rest)
}

const fn const_digits(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    while let [b'0'..=b'9', more @ ..] = rest {
        rest = more;
    }
    if rest.len() == text.len() { None } else { Some(rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_semantic() {
        for good in ["0.0.0", "1.2.3", "10.20.30-rc.1+build.05", "1.0.0-0A.is.legal", "1.0.0--", "2.0.0+001"] {
            assert!(is_semantic(good.as_bytes()), "{good}");
        }
        for bad in
            ["", "1", "1.2", "1.2.3.4", "01.2.3", "1.2.03", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a..b"]
        {
            assert!(!is_semantic(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn schemas_are_json_on_one_line() {
        for good in ["true", "{}", r#"{"a":[1,-0.5e+3,"\u00e9\n",null,{}], "b" : false}"#] {
            assert!(is_schema(good.as_bytes()), "{good}");
        }
        for bad in ["", "1", "[]", "{", "{\n}", r#"{"a":01}"#, r#"{"a":1,}"#, r#"{"a" 1}"#, r#"{"\x":1}"#, "{} "] {
            assert!(!is_schema(bad.as_bytes()), "{bad}");
        }
    }
}
