//! The tests of the macros: a module for each part.

mod compile;
mod extension;
