//! The tasks that read a connection's streams, and the one that waits for a child's end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rigline::frame::{Framer, LineEnds};
use rigline::link::{Collected, Collector};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::{ENDING, End, RawLine, Shared};
use crate::host::TEXT_LIMIT;
use crate::host::child::Child;
use crate::host::transport::Reader;

/// How long a child's pipes are read after its end, when another process of its group holds them.
pub(super) const LAST_LINES: Duration = Duration::from_millis(300);
/// How much beyond the limit is read before a line that does not end fails the call.
const SLACK: u64 = 64 * 1024;
/// How many bytes are read before others have their turn.
const IN_A_ROW: usize = 16 * 1024;
/// The length of the longest frame that is recognised, and of the beginning of the stream that is
/// searched for one, in bytes.
const FRAME: usize = 2048;
const LOOKED_AT: usize = 64 * 1024;

pub(super) async fn read_output(shared: Arc<Shared>, mut reader: Reader, ends: LineEnds, child: Option<Child>) {
    // Pages that no line reaches are never touched.
    let mut memory = vec![0; shared.options.line_limit.saturating_add(1)];
    let mut framer = Framer::new(&mut memory).with_mode(ends);
    let limit = framer.limit() as u64;
    let (mut since_newline, mut told) = (0_u64, false);
    let mut partial = 0;
    let mut memory = [0; FRAME];
    let mut frames = Suspicion { collector: Collector::new(&mut memory), bytes: 0 };
    let mut in_a_row = 0;
    let why = loop {
        // A peer that writes without end does not keep what it is to be asked from being sent.
        if in_a_row >= IN_A_ROW {
            in_a_row = 0;
            tokio::task::yield_now().await;
        }
        shared.raw.room().await;
        let space = framer.space();
        match reader.read(space).await {
            Ok(0) => break "the connection was closed".to_owned(),
            Ok(read) => {
                shared.heard.store(true, Ordering::Relaxed);
                in_a_row += read;
                let chunk = space.get(..read).unwrap_or_default();
                shared.raw.look(chunk);
                if let (None, Some(hint)) = (&child, frames.look(chunk)) {
                    shared.lock().hint = Some(hint.to_owned());
                }
                let end = chunk.iter().rposition(|byte| *byte == b'\n' || (ends == LineEnds::Serial && *byte == b'\r'));
                match end {
                    Some(at) => {
                        since_newline = (read - at) as u64;
                        partial = read - at - 1;
                    }
                    None => {
                        since_newline += read as u64;
                        partial += read;
                    }
                }
                framer.commit(read);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break format!("{error}"),
        }
        pass_on(&shared, &mut framer, &mut told, partial);
        if since_newline > limit + SLACK && !told {
            told = true;
            // It may never end.
            shared.is_late.store(true, Ordering::Relaxed);
            if shared.raw.is_on() {
                shared.raw.put(vec![RawLine::TooLong], 0);
            } else {
                shared.too_long(since_newline);
            }
        }
    };
    framer.finish();
    pass_on(&shared, &mut framer, &mut told, 0);
    shared.refusals_written().await;
    shared.output_read.send_replace(true);
    shared.raw.end();
    if let Some(child) = child {
        // `watch_child` reports its end, unless it does not end.
        if timeout(ENDING, child.ended()).await.is_err() {
            shared.end(End::Gone("it closed its standard output, and still runs".into()));
        }
    } else {
        let serial = matches!(ends, LineEnds::Serial);
        shared.end(End::Gone(if serial { format!("device disconnected: {why}") } else { why }));
    }
}

/// Hands out the lines that are whole. `partial` is how much there is of the next one.
fn pass_on(shared: &Arc<Shared>, framer: &mut Framer<'_>, told: &mut bool, partial: usize) {
    if !shared.raw.is_on() {
        while let Some(frame) = framer.next_frame() {
            shared.frame(frame, told);
        }
        return;
    }
    let mut lines = Vec::new();
    while let Some(frame) = framer.next_frame() {
        lines.extend(shared.raw_frame(frame, told));
    }
    shared.raw.put(lines, partial);
}

/// Looks whether a peer that should write lines writes the frames of the binary link.
struct Suspicion<'m> {
    collector: Collector<'m>,
    bytes: usize,
}

impl Suspicion<'_> {
    fn look(&mut self, chunk: &[u8]) -> Option<&'static str> {
        if self.bytes >= LOOKED_AT {
            return None;
        }
        self.bytes += chunk.len();
        let mut hint = None;
        for byte in chunk {
            match self.collector.push(*byte) {
                Some(Collected::Frame(_)) => {
                    return Some("the device uses the binary link: add the option ?link=cobs to the target");
                }
                // Text has no byte 0.
                Some(_) if *byte == 0 => {
                    hint = Some(
                        "the bytes received are not text: the speed may be wrong (?baud=), or the device may use the binary link (?link=cobs)",
                    );
                }
                _ => {}
            }
        }
        hint
    }
}

/// Reads all of standard error, and keeps its end.
pub(super) async fn read_errors(shared: Arc<Shared>, mut stderr: Reader) {
    let mut chunk = vec![0; 8192];
    let mut line = Vec::new();
    loop {
        let read = match stderr.read(&mut chunk).await {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for piece in chunk.get(..read).unwrap_or_default().split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            line.extend_from_slice(piece);
            if matches!(piece.last(), Some(b'\n' | b'\r')) || line.len() >= TEXT_LIMIT {
                shared.error_line(&line);
                line.clear();
            }
        }
        // A program that does nothing but print must not keep others from running.
        tokio::task::consume_budget().await;
    }
    shared.error_line(&line);
    shared.errors_read.send_replace(true);
}

/// Ends the connection when the process has ended and its last lines are read, and ends the rest of its group.
pub(super) async fn watch_child(shared: Arc<Shared>, child: Child) {
    let exit = child.ended().await;
    let mut output_read = shared.output_read.subscribe();
    let mut errors_read = shared.errors_read.subscribe();
    let read = async {
        let _ = output_read.wait_for(|read| *read).await;
        let _ = errors_read.wait_for(|read| *read).await;
    };
    let _ = timeout(LAST_LINES, pin!(read)).await;
    child.over();
    shared.end(End::Exited(exit));
}
