//! What the command `rigline`, a binary of this package, uses in addition to the public API. It may change in any
//! version.

pub mod by_schema {
    pub use crate::by_schema::{
        ArgumentFault, Draft, Fit, Misfit, Place, Schema, Settled, brief, fit, nearest, nearest_or_longer,
        no_operation, same, settle,
    };
}

pub mod check {
    pub use crate::check::recorded::ensure_transcripts;
    pub use crate::check::suite::Settings;
}

pub mod client {
    pub use crate::client::{
        Answer, CallFailure, CallRequest, Cause, Client, ClientError, ClientOptions, Command, Described, Description,
        Form, OptionValues, Page, ProtocolOption,
    };
}

pub mod clock {
    pub use crate::clock::unix_millis;
}

pub mod files {
    pub use crate::files::{ensure_writable, open, open_with, read_text, write, write_executable};
}

pub mod process {
    pub use crate::process::{
        ensure_descriptors, is_rigline, raise_open_files, this, this_path, write_errors_instead_of_signals,
    };
}

pub mod protocol {
    pub use crate::protocol::Protocol;
}

pub mod protocols {
    pub use crate::protocols::{ALL, named};
}

pub mod signals {
    pub use crate::signals::Signals;
}

pub mod sync {
    pub use crate::sync::lock;
}

pub mod terminal {
    pub use crate::terminal::{cut, cut_and_counted, is_control, json, one_line, printable};
}

pub mod traffic {
    pub use crate::traffic::Decoder;
}
