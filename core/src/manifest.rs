//! The manifest: the name, version and operations of an extension. It is known at compile time and
//! stored in flash.

use core::fmt;

use crate::json::view::has_escapes;
use crate::schema::{Schema, numeric};

/// The manifest of an extension: its name, version and operations.
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
    /// The identifier of the extension.
    pub name: &'static str,
    /// The semantic version of the extension.
    pub version: &'static str,
    /// The description of the extension, in a sentence. It may be empty.
    pub description: &'static str,
    /// The commands that must be in `PATH` before an operation runs (gevals "Requirement Object").
    /// They are checked on desktops only.
    pub requires: &'static [&'static str],
    /// The operations of the extension.
    pub operations: &'static [Operation],
    /// The kind of Amplifier module that the extension is.
    pub kind: ModuleKind,
    /// The guarantees that a namel3ss host may rely on.
    pub guarantees: &'static [Guarantee],
    /// The names of the secrets that the extension uses (namel3ss `secrets_allowed`). It runs only
    /// if all of them are allowed.
    pub secrets: &'static [&'static str],
    /// Whether [`safe_state`](crate::Extension::safe_state) switches anything off. The gevals
    /// manifest then has `"safeState":true`.
    pub has_safe_state: bool,
    /// Whether the operations run on another server, which is asked by a protocol of its own.
    /// Configuration and context of calls may not reach that server.
    #[doc(hidden)]
    pub is_elsewhere: bool,
    /// Whether the operations may become others while they are served, of which clients are told
    /// whose protocol has a word for that.
    #[doc(hidden)]
    pub can_change: bool,
    /// The members of the gevals manifest except `limits`, as JSON text without braces, in place of
    /// those that are made from the other fields. It is used for an extension of another server,
    /// whose manifest is passed on; otherwise it is empty.
    #[doc(hidden)]
    pub own_members: &'static str,
}

impl Manifest {
    /// The position of the operation of this name.
    pub(crate) fn position(&self, name: crate::json::Text<'_>) -> Option<usize> {
        let raw = name.raw_bytes();
        // Escapes are looked for once, not for each operation.
        if has_escapes(raw) {
            return self.operations.iter().position(|known| name == *known.name);
        }
        let exact = self.operations.iter().position(|known| known.name.as_bytes() == raw);
        if cfg!(feature = "std") { exact.or_else(|| self.spelled(raw)) } else { exact }
    }

    /// The position of the only operation of this name with `-` and `_` taken for the same: people
    /// and models mistake one for the other.
    fn spelled(&self, raw: &[u8]) -> Option<usize> {
        let is_dash = |byte: u8| matches!(byte, b'-' | b'_');
        let is_alike = |(one, other): (&u8, u8)| *one == other || is_dash(*one) && is_dash(other);
        let mut alike = self
            .operations
            .iter()
            .enumerate()
            .filter(|(_, known)| known.name.len() == raw.len() && raw.iter().zip(known.name.bytes()).all(is_alike));
        match (alike.next(), alike.next()) {
            (Some((place, _)), None) => Some(place),
            _ => None,
        }
    }

