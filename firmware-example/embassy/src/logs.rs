use core::fmt::Write as _;
use core::task::Poll;

use embassy_futures::poll_once;
use embassy_time::Duration;
use embassy_usb::driver::Driver;
use embedded_io_async::{ErrorType, Write};
use heapless::String;
use rigline::rpc;

use crate::usb_cdc::{Error, Writer};

/// A writer of whole lines that drops log lines if the host does not read. A log line that cannot
/// begin within the time limit is dropped as a whole. A line that has begun is finished, however
/// long that takes, and replies are always sent.
///
/// The first dropped line takes the whole time limit. Until the host reads again, further log lines
/// are dropped at once. A log line before the next line that is sent reports the number of dropped
/// lines.
pub struct LogsMayBeLost<'w, 'd, D: Driver<'d>> {
    writer: &'w mut Writer<'d, D>,
    limit: Duration,
    place: LinePosition,
    /// The last log line was dropped.
    stalled: bool,
    dropped: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinePosition {
    /// The next byte begins a line.
    Between,
    /// Some bytes of a line were sent, and its end was not.
    Inside,
}

impl<'w, 'd, D: Driver<'d>> LogsMayBeLost<'w, 'd, D> {
    /// A writer over the writer of a port. A log line that cannot begin within `limit` is dropped.
    pub fn new(writer: &'w mut Writer<'d, D>, limit: Duration) -> Self {
        Self { writer, limit, place: LinePosition::Between, stalled: false, dropped: 0 }
    }

    /// Sends the first packet of a line that may be lost; none if it cannot leave in time.
    async fn begin(&mut self, line: &[u8]) -> Result<Option<usize>, Error> {
        let sent = if self.stalled {
            match poll_once(self.writer.write(line)) {
                Poll::Ready(sent) => sent,
                Poll::Pending => Err(Error::Stalled),
            }
        } else {
            self.writer.write_within(line, self.limit).await
        };
        self.stalled = sent == Err(Error::Stalled);
        if self.stalled { Ok(None) } else { sent.map(Some) }
    }

    /// Tells how many lines were dropped, before a line that is a log or not; returns whether it
    /// could.
    async fn report(&mut self, is_log: bool) -> Result<bool, Error> {
        if self.dropped == 0 {
            return Ok(true);
        }
        let report = report(self.dropped);
        let line = report.as_bytes();
        let mut sent = 0;
        if is_log {
            let Some(begun) = self.begin(line).await? else { return Ok(false) };
            sent = begun;
        }
        self.dropped = 0;
        self.writer.write_all(line.get(sent..).unwrap_or_default()).await?;
        Ok(true)
    }
}

fn report(dropped: u32) -> String<160> {
    let mut line = String::new();
    let lines = if dropped == 1 { "line was" } else { "lines were" };
    let _ = writeln!(
        line,
        r#"{{"jsonrpc":"2.0","method":"log","params":{{"level":"warn","message":"{dropped} log {lines} dropped: nobody read the port"}}}}"#
    );
    line
}

impl<'d, D: Driver<'d>> ErrorType for LogsMayBeLost<'_, 'd, D> {
    type Error = Error;
}

impl<'d, D: Driver<'d>> Write for LogsMayBeLost<'_, 'd, D> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Error> {
        let mut sent = None;
        if self.place == LinePosition::Between {
            let is_log = rpc::is_log_line(buf);
            let reported = self.report(is_log).await?;
            if is_log {
                sent = if reported { self.begin(buf).await? } else { None };
                if sent.is_none() {
                    self.dropped = self.dropped.saturating_add(1);
                    return Ok(buf.len());
                }
            }
        }
        let sent = match sent {
            Some(sent) => sent,
            None => self.writer.write(buf).await?,
        };
        self.place = if sent == buf.len() { LinePosition::Between } else { LinePosition::Inside };
        Ok(sent)
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush().await
    }
}
