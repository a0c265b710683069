//! The exchange of whole messages: a message comes in, and a reply or work for the extension comes
//! out.
//!
//! This module is the layer below the [engine](crate::engine). The engine finds lines in a stream
//! of bytes and works on one at a time. A server whose transport delivers whole messages (HTTP, a
//! WebSocket, a document, a test) uses this module, and may have any number of messages waiting.
//!
//! | value | how long it lives |
//! |---|---|
//! | [`Served`] | as long as the extension is served; make it where it is used, since a policy is not `Sync` |
//! | [`Session`] | as long as its connection, or as the session of its transport |
//! | [`Exchange`] | from the arrival of one message to its reply |
//!
//! A session and an exchange are `Send` and borrow nothing, so that an exchange can wait in a queue
//! beside its message. The caller owns the memory of messages and replies, and results are lengths
//! of what was written into it.
//!
//! 1. [`Session::receive`] reads a message that has arrived. The returned [`Next`] says whether the
//!    reply is written already or the extension has to run.
//! 2. When it is the message's turn, [`Exchange::run`] hands out the work, and
//!    [`Exchange::complete`] takes the result.
//! 3. [`Session::settle`] says what follows: the reply, or the next member of a batch.
//!
//! ```
//! use rigline::exchange::{Exchange, Next, Served, Session, Work};
//! use rigline::protocol::{self, GEVALS};
//! use rigline::{Manifest, Operation, Outcome, Schema};
//!
//! const MANIFEST: Manifest = Manifest::new("greeter", "1.0.0").operations(&[Operation::new("greet", Schema::OBJECT)]);
//! let to = Served::new(&MANIFEST, protocol::ALL, (4096, 4096)).expect("a list of protocols that is not empty");
//! let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
//! let mut out = [0; 4096];
//!
//! let mut message = *br#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"greet","context":{}}}"#;
//! assert_eq!(session.receive(&to, &message, &mut out, &mut exchange), Next::Run { owes_reply: true });
//! let run = exchange.run(&to, &mut message, &mut out).expect("something to run");
//! assert!(matches!(run.work, Work::Call(call) if call.operation() == "greet"));
//! exchange.complete(&to, &message, &mut out, &Ok(Outcome::message("hello")));
//! let Next::Reply(length) = session.settle(&to, &message, &mut out, &mut exchange) else { unreachable!() };
//! assert_eq!(out[..length], *br#"{"jsonrpc":"2.0","id":7,"result":{"success":true,"message":"hello"}}"#);
//! ```

mod ahead;
mod answer;
mod batch;
mod detect;
mod message;
mod served;
mod session;
mod state;

pub use ahead::{Ahead, Late};
pub(crate) use ahead::{Inspected, forget};
#[cfg(all(feature = "postcard", feature = "async"))]
pub(crate) use detect::owes_reply;
pub use message::{Running, Work};
pub use served::{LEAST_REPLY, Served};
pub use session::{Next, Session, SessionPolicy};
pub use state::Exchange;
pub(crate) use state::{Done, Stage, Turn};
