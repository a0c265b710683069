//! The tests of the command: a module for each part.

use rigline_test_support as _;

#[cfg(unix)]
mod agents;
#[cfg(unix)]
mod asking;
#[cfg(unix)]
mod attachments;
#[cfg(unix)]
mod command;
#[cfg(unix)]
mod evals;
#[cfg(unix)]
mod evidence;
#[cfg(unix)]
#[path = "../../../tests/common/executable.rs"]
mod executable;
#[cfg(unix)]
mod five_doors;
#[cfg(target_os = "linux")]
mod hosts;
#[cfg(target_os = "linux")]
mod lab;
#[cfg(target_os = "linux")]
mod lab_faults;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(unix)]
mod mcp;
#[cfg(unix)]
mod namel3ss;
#[cfg(target_os = "linux")]
mod nats;
mod new;
#[cfg(unix)]
mod outcomes;
#[cfg(unix)]
mod output;
#[cfg(unix)]
mod peers;
#[cfg(unix)]
mod private;
#[cfg(unix)]
mod proxy;
mod rig;
#[cfg(unix)]
mod servers;
#[cfg(unix)]
mod values;
#[cfg(unix)]
mod verdicts;
#[cfg(unix)]
mod web;
