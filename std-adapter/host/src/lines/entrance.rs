//! The entrance of a server: clients that may not ask, or find no place, are refused here.

use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::{NOT_ALLOWED, STALLED, error_line};
use rigline_std::net::{self, Access, Arrival, ConnectionPermit, Door, Stream};
use rigline_std::stderr::complain;

/// The entrance of a server of lines. It admits clients, and tells the others why they are refused.
/// When the places run out, the first refusal is also reported on standard error.
pub struct Entrance {
    door: Door,
    is_reported: bool,
}

impl Entrance {
    /// An entrance that admits at most `limit` clients at a time, if `access` allows them to ask.
    pub fn new(access: Access, limit: usize) -> Self {
        Self { door: Door::new(access, limit), is_reported: false }
    }

    /// Gives a client a place. Returns `None` if the client was refused; it has then been told why.
    pub fn admit(&mut self, stream: &Stream) -> Option<ConnectionPermit> {
        let (text, told) = match self.door.arrive(stream, false) {
            Arrival::Admitted(place) => {
                self.is_reported = false;
                return Some(place);
            }
            Arrival::Refused(text, told) => (text, told),
            Arrival::Full(text, told) => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    complain(format_args!("{text}; others are refused"));
                }
                (text, told)
            }
            Arrival::Waits(_) | Arrival::Dropped => return None,
        };
        let mut stream = stream.clone();
        tokio::spawn(async move {
            let line = error_line(NOT_ALLOWED, &text);
            let said = async {
                stream.write_all(&line).await?;
                stream.shutdown().await
            };
            if let Ok(Ok(())) = timeout(STALLED, said).await {
                net::drain(&mut stream).await;
            }
            drop(told);
        });
        None
    }
}
