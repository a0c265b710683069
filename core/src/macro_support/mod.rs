//! Support for the macros' output. It is not part of the public API, and changes without notice.
#![allow(missing_docs)]

mod decode;
mod number;
mod text;

pub use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
pub use serde::ser::{Serialize, SerializeStruct, Serializer};

use crate::params::{Ending, SchemaNode};
use crate::{Call, Config, Failure, Schema};

pub use decode::{Argument, Names, Otherwise, Rule, Slot, incomplete, members, missing_field};
pub use number::{Limit, Number, NumberKind};
pub use text::{Chosen, FromBool, FromText, Length, List, Takes, is_none_of, places};

/// A type that arguments of an operation and a configuration are decoded into.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be decoded from a call's arguments or a configuration",
    label = "has no decoder",
    note = "a struct or an enum of yours gets one, and its schema, by `#[derive(rigline::Params)]`"
)]
pub trait Arguments<'de>: Deserialize<'de> {}

#[diagnostic::do_not_recommend]
impl<'de, T: Deserialize<'de>> Arguments<'de> for T {}

/// Decodes the arguments of a call by [`Call::args`].
#[inline]
pub fn arguments<'a, T: Arguments<'a>>(call: &mut Call<'a>) -> Result<T, Failure> {
    call.args()
}

/// Refuses arguments in a call of an operation that has none.
#[inline(never)]
pub fn no_arguments(call: &mut Call<'_>) -> Result<(), Failure> {
    call.args::<decode::NoArguments>().map(|_| ())
}

/// Decodes the configuration of a session by [`Config::get`].
#[inline]
pub fn configuration<'a, T: Arguments<'a>>(config: &mut Config<'a>) -> Result<T, Failure> {
    config.get()
}

/// A `Result`, under any name or alias. It gives the macros the two types of a method's return
/// type.
#[diagnostic::on_unimplemented(
    message = "an operation cannot return `{Self}`",
    label = "not a `Result`",
    note = "an operation returns `Result<Outcome, Failure>`, or a `Result` of a struct with `#[derive(rigline::Outputs)]`"
)]
pub trait Returned {
    type Ok;
    type Err;
    fn result(self) -> Result<Self::Ok, Self::Err>;
}

impl<T, E> Returned for Result<T, E> {
    type Ok = T;
    type Err = E;

    fn result(self) -> Self {
        self
    }
}

/// Checks that the schema of arguments is that of an object.
///
/// # Panics
/// If it is not. This is called in a constant, so that it is an error of the compiler.
pub const fn arguments_are_an_object(schema: &SchemaNode) {
    let object = match schema {
        SchemaNode::Object { .. } | SchemaNode::Map { .. } | SchemaNode::Any | SchemaNode::Text(_) => true,
        SchemaNode::Nullable(inner) => {
            matches!(inner, SchemaNode::Object { .. } | SchemaNode::Map { .. } | SchemaNode::Any | SchemaNode::Text(_))
        }
        _ => false,
    };
    assert!(object, "an operation's arguments are an object: a struct with #[derive(Params)]");
}

/// The schema of a value that is not null.
pub const fn present(schema: &'static SchemaNode) -> &'static SchemaNode {
    match schema {
        SchemaNode::Nullable(inner) => inner,
        _ => schema,
    }
}

/// The schema of the outputs of a method that returns `T`, for generic types. `__schema!` is for
/// the others.
pub const fn outputs_of<T: Ending>() -> Option<Schema> {
    T::RENDERED
}

/// The text of a schema that does not depend on generic types, of exactly its length.
#[doc(hidden)]
#[macro_export]
macro_rules! __schema {
    ($node:expr) => {{
        const NODE: &$crate::params::SchemaNode = $node;
        const TEXT: &[::core::primitive::u8; NODE.len()] = &NODE.render(0);
        $crate::Schema::rendered(TEXT)
    }};
}

/// Renders a schema as `__schema!` does, if there is one.
#[doc(hidden)]
#[macro_export]
macro_rules! __optional_schema {
    ($node:expr) => {{
        const NODE: ::core::option::Option<&$crate::params::SchemaNode> = $node;
        const LENGTH: ::core::primitive::usize = match NODE {
            ::core::option::Option::Some(node) => node.len(),
            ::core::option::Option::None => 0,
        };
        const TEXT: &[::core::primitive::u8; LENGTH] = &match NODE {
            ::core::option::Option::Some(node) => node.render(0),
            ::core::option::Option::None => [0; LENGTH],
        };
        match NODE {
            ::core::option::Option::Some(_) => ::core::option::Option::Some($crate::Schema::rendered(TEXT)),
            ::core::option::Option::None => ::core::option::Option::None,
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    const MAP: SchemaNode = SchemaNode::Map { max_key: 1, values: &SchemaNode::Bool, max_members: 1 };
    const LIST: SchemaNode = SchemaNode::Array { items: &SchemaNode::Bool, min_items: 0, max_items: 1 };

    #[test]
    fn arguments_are_what_may_be_an_object() {
        let is_accepted = |node: &SchemaNode| catch_unwind(|| arguments_are_an_object(node)).is_ok();
        for node in [SchemaNode::OBJECT, &MAP, &SchemaNode::Any, &SchemaNode::text("true")] {
            assert!(is_accepted(node), "{node:?}");
        }
        for node in [
            SchemaNode::Nullable(SchemaNode::OBJECT),
            SchemaNode::Nullable(&MAP),
            SchemaNode::Nullable(&SchemaNode::Any),
            SchemaNode::Nullable(&SchemaNode::Text("{}")),
        ] {
            assert!(is_accepted(&node), "{node:?}");
        }
        for node in [SchemaNode::Bool, LIST, SchemaNode::Nullable(&SchemaNode::Bool), SchemaNode::Nullable(&LIST)] {
            assert!(!is_accepted(&node), "{node:?}");
        }
        for node in [&MAP, &SchemaNode::Nullable(&MAP)] {
            assert!(matches!(present(node), SchemaNode::Map { .. }), "{node:?}");
        }
    }

    #[cfg(feature = "alloc")]
    #[test]
    fn the_schema_of_outputs_is_known_for_a_set_of_them() {
        type Map = alloc::collections::BTreeMap<alloc::string::String, bool>;
        let text = std::format!("{}", outputs_of::<Map>().unwrap());
        assert_eq!(text, r#"{"type":"object","additionalProperties":{"type":"boolean"}}"#);
        assert!(outputs_of::<crate::Outcome>().is_none() && outputs_of::<()>().is_none());
    }
}
