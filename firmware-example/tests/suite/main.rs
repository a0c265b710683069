//! The tests of the rig: a module for each part.

use rigline_test_support as _;

mod alike;
mod common;
mod console;
mod operations;
#[cfg(feature = "values")]
mod second_wire;
mod session;
#[cfg(feature = "values")]
mod values;
mod wires;
