//! Support for each test program of the workspace.
//!
//! A test program that starts programs, or reads the time or a text in the language of its user, has the line
//! `use rigline_test_support as _;`. It then begins in [the environment](environment) that the tests are written for, whoever
//! started it. A test that cannot run says so by [`skipped`].

pub mod environment;
mod skipped;

pub use skipped::{skipped, summary};
