//! The requests that a host writes to a gevals extension.

use super::ID_END;
use crate::duration::GoDuration;
use crate::json::raw::RawJson;
use crate::json::write::Writer;
use crate::phase::Phase;
use crate::protocol::gevals;

/// A request to a gevals extension.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Opens a session: gevals "Initialize".
    Initialize {
        /// The settings of the extension, a JSON object.
        config: Option<RawJson<'a>>,
    },
    /// Runs an operation: gevals "Execute".
    Execute {
        /// The operation's name, as the manifest has it.
        operation: &'a str,
        /// The arguments, a JSON object.
        args: RawJson<'a>,
        /// The context of the call.
        context: RequestContext<'a>,
    },
    /// Ends the session: gevals "Shutdown".
    Shutdown,
    /// Any other request: to pass one on unchanged, or to see how a peer refuses one.
    Other {
        /// The method's name.
        method: &'a str,
        /// The parameters of the request.
        params: RawJson<'a>,
    },
}

impl Request<'_> {
    /// The greatest length of the request's line with its newline, in bytes, for any id.
    pub fn measure(&self) -> usize {
        let mut out = Writer::new(&mut []);
        self.write(ID_END, &mut out);
        out.needed()
    }

    /// Writes the request as one line with its newline.
    pub fn write(&self, id: u32, out: &mut Writer<'_>) {
        out.raw(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.u32(id);
        out.raw(b",\"method\":");
        match self {
            Self::Initialize { config } => {
                out.raw(b"\"initialize\",\"params\":{\"protocolVersion\":");
                out.str(gevals::VERSION);
                if let Some(config) = config {
                    out.raw(b",\"config\":");
                    out.raw(config.as_str().as_bytes());
                }
                out.byte(b'}');
            }
            Self::Execute { operation, args, context } => {
                out.raw(b"\"execute\",\"params\":{\"operation\":");
                out.str(operation);
                out.raw(b",\"args\":");
                out.raw(args.as_str().as_bytes());
                out.raw(b",\"context\":");
                context.write(out);
                out.byte(b'}');
            }
            Self::Shutdown => out.raw(b"\"shutdown\",\"params\":{}"),
            Self::Other { method, params } => {
                out.str(method);
                out.raw(b",\"params\":");
                out.raw(params.as_str().as_bytes());
            }
        }
        out.raw(b"}\n");
    }
}

/// The context of a call (gevals "Context Object").
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestContext<'a> {
    /// The working directory of the task.
    pub workdir: &'a str,
    /// The phase of the task. [`Phase::Unknown`] is written as the empty string, as the real host
    /// does.
    pub phase: Phase,
    /// The environment variables of the task. They are left out if there are none.
    pub env: &'a [(&'a str, &'a str)],
    /// The time limit of the call, if there is one.
    pub timeout: Option<GoDuration>,
    /// The prompt and the answer of the agent under test, if there are any.
    pub agent: Option<(&'a str, &'a str)>,
}

impl RequestContext<'_> {
    fn write(&self, out: &mut Writer<'_>) {
        out.raw(b"{\"workdir\":");
        out.str(self.workdir);
        out.raw(b",\"phase\":");
        out.str(match self.phase {
            Phase::Unknown => "",
            Phase::Setup => "setup",
            Phase::Verify => "verify",
            Phase::Cleanup => "cleanup",
        });
        if !self.env.is_empty() {
            out.raw(b",\"env\":{");
            for (place, (name, value)) in self.env.iter().enumerate() {
                if place > 0 {
                    out.byte(b',');
                }
                out.name(name);
                out.str(value);
            }
            out.byte(b'}');
        }
        if let Some(timeout) = self.timeout {
            out.raw(b",\"timeout\":");
            out.message(&format_args!("{timeout}"));
        }
        if let Some((prompt, output)) = self.agent {
            out.raw(b",\"agent\":{\"prompt\":");
            out.str(prompt);
            out.raw(b",\"output\":");
            out.str(output);
            out.byte(b'}');
        }
        out.byte(b'}');
    }
}
