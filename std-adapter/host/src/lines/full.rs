//! Clients for whom there is no place.

use std::sync::Arc;

use tokio::io::AsyncWriteExt as _;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{NOT_ALLOWED, STALLED, error_line};
use rigline_std::net::{self, Stream};
use rigline_std::stderr::complain;

/// How many refused clients are waited for at once. A further one is closed without a word.
const REFUSED: usize = 64;

/// Refuses the clients that are too many, and reports on standard error when the first of them comes.
pub struct Full {
    limit: usize,
    is_reported: bool,
    places: Arc<Semaphore>,
}

impl Full {
    pub fn new(limit: usize) -> Self {
        Self { limit, is_reported: false, places: Arc::new(Semaphore::new(REFUSED)) }
    }

    /// Says to a client why it is not served.
    pub fn refuse(&mut self, mut stream: Stream) {
        let text = format!("too many clients: {} are connected already", self.limit);
        if !std::mem::replace(&mut self.is_reported, true) {
            complain(format_args!("{text}; others are refused"));
        }
        let Ok(place) = self.places.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let line = error_line(NOT_ALLOWED, &text);
            let said = async {
                stream.write_all(&line).await?;
                stream.shutdown().await
            };
            if let Ok(Ok(())) = timeout(STALLED, said).await {
                net::drain(&mut stream).await;
            }
            drop(place);
        });
    }

    /// A client has found a place again.
    pub fn is_over(&mut self) {
        self.is_reported = false;
    }
}
