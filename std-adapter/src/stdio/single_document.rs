//! All of the input as one message.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use embedded_io_async::{Read, Write as _};
use rigline::Extension;
use rigline::exchange::{Exchange, Next, Served, Session};
use rigline::frame::TooLong;
use rigline::json::Json;
use rigline::serve::whole::{HandlerEnd, Runner, dropped_logs};

use super::Stdio;
use super::between::CHUNK;
use super::output::{Lines, Output};
use super::stop::Stop;
use crate::between::{Between, Passing, Peer};
use crate::log::logs_in;
use crate::text::on_one_line;

/// The byte-order mark of UTF-8.
const BOM: &[u8] = b"\xEF\xBB\xBF";

/// The input, up to its end.
struct Document {
    text: Vec<u8>,
    limit: usize,
    /// How long it is, if it is longer than the limit.
    dropped: Option<usize>,
}

impl Document {
    fn new(limit: usize) -> Self {
        Self { text: Vec::new(), limit, dropped: None }
    }

    fn push(&mut self, part: &[u8]) {
        let (fits, rest) = part.split_at(part.len().min(self.limit.saturating_sub(self.text.len())));
        self.text.extend_from_slice(fits);
        // The end of the last line is not counted.
        if self.dropped.is_some() || !rest.trim_ascii().is_empty() {
            let before = self.dropped.unwrap_or(self.text.len());
            self.dropped = Some(before.saturating_add(rest.len()));
        }
    }
}

impl Stdio {
    /// Serves the message that the whole input is: as one that comes whole by any other way, not as a line.
    pub(super) async fn serve_document<E: Extension>(
        &self,
        extension: &mut E,
        mut input: impl Read<Error = io::Error>,
        output: &Arc<Output>,
        stop: &Arc<Stop>,
        between: Option<(Arc<dyn Between>, Peer)>,
    ) -> io::Result<()> {
        let (request_limit, line_limit) = self.limits();
        let reply_limit = self.reply_limit.unwrap_or(super::REPLY_LIMIT);
        let to = Served::new(extension.manifest(), self.protocols, (request_limit, line_limit.min(reply_limit)));
        let Some(mut to) = to else { return Err(io::Error::other("no protocol")) };
        if let Some(protocol) = self.protocol {
            to = to.with_protocol(protocol);
        }
        let mut document = Document::new(request_limit);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = tokio::select! {
                biased;
                () = stop.heard() => return Ok(()),
                count = input.read(&mut chunk) => count?,
            };
            match chunk.get(..count) {
                Some([]) | None => break,
                Some(part) => document.push(part),
            }
        }
        drop(chunk);
        let Document { mut text, limit, dropped } = document;
        if let Some((between, peer)) = &between {
            match between.received(peer, &text) {
                Passing::On => {}
                Passing::Instead(other) => text = other,
                Passing::Kept => return Ok(()),
            }
        }
        let (mut session, mut exchange) = (Session::new(&to), Exchange::new(&to));
        let mut out = vec![0; reply_limit.saturating_add(1)];
        let checked = Json::parse(text.strip_prefix(BOM).unwrap_or(&text)).map(drop);
        let mut next = match (dropped, checked) {
            (Some(dropped), _) => Next::Reply(session.too_long(TooLong { limit, dropped }, &mut out)),
            // Nothing at all is answered, too.
            (_, Err(error)) if text.trim_ascii().is_empty() => Next::Reply(session.unreadable(error, &mut out)),
            (_, checked) => {
                if checked.is_ok() {
                    on_one_line(&mut text);
                }
                session.receive(&to, &text, &mut out, &mut exchange)
            }
        };
        let mut lines = Lines::new(output.clone(), stop.clone(), between);
        let mut logs = vec![0; self.log_region];
        let (touched, lost_logs) = (Cell::new(false), Cell::new(0));
        let (mut is_stopped, mut is_safe) = (false, false);
        loop {
            let reply = match next {
                Next::Nothing => break,
                Next::Run { .. } => {
                    // What else there is of a batch is cancelled.
                    if !is_stopped {
                        let send = |line: &[u8]| {
                            if !output.send_log(line, self.log_region) {
                                lost_logs.set(lost_logs.get() + usize::try_from(logs_in(line)).unwrap_or(1));
                            }
                        };
                        let stopped = async {
                            stop.heard().await;
                            false
                        };
                        let was_touched = touched.get() || exchange.can_change(&to);
                        let runner = Runner::new(&self.clock, &send, &mut logs).touched(&touched);
                        let end = runner.run(extension, &to, &mut exchange, &mut text, &mut out, stopped).await;
                        is_stopped = end == HandlerEnd::Stopped;
                        is_safe = end != HandlerEnd::Returned && was_touched;
                    }
                    next = session.settle(&to, &text, &mut out, &mut exchange);
                    continue;
                }
                Next::Shutdown(None) => 0,
                Next::Reply(length)
                | Next::StaysOpen(length)
                | Next::ReplyThenRun(length)
                | Next::Shutdown(Some(length)) => length,
            };
            if let (lost @ 1.., protocol) = (lost_logs.take(), session.protocol())
                && let Some(length) = dropped_logs(protocol, lost, &mut logs)
            {
                write(&mut lines, logs.get(..length).unwrap_or_default()).await?;
            }
            if reply > 0
                && let Some(end) = out.get_mut(reply)
            {
                *end = b'\n';
                write(&mut lines, out.get(..=reply).unwrap_or_default()).await?;
            }
            if !matches!(next, Next::ReplyThenRun(_) | Next::Shutdown(_)) {
                break;
            }
            next = session.settle(&to, &text, &mut out, &mut exchange);
            if !matches!(next, Next::Run { .. }) {
                break;
            }
        }
        if session.lost(&to) && !self.keeps_outputs && !(is_stopped && is_safe) {
            extension.safe_state().await;
        }
        Ok(())
    }
}

/// Writes a line, which [`Lines`] takes as a whole.
async fn write(lines: &mut Lines, line: &[u8]) -> io::Result<()> {
    lines.write(line).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that was kept, and the length of one that is too long.
    fn document(limit: usize, parts: &[&[u8]]) -> (Vec<u8>, Option<usize>) {
        let mut document = Document::new(limit);
        parts.iter().for_each(|part| document.push(part));
        (document.text, document.dropped)
    }

    #[test]
    fn the_limit_of_a_document_counts_all_but_the_white_space_at_its_end() {
        assert_eq!(document(4, &[b"1234"]), (b"1234".to_vec(), None));
        assert_eq!(document(4, &[b"12", b"34\n", b" \n"]), (b"1234".to_vec(), None));
        assert_eq!(document(4, &[b"12", b"345"]), (b"1234".to_vec(), Some(5)));
        assert_eq!(document(4, &[b"1234567", b"89"]), (b"1234".to_vec(), Some(9)));
        assert_eq!(document(4, &[b"1234 ", b"5"]).1, Some(5), "one more than the limit, without the gap");
    }
}
