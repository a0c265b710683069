//! Helpers of the tests that cross crates.
