//! The tests of serving on a desktop: a module for each part.

use rigline_test_support as _;

#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod queue;
#[cfg(feature = "http")]
mod safety;
#[cfg(target_os = "linux")]
mod stdio;
