//! Answers to the peer's own requests, all of which are refused.

use std::sync::Arc;
use std::task::{Context, Waker};

use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::time::timeout;

use super::send::{Written, at_once};
use super::{ENDING, Shared};
use crate::host::transport::Writer;

/// How many bytes of answers to a peer's own requests may wait.
const REFUSALS: usize = 1 << 20;

/// The rest of an answer to a peer's own request.
pub(super) struct Refusal {
    rest: Vec<u8>,
    /// The writer, if the beginning of the line is written already.
    writer: Option<OwnedMutexGuard<Writer>>,
}

impl Shared {
    /// Answers a request of the peer's, after those that came before it. Most answers are written
    /// here at once, so that they precede everything that follows the request. A peer that asks
    /// without reading gets a bounded number of answers.
    pub(super) fn refuse(&self, line: Vec<u8>) {
        let mut refusal = Refusal { rest: line, writer: None };
        if *self.refusals_waiting.borrow() == 0
            && let Ok(mut writer) = Arc::clone(&self.writer).try_lock_owned()
        {
            match at_once(&mut writer, &refusal.rest, &mut Context::from_waker(Waker::noop())) {
                Ok(Written::Whole) | Err(_) => return,
                Ok(Written::Part(0)) => {}
                Ok(Written::Part(sent)) => {
                    refusal.rest.drain(..sent);
                    refusal.writer = Some(writer);
                }
            }
        }
        let length = refusal.rest.len();
        let has_room = self.refusals_waiting.send_if_modified(|waiting| {
            // The rest of a line that has begun always has room: half a line would damage the next
            // one.
            let has_room = refusal.writer.is_some() || *waiting + length <= REFUSALS;
            *waiting += if has_room { length } else { 0 };
            has_room
        });
        if !has_room || self.refusals.send(refusal).is_err() {
            self.lock().hint = Some("it sends requests without reading the responses".to_owned());
        }
    }

    /// Waits until the peer has been sent all answers to its own requests, but not for long.
    pub(super) async fn refusals_written(&self) {
        let mut waiting = self.refusals_waiting.subscribe();
        let _ = timeout(ENDING, waiting.wait_for(|waiting| *waiting == 0)).await;
    }
}

/// Writes the answers that wait, in order.
pub(super) async fn write_refusals(shared: Arc<Shared>, mut refused: mpsc::UnboundedReceiver<Refusal>) {
    while let Some(Refusal { rest, writer }) = refused.recv().await {
        let mut writer = match writer {
            Some(writer) => writer,
            None => Arc::clone(&shared.writer).lock_owned().await,
        };
        let sent = async {
            writer.write_all(&rest).await?;
            writer.flush().await
        };
        let sent = sent.await;
        drop(writer);
        if sent.is_err() {
            refused.close();
            shared.refusals_waiting.send_replace(0);
            return;
        }
        shared.refusals_waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(rest.len()));
    }
}
