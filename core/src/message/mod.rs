//! Messages as a protocol reads them: the [request](Received), and the [refusal](Refusal) of one that is wrong.

mod refusal;
mod request;

pub use refusal::{Code, Quoted, Refusal};
pub(crate) use request::string;
pub use request::{Envelope, Received};
