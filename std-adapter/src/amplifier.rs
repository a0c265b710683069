//! Amplifier: descriptors, events, errors and plans as PROTOCOLS.md has them, and the host's side of its protocol.

mod descriptor;
mod error;
mod events;
mod host;
mod lines;
mod plan;

pub use crate::http_client::HttpError;
pub use descriptor::{Descriptor, DescriptorError, ModuleKind, SCHEMA, Transport};
pub use error::{ModuleError, RESERVED_CODES};
pub use events::{Entry, EventLog, EventRecord, Fault, LogReader, check_taxonomy};
pub use host::{CallError, Description, HEALTH_TIMEOUT, Host, Invocation, Place};
pub use lines::Lines;
pub use plan::Plan;