    /// A manifest without operations.
    ///
    /// # Panics
    /// If `version` is not a semantic version (semver.org 2.0.0). In a constant, where manifests
    /// belong, that is an error of the compiler.
    #[allow(clippy::panic, reason = "it is for constants, where it is a compile error")]
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        match Self::try_new(name, version) {
            Ok(manifest) => manifest,
            Err(_) => panic!("the manifest's version is not a semantic version such as 1.2.0"),
        }
    }

    /// Makes a manifest as [`new`](Self::new) does, for a version that is known only at run time.
    ///
    /// # Errors
    /// `version` is not a semantic version.
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
            kind: ModuleKind::Tool,
            guarantees: &[],
            secrets: &[],
            has_safe_state: false,
            is_elsewhere: false,
            can_change: false,
            own_members: "",
        })
    }

    /// Sets the description.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Sets the commands that must be in `PATH`.
    #[must_use]
    pub const fn requires(self, requires: &'static [&'static str]) -> Self {
        Self { requires, ..self }
    }

    /// Sets the kind of Amplifier module. The default is a tool.
    #[must_use]
    pub const fn kind(self, kind: ModuleKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the guarantees that a namel3ss host may rely on.
    #[must_use]
    pub const fn guarantees(self, guarantees: &'static [Guarantee]) -> Self {
        Self { guarantees, ..self }
    }

    /// Sets the names of the secrets that the extension uses.
    #[must_use]
    pub const fn secrets(self, secrets: &'static [&'static str]) -> Self {
        Self { secrets, ..self }
    }

    /// Sets whether [`safe_state`](crate::Extension::safe_state) switches something off.
    /// `#[rigline::extension]` sets it if a method is marked with `#[safe_state]`.
    #[must_use]
    pub const fn safe_state(self, has_safe_state: bool) -> Self {
        Self { has_safe_state, ..self }
    }

    /// Sets the operations.
    #[must_use]
    pub const fn operations(self, operations: &'static [Operation]) -> Self {
        Self { operations, own_members: "", ..self }
    }

    /// Checks that no two operations have the same [identifier](Operation::identifier), and returns
    /// the manifest unchanged. `#[rigline::extension]` does this. In a manifest that is written by
    /// hand, call it last.
    ///
    /// # Panics
    /// If two operations have the same identifier. In a constant, where manifests belong, that is
    /// an error of the compiler.
    #[must_use]
    pub const fn with_distinct_identifiers(self) -> Self {
        let mut rest = self.operations;
        while let [one, others @ ..] = rest {
            let mut compared = others;
            while let [other, more @ ..] = compared {
                assert!(
                    !is_same_identifier(one.name.as_bytes(), other.name.as_bytes()),
                    "two operations have one name for clients that accept only letters, digits and `_`, and 64 characters"
                );
                compared = more;
            }
            rest = others;
        }
        self
    }
}

/// Whether two names of operations make one identifier.
const fn is_same_identifier(mut one: &[u8], mut other: &[u8]) -> bool {
    let mut left = MAX_IDENTIFIER;
    loop {
        (one, other) = match (one, other) {
            _ if left == 0 => return true,
            ([], []) => return true,
            ([a, one @ ..], [b, other @ ..])
                if *a == *b || !a.is_ascii_alphanumeric() && !b.is_ascii_alphanumeric() =>
            {
                (one, other)
            }
            _ => return false,
        };
        left -= 1;
    }
}

/// The error for a version that is not semantic (semver.org 2.0.0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSemantic;

impl fmt::Display for NotSemantic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a semantic version such as 1.2.0")
    }
}

impl core::error::Error for NotSemantic {}

/// The kinds of Amplifier modules (Amplifier's protocol text §1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum ModuleKind {
    /// A module that gives access to a model or a service.
    Provider,
    /// A module that does something when it is called.
    #[default]
    Tool,
    /// A module that works on its own.
    Agent,
    /// A module that receives events by [`on_event`](crate::Extension::on_event).
    Hook,
    /// A module that directs other modules.
    Orchestrator,
    /// A module that keeps context.
    Context,
}

impl ModuleKind {
    /// All kinds, in the order of Amplifier's text.
    pub const ALL: [Self; 6] = [Self::Provider, Self::Tool, Self::Agent, Self::Hook, Self::Orchestrator, Self::Context];

    /// The name of the kind in Amplifier's protocol.
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

    /// The kind of this name in Amplifier's protocol; none if there is no such kind.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A promise of an extension not to do something: namel3ss `capability_context`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Guarantee {
    /// The extension writes no files.
    NoFilesystemWrite,
    /// The extension reads no files.
    NoFilesystemRead,
    /// The extension does not use the network.
    NoNetwork,
    /// The extension starts no programs.
    NoSubprocess,
    /// The extension does not read environment variables.
    NoEnvRead,
    /// The extension does not change environment variables.
    NoEnvWrite,
}

impl Guarantee {
    /// All guarantees, in the order in which namel3ss lists them.
    pub const ALL: [Self; 6] = [
        Self::NoFilesystemWrite,
        Self::NoFilesystemRead,
        Self::NoNetwork,
        Self::NoSubprocess,
        Self::NoEnvRead,
        Self::NoEnvWrite,
    ];

    /// The name of the guarantee in namel3ss.
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

    /// The capability that the guarantee excludes, by its name in namel3ss.
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
    /// The name of the operation, as calls use it.
    pub name: &'static str,
    /// The description of the operation, in a sentence. It may be empty.
    pub description: &'static str,
    /// The JSON Schema of the arguments.
    pub params: Schema,
    /// The JSON Schema of the outputs, if it is known. Amplifier and MCP send it to their hosts.
    pub outputs: Option<Schema>,
    /// The effects of the operation, if they are declared.
    pub effects: Option<Effects>,
    /// Members of the operation's MCP tool, as JSON text without braces, in place of the title that
    /// is made from the name and the annotations that are made from the effects. It is used for a
    /// tool of another server, which is passed on; otherwise it is empty.
    #[doc(hidden)]
    pub tool_members: &'static str,
}

