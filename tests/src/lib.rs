//! Helpers of the tests that cross crates.

pub mod emulator;
