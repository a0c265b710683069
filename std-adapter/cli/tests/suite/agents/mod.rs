//! The means of an agent's owner: configuration of clients, tokens and headers, a choice of operations, policies, records.

mod checks;
mod choice;
mod credentials;
mod http;
mod idle;
mod library;
mod names;
mod policy;
mod presence;
mod shared;
pub(crate) mod support;
