//! The tests that cross the packages: a module for each part.

use rigline_test_support as _;

#[cfg(target_os = "linux")]
mod agents;
#[cfg(target_os = "linux")]
mod attack;
#[cfg(unix)]
mod boards;
mod console;
mod emulator;
#[cfg(target_os = "linux")]
mod environment;
mod evals;
#[cfg(unix)]
mod host;
#[cfg(target_os = "linux")]
mod hostile;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod lab;
mod manifest;
mod model;
#[cfg(unix)]
mod module;
mod rig;
mod schemas;
mod size;
mod soak;
mod values;
mod vectors;
