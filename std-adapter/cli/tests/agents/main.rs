//! The means of an agent's owner: configuration of clients, tokens and headers, a choice of operations, policies, records.
#![cfg(unix)]

use rigline_test_support as _;

mod checks;
mod choice;
mod credentials;
mod policy;
mod presence;
mod support;
