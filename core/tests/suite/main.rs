//! The tests of the core: a module for each part.

use rigline_test_support as _;

mod common;

#[cfg(feature = "macros")]
mod abridged;
#[cfg(all(feature = "macros", feature = "alloc"))]
mod argument_rules;
#[cfg(feature = "macros")]
mod arguments;
#[cfg(feature = "async")]
mod async_driver;
mod client;
mod deadlines;
mod errors;
mod exchange;
mod failures;
mod field_cases;
mod json_rpc;
mod json_test_suite;
#[cfg(all(feature = "postcard", feature = "async"))]
mod link;
mod mcp;
#[cfg(feature = "async")]
mod new_protocol;
mod no_allocation;
mod properties;
mod protocols;
mod reply_room;
#[cfg(feature = "async")]
mod safe_state;
mod schema_nodes;
#[cfg(feature = "macros")]
mod schema_text;
mod session;
mod session_policy;
mod third_party_door;
#[cfg(feature = "async")]
mod waza;
mod whole_messages;
