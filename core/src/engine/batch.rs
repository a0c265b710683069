//! Batches (JSON-RPC 2.0 §6): the members are answered one by one, and their replies are one line.

use core::ops::Range;

use super::detect::is_json_rpc;
use super::{Done, Engine, parse_error};
use crate::json::check;
use crate::received::Received;
use crate::rpc;

#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    /// Behind the last member that was examined, in the line.
    pub(super) next: usize,
    /// Behind the replies so far, in the reply region.
    pub(super) end: usize,
    /// Bytes that are kept for the replies to members that were not looked at yet.
    pub(super) reserve: usize,
}

impl Engine<'_> {
    /// Whether members of a batch are still to be answered.
    #[cfg(feature = "async")]
    pub(crate) fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// JSON-RPC 2.0 §6. An array none of whose members has the marker of JSON-RPC is taken as the last protocol seen, as all
    /// else that has none.
    pub(super) fn begin_batch(&mut self, bracket: usize) -> Done {
        let line = self.framer.line();
        let (length, protocol) = (line.len(), self.protocol);
        let reserve = match rpc::reserve_for_batch(line, self.limits().1, &mut self.spans) {
            Ok(reserve) => reserve,
            Err(error) => return Done::Reply(parse_error(&mut self.writer_for_line(), protocol, error)),
        };
        if !protocol.is_json_rpc {
            match self.json_rpc().filter(|_| is_json_rpc(line)) {
                Some(json_rpc) => self.protocol = json_rpc,
                None => return self.message(0, length, false),
            }
        }
        match reserve {
            Ok(reserve) => {
                self.batch = Some(Batch { next: bracket + 1, end: 0, reserve });
                Done::Nothing
            }
            Err(fault) => Done::Reply(rpc::invalid_request(&mut self.writer_for_line(), b"", fault)),
        }
    }

    /// Ends the current member, or takes the next.
    #[inline(never)]
    pub(super) fn next_of_batch(&mut self, done: Option<Done>) -> Done {
        match done {
            Some(done) => self.end_member(done),
            None => self.next_member(),
        }
    }

    fn next_member(&mut self) -> Done {
        let Some(mut batch) = self.batch else { return Done::Nothing };
        let line = self.framer.line();
        let members = &self.protocol.members;
        let Some(Range { start, end }) = check::scan_next_element(line, batch.next, members, &mut self.spans) else {
            self.batch = None;
            if batch.end == 0 {
                // All were notifications: not even an empty array (§6).
                return Done::Nothing;
            }
            if let Some(place) = self.memory.get_mut(batch.end) {
                *place = b']';
            }
            return Done::Reply(batch.end + 1);
        };
        batch.next = end;
        let text = line.get(start..end).unwrap_or_default();
        batch.reserve = batch.reserve.saturating_sub(rpc::reserve(&Received::whole(text, &self.spans)));
        self.batch = Some(batch);
        match self.message(start, end, true) {
            Done::Run => Done::Run,
            done => self.end_member(done),
        }
    }

    /// Records a member's reply. There is no line to send yet.
    fn end_member(&mut self, done: Done) -> Done {
        if let (Some(batch), Done::Reply(end)) = (&mut self.batch, done) {
            let separator = if batch.end == 0 { b'[' } else { b',' };
            if let Some(place) = self.memory.get_mut(batch.end) {
                *place = separator;
            }
            batch.end = end;
        }
        Done::Nothing
    }
}