/// The effects of an operation, which MCP sends as a tool's annotations. Clients use them to decide
/// which operations may run without asking the user. If an operation declares none, clients assume
/// the worst.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct Effects {
    /// The operation changes nothing.
    pub read_only: bool,
    /// The operation may destroy or overwrite something.
    pub destructive: bool,
    /// A second run with the same arguments changes nothing more.
    pub idempotent: bool,
}

impl Effects {
    /// The effects of an operation that changes nothing.
    pub const READ_ONLY: Self = Self { read_only: true, destructive: false, idempotent: true };

    /// The effects of an operation that changes something. `destructive` says whether it may
    /// destroy or overwrite something. `idempotent` says whether a second run with the same
    /// arguments changes nothing more.
    pub const fn changes(destructive: bool, idempotent: bool) -> Self {
        Self { read_only: false, destructive, idempotent }
    }
}

/// The greatest number of characters of an operation's [identifier](Operation::identifier).
pub const MAX_IDENTIFIER: usize = 64;

impl Operation {
    /// The name of the operation for clients that accept only letters, digits and `_`. All other
    /// bytes are replaced by `_`, and a longer name is cut to [`MAX_IDENTIFIER`] bytes.
    pub fn identifier(&self) -> impl Iterator<Item = u8> + use<> {
        Self::identifier_of(self.name)
    }

    /// The [identifier](Self::identifier) of an operation with this name.
    #[doc(hidden)]
    pub fn identifier_of(name: &str) -> impl Iterator<Item = u8> + use<'_> {
        name.bytes().take(MAX_IDENTIFIER).map(|byte| if byte.is_ascii_alphanumeric() { byte } else { b'_' })
    }

    /// Whether this is its [identifier](Self::identifier).
    pub(crate) fn is_identified_by(&self, identifier: &[u8]) -> bool {
        let name = self.name.as_bytes();
        let is_alike = |(byte, of): (&u8, &u8)| *of == if byte.is_ascii_alphanumeric() { *byte } else { b'_' };
        identifier.len() == name.len().min(MAX_IDENTIFIER) && name.iter().zip(identifier).all(is_alike)
    }

    /// An operation with `params` as the schema of its arguments.
    pub const fn new(name: &'static str, params: Schema) -> Self {
        Self { name, description: "", params, outputs: None, effects: None, tool_members: "" }
    }

    /// Sets the description.
    #[must_use]
    pub const fn description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// Sets the schema of the outputs, if there is one.
    #[doc(hidden)]
    #[must_use]
    pub const fn optional_outputs(self, outputs: Option<Schema>) -> Self {
        Self { outputs, ..self }
    }

    /// Sets the members of another server's tool, see [`tool_members`](Self::tool_members).
    #[doc(hidden)]
    #[must_use]
    pub const fn tool_members(self, tool_members: &'static str) -> Self {
        Self { tool_members, ..self }
    }

    /// Whether the operation is declared as one that changes nothing.
    pub const fn only_reads(&self) -> bool {
        matches!(self.effects, Some(Effects { read_only: true, .. }))
    }

    /// Declares the effects of the operation.
    #[must_use]
    pub const fn effects(self, effects: Effects) -> Self {
        Self { effects: Some(effects), ..self }
    }

    /// Sets the schema of the outputs.
    #[must_use]
    pub const fn outputs(self, outputs: Schema) -> Self {
        Self { outputs: Some(outputs), ..self }
    }
}

