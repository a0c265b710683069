//! The end of input as an event.

use embedded_io_async::{ErrorType, Read};
use tokio::sync::watch;

/// A reader that reports its end.
#[derive(Debug)]
pub(super) struct Watched<R> {
    reader: R,
    told: Option<watch::Sender<bool>>,
}

impl<R> Watched<R> {
    pub(super) fn new(reader: R, told: Option<watch::Sender<bool>>) -> Self {
        Self { reader, told }
    }
}

impl<R: Read> ErrorType for Watched<R> {
    type Error = R::Error;
}

impl<R: Read> Read for Watched<R> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Self::Error> {
        let count = self.reader.read(buf).await?;
        if count == 0
            && !buf.is_empty()
            && let Some(told) = &self.told
        {
            told.send_replace(true);
        }
        Ok(count)
    }
}
