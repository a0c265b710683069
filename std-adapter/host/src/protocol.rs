//! The desktop's parts of a protocol: an entry of the registry ([`protocols`](crate::protocols)).
//!
//! The shared machinery (hosts, HTTP, checks, the relay, the command) knows no protocol by name. It gets one of these values.

use std::fmt;

use rigline_std::queue::Changes;

use crate::client::{ClientFactory, Part, ProtocolOption};
use crate::decode::Reading;

#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact about the protocol")]
/// The properties of a protocol that the host side uses. Each value is a constant in the folder of
/// its protocol.
#[non_exhaustive]
pub struct Protocol {
    /// The name of the protocol, as `--protocol` has it.
    pub name: &'static str,
    /// The name of the protocol, for people.
    pub title: &'static str,
    /// The implementation that extensions speak over lines. `None` if they do not speak this
    /// protocol.
    pub lines: Option<&'static rigline::protocol::Protocol>,
    /// Whether all of standard input is one request, whatever its number of lines.
    pub is_single_document: bool,
    /// The parts that calls transport besides the operation's name, its arguments and its result.
    pub carries: &'static [Part],
    /// Makes the request that begins a session with a configuration, from the JSON text of that
    /// configuration. The result is a line without its newline. `None` if the protocol has no such
    /// request.
    pub configuration: Option<fn(&str) -> String>,
    /// Returns the id of the session that a call names. `None` if calls of this protocol name none.
    pub session_id: Option<fn(&rigline::CallContext<'_>) -> Option<String>>,
    /// The messages by which clients are told that the operations are others. `None` if the protocol
    /// has no such message.
    pub changes: Option<&'static Changes>,
    /// Whether an extension describes its operations and their arguments.
    pub has_manifest: bool,
    /// The function that connects to an extension. `None` if there is no client of this protocol.
    pub client: Option<ClientFactory>,
    /// The functions that explain lines of this protocol to people.
    pub reading: Option<&'static Reading>,
    /// The HTTP routes of the protocol. `None` if it is not spoken over HTTP.
    pub http: Option<&'static rigline_std::http::Routes>,
    /// The conformance cases of the protocol.
    pub check: Option<&'static crate::check::Suite>,
    /// The command-line options that only this protocol has.
    pub options: &'static [ProtocolOption],
}

impl Protocol {
    /// A protocol with these names and no other properties.
    pub const fn new(name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            title,
            lines: None,
            is_single_document: false,
            carries: &[],
            configuration: None,
            session_id: None,
            changes: None,
            has_manifest: false,
            client: None,
            reading: None,
            http: None,
            check: None,
            options: &[],
        }
    }

    /// Returns whether calls of this protocol can transport `part`.
    pub fn carries(&self, part: Part) -> bool {
        self.carries.contains(&part)
    }
}

impl PartialEq for Protocol {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Protocol {}

impl fmt::Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Protocol").field(&self.name).finish()
    }
}