/// `<valid semver>` of semver.org 2.0.0.
const fn is_semantic(text: &[u8]) -> bool {
    let mut rest = text;
    let mut number = 0;
    while number < 3 {
        let Some(after) = numeric(rest) else { return false };
        rest = match (number, after) {
            (0 | 1, [b'.', more @ ..]) | (2, more) => more,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "std")]
    #[test]
    fn operations_are_found_in_either_spelling_on_a_desktop() {
        const MANIFEST: Manifest = Manifest::new("m", "1.0.0").operations(&[
            Operation::new("set-target", Schema::OBJECT),
            Operation::new("a-b_c", Schema::OBJECT),
            Operation::new("a_b-c", Schema::OBJECT),
        ]);
        let found = |raw: &'static str| MANIFEST.position(crate::json::Text::of_checked(raw.as_bytes()));
        assert_eq!([found("set-target"), found("set_target")], [Some(0); 2]);
        // The exact one first, and none where two may be meant.
        assert_eq!(
            [found("a-b_c"), found("a_b-c"), found("a_b_c"), found("settarget")],
            [Some(1), Some(2), None, None]
        );
    }

    #[test]
    fn operations_are_found_by_their_text() {
        const MANIFEST: Manifest = Manifest::new("paths", "1.0.0").operations(&[
            Operation::new("apply", Schema::OBJECT),
            Operation::new(r"a\b", Schema::OBJECT),
            Operation::new("é", Schema::OBJECT),
        ]);
        let found = |raw: &'static str| MANIFEST.position(crate::json::Text::of_checked(raw.as_bytes()));
        assert_eq!([found("apply"), found(r"appl\u0079"), found(r"\u0061pply")], [Some(0); 3]);
        assert_eq!([found(r"a\\b"), found(r"a\u005cb")], [Some(1); 2]);
        assert_eq!([found("é"), found(r"\u00e9")], [Some(2); 2]);
        // Between quotes, this is another text than the name of the same bytes: a backspace.
        assert_eq!([found(r"a\b"), found("appl"), found("applyy"), found("")], [None; 4]);
    }

    #[test]
    fn identifiers_have_letters_digits_and_underscores() {
        let of =
            |name| Operation::new(name, Schema::OBJECT).identifier().map(char::from).collect::<std::string::String>();
        assert_eq!(of("self-test"), "self_test");
        assert_eq!(of("a.b c/é"), "a_b_c___");
        let long: &'static str = "x".repeat(70).leak();
        assert_eq!(of(long).len(), 64);
        for (name, identifier, expected) in [
            ("self-test", "self_test", true),
            ("self_test", "self_test", true),
            ("self-test", "self-test", false),
            ("self-test", "self_tes", false),
            ("a", "b", false),
            ("é", "__", true),
            (long, &long[..64], true),
            (long, &long[..63], false),
            (long, long, false),
        ] {
            let operation = Operation::new(name, Schema::OBJECT);
            assert_eq!(operation.is_identified_by(identifier.as_bytes()), expected, "{name} {identifier}");
        }
        for (one, other, same) in [
            ("self-test", "self_test", true),
            ("self-test", "selftest", false),
            ("a-b", "axb", false),
            ("axb", "a-b", false),
            ("a.b", "a b", true),
            ("a", "ab", false),
            ("ab", "a", false),
            ("a", "a", true),
            ("", "", true),
        ] {
            assert_eq!(is_same_identifier(one.as_bytes(), other.as_bytes()), same, "{one} {other}");
        }
        assert!(is_same_identifier("x".repeat(65).as_bytes(), "x".repeat(66).as_bytes()));
        assert!(!is_same_identifier("x".repeat(64).as_bytes(), "x".repeat(63).as_bytes()));
    }

    #[test]
    fn a_manifest_has_what_was_set_and_nothing_else() {
        const RUN: &[Operation] = &[Operation::new("run", Schema::OBJECT)];
        let empty = Manifest::new("m", "1.0.0");
        let of = |manifest: Manifest| {
            let Manifest { name, version, description, requires, operations, kind, guarantees, secrets, .. } = manifest;
            let names: std::vec::Vec<_> = operations.iter().map(|operation| operation.name).collect();
            std::format!(
                "{name} {version} {description:?} {requires:?} {names:?} {kind:?} {guarantees:?} {secrets:?} {} {:?}",
                manifest.has_safe_state,
                manifest.own_members
            )
        };
        let whole = empty
            .description("d")
            .requires(&["git"])
            .kind(ModuleKind::Agent)
            .guarantees(&[Guarantee::NoNetwork])
            .secrets(&["KEY"])
            .safe_state(true)
            .operations(RUN)
            .with_distinct_identifiers();
        assert_eq!(of(whole), r#"m 1.0.0 "d" ["git"] ["run"] Agent [NoNetwork] ["KEY"] true """#);
        for (manifest, text) in [
            (empty, r#"m 1.0.0 "" [] [] Tool [] [] false """#),
            (empty.description("d"), r#"m 1.0.0 "d" [] [] Tool [] [] false """#),
            (empty.requires(&["git"]), r#"m 1.0.0 "" ["git"] [] Tool [] [] false """#),
            (empty.kind(ModuleKind::Hook), r#"m 1.0.0 "" [] [] Hook [] [] false """#),
            (empty.guarantees(&[Guarantee::NoEnvRead]), r#"m 1.0.0 "" [] [] Tool [NoEnvRead] [] false """#),
            (empty.secrets(&["KEY"]), r#"m 1.0.0 "" [] [] Tool [] ["KEY"] false """#),
            (empty.safe_state(true), r#"m 1.0.0 "" [] [] Tool [] [] true """#),
            (empty.safe_state(true).safe_state(false), r#"m 1.0.0 "" [] [] Tool [] [] false """#),
            // The members of another server's manifest are those of its operations.
            (Manifest { own_members: "x", ..empty }.operations(RUN), r#"m 1.0.0 "" [] ["run"] Tool [] [] false """#),
        ] {
            assert_eq!(of(manifest), text);
        }
        assert_eq!(Manifest::try_new("m", "1.0").unwrap_err(), NotSemantic);
        assert_eq!(std::format!("{NotSemantic}"), "not a semantic version such as 1.2.0");
    }

    #[test]
    fn an_operation_has_what_was_set_and_nothing_else() {
        let empty = Operation::new("run", Schema::OBJECT);
        let of = |operation: Operation| {
            let Operation { name, description, params, outputs, effects, tool_members } = operation;
            let outputs = outputs.map(|schema| std::format!("{schema}"));
            std::format!("{name} {description:?} {params} {outputs:?} {effects:?} {tool_members:?}")
        };
        let params = r#"{"type":"object","properties":{}}"#;
        for (operation, text) in [
            (empty, r#""" {} None None """#),
            (empty.description("d"), r#""d" {} None None """#),
            (empty.outputs(Schema::ANY), r#""" {} Some("{}") None """#),
            (empty.optional_outputs(Some(Schema::ANY)), r#""" {} Some("{}") None """#),
            (empty.outputs(Schema::ANY).optional_outputs(None), r#""" {} None None """#),
            (
                empty.effects(Effects::changes(true, false)),
                r#""" {} None Some(Effects { read_only: false, destructive: true, idempotent: false }) """#,
            ),
            (
                empty.effects(Effects::changes(false, true)),
                r#""" {} None Some(Effects { read_only: false, destructive: false, idempotent: true }) """#,
            ),
            (empty.tool_members("\"title\":\"t\""), r#""" {} None None "\"title\":\"t\"""#),
        ] {
            let text = text.replacen("{}", params, 1);
            assert_eq!(of(operation), std::format!("run {text}"));
        }
    }

    #[test]
    fn kinds_and_guarantees_have_the_names_of_their_protocols() {
        let kinds = ["provider", "tool", "agent", "hook", "orchestrator", "context"];
        assert_eq!(ModuleKind::ALL.map(ModuleKind::name), kinds);
        for kind in ModuleKind::ALL {
            assert_eq!(ModuleKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!([ModuleKind::from_name(""), ModuleKind::from_name("Tool")], [None; 2]);
        assert_eq!(ModuleKind::default(), ModuleKind::Tool);
        let capabilities = ["filesystem_write", "filesystem_read", "network", "subprocess", "env_read", "env_write"];
        assert_eq!(Guarantee::ALL.map(Guarantee::capability), capabilities);
        for guarantee in Guarantee::ALL {
            assert_eq!(guarantee.name().strip_prefix("no_"), Some(guarantee.capability()));
        }
    }

    #[test]
    fn versions_are_semantic() {
        for good in [
            "0.0.0",
            "1.2.3",
            "10.20.30-rc.1+build.05",
            "1.0.0-0A.is.legal",
            "1.0.0--",
            "2.0.0+001",
            "1.0.0-0",
            "1.0.0-10.0",
        ] {
            assert!(is_semantic(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            "1",
            "1.2",
            "1.2.",
            ".1.2",
            "1..2",
            "1.2.x",
            "1.2.3 ",
            "1.2.3+a_b",
            "1.2.3-00",
            "1.2.3.4",
            "01.2.3",
            "1.2.03",
            "v1.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3+",
            "1.2.3-a..b",
        ] {
            assert!(!is_semantic(bad.as_bytes()), "{bad}");
        }
    }
}
