//! The desktop's parts of a protocol: an entry of the registry ([`protocols`](crate::protocols)).
//!
//! The shared machinery (hosts, HTTP, checks, the relay, the command) knows no protocol by name. It gets one of these values.

use std::fmt;

use crate::client::{ClientFactory, Part, ProtocolOption};
use crate::traffic::Reading;

#[allow(clippy::struct_excessive_bools, reason = "each is a separate fact about the protocol")]
/// A protocol. The values are constants in the protocols' own folders.
#[non_exhaustive]
pub struct Protocol {
    /// The name, as `--protocol` has it.
    pub name: &'static str,
    /// The name as people write it.
    pub title: &'static str,
    /// How extensions speak it; none where only other programs do.
    pub lines: Option<&'static rigline::protocol::Protocol>,
    /// Whether all of standard input is one request, on however many lines.
    pub is_single_document: bool,
    /// The parts that it carries beside an operation's name, its arguments and its result.
    pub carries: &'static [Part],
    /// Makes the request that begins a session with settings of the extension's own, from their JSON text. The request is a line without its line
    /// end. Protocols that do not have such a request have no function.
    pub configuration: Option<fn(&str) -> String>,
    /// The session that a call belongs to, in protocols in which calls name one.
    pub session_id: Option<fn(&rigline::CallContext<'_>) -> Option<String>>,
    /// Whether an extension says which operations it has, and with which arguments.
    pub has_manifest: bool,
    /// Connects to an extension.
    pub client: Option<ClientFactory>,
    /// How its lines are described to people.
    pub reading: Option<&'static Reading>,
    /// How the protocol is spoken over HTTP.
    pub http: Option<&'static rigline_std::http::Routes>,
    /// The conformance cases.
    pub check: Option<&'static crate::check::Suite>,
    /// Options that only this protocol has.
    pub options: &'static [ProtocolOption],
}

impl Protocol {
    /// A protocol of that name that has nothing yet.
    pub const fn new(name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            title,
            lines: None,
            is_single_document: false,
            carries: &[],
            configuration: None,
            session_id: None,
            has_manifest: false,
            client: None,
            reading: None,
            http: None,
            check: None,
            options: &[],
        }
    }

    /// Tells whether the protocol carries a part.
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
