//! Batches (JSON-RPC 2.0 §6): the members are answered one by one, and their replies are one line.

use core::ops::Range;

use super::answer::parse_error;
use super::detect::is_json_rpc;
use super::session::Session;
use super::state::{Batch, Done, Turn};
use crate::json::check::{self, Span};
use crate::message::Received;
use crate::rpc;

impl Session {
    /// JSON-RPC 2.0 §6. An array none of whose members has the marker of JSON-RPC is taken as the
    /// last protocol seen, as all else that has none. The text begins at `start` of the line, and
    /// its bracket is at `bracket`.
    pub(super) fn begin_batch(&mut self, turn: &mut Turn<'_, '_>, start: usize, bracket: usize) -> Done {
        let text = turn.line.get(start..).unwrap_or_default();
        let protocol = self.protocol;
        let limit = turn.to.limits.1.min(turn.out.len().saturating_sub(1));
        let reserve = match rpc::reserve_for_batch(text, limit, &mut turn.x.spans) {
            Ok(reserve) => reserve,
            Err(error) => return Done::Reply(parse_error(&mut turn.whole_writer(), protocol, error)),
        };
        if !protocol.is_json_rpc {
            match turn.to.json_rpc(protocol).filter(|_| is_json_rpc(text)) {
                Some(json_rpc) => self.protocol = json_rpc,
                None => return self.unscanned(turn, start),
            }
        }
        match reserve {
            Ok(reserve) => {
                // At once: what writes a member's reply may look whether it is alone on its line.
                if let Some(place) = turn.out.first_mut() {
                    *place = b'[';
                }
                turn.x.batch = Some(Batch { next: bracket + 1, end: 0, reserve });
                Done::Nothing
            }
            Err(fault) => Done::Reply(rpc::invalid_request(&mut turn.whole_writer(), b"", fault)),
        }
    }

    /// Ends the current member, or takes the next.
    pub(super) fn next_of_batch(&mut self, turn: &mut Turn<'_, '_>, done: Option<Done>) -> Done {
        match done {
            Some(done) => end_member(turn, done),
            None => self.next_member(turn),
        }
    }

    fn next_member(&mut self, turn: &mut Turn<'_, '_>) -> Done {
        let Some(mut batch) = turn.x.batch else { return Done::Nothing };
        let members = &self.protocol.members;
        let Some(Range { start, end }) = check::scan_next_element(turn.line, batch.next, members, &mut turn.x.spans)
        else {
            turn.x.batch = None;
            if batch.end == 0 {
                // All were notifications: not even an empty array (§6).
                return Done::Nothing;
            }
            if let Some(place) = turn.out.get_mut(batch.end) {
                *place = b']';
            }
            return Done::Reply(batch.end + 1);
        };
        batch.next = end;
        let text = turn.line.get(start..end).unwrap_or_default();
        batch.reserve = batch.reserve.saturating_sub(rpc::reserve(&Received::whole(text, &turn.x.spans)));
        turn.x.batch = Some(batch);
        match self.message(turn, Span::of_range(start, end)) {
            Done::Run => Done::Run,
            done => end_member(turn, done),
        }
    }
}

/// Records a member's reply. There is no line to send yet.
fn end_member(turn: &mut Turn<'_, '_>, done: Done) -> Done {
    if let (Some(batch), Done::Reply(end)) = (&mut turn.x.batch, done) {
        if batch.end > 0
            && let Some(place) = turn.out.get_mut(batch.end)
        {
            *place = b',';
        }
        batch.end = end;
    }
    Done::Nothing
}
