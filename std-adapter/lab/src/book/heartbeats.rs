//! The leases from moment to moment: when each holder was heard last, and which leases have ended.
//!
//! It is asked and told without the books, so that holders are heard, and their bytes pass, also while a slow disk is being written.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use rigline_std::mutex::lock;

use super::{Refusal, SILENCE, seconds, time_of_day};
use crate::clock::BootTime;
use crate::records::{Holder, Lease};

/// How many ended leases are remembered, to tell a late holder why.
const ENDED: usize = 256;
/// How long holders have to be heard after the agent itself has stood still.
const SPARED: u64 = 10_000;

/// A lease that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The person who ended the lease.
    pub by: String,
    /// The reason.
    pub why: String,
    /// When, for people.
    pub at: u64,
}

impl Ended {
    pub(super) fn text(&self) -> String {
        format!("the lease was ended by {} at {}: {}", self.by, time_of_day(self.at), self.why)
    }
}

/// The heartbeats of all leases. A copy is of the same ones.
#[derive(Debug, Clone, Default)]
pub struct Heartbeats(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    leases: HashMap<String, Beat>,
    ended: VecDeque<(String, Ended)>,
}

#[derive(Debug)]
struct Beat {
    holder: Holder,
    deadline: BootTime,
    heard: BootTime,
    used: BootTime,
    /// Its silence was forgiven once, and it has not been heard since.
    is_spared: bool,
}

impl All {
    /// The lease, if this user may use it now.
    fn usable(&mut self, id: &str, uid: u32, now: BootTime) -> Result<&mut Beat, Refusal> {
        match self.leases.get_mut(id) {
            Some(beat) if beat.holder.uid != uid => Err(Refusal::refused(format!("the lease is {}'s", beat.holder))),
            Some(beat) if now < beat.deadline => Ok(beat),
            Some(_) => Err(Refusal::refused("the time of the lease is over")),
            None => Err(Refusal::refused(match self.ended.iter().rev().find(|(ended, _)| ended == id) {
                Some((_, ended)) => ended.text(),
                None => "there is no such lease".to_owned(),
            })),
        }
    }
}

impl Heartbeats {
    /// Whether anything is known of a lease: it is there, or has ended lately.
    pub fn knows(&self, id: &str) -> bool {
        let all = lock(&self.0);
        all.leases.contains_key(id) || all.ended.iter().any(|(ended, _)| ended == id)
    }

    /// Returns until when a user may use a lease.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn usable(&self, id: &str, uid: u32, now: BootTime) -> Result<BootTime, Refusal> {
        lock(&self.0).usable(id, uid, now).map(|beat| beat.deadline)
    }

    /// Notes that the holder of a lease was alive at the time `now`, and returns when the lease ends at the latest. `uid` is the user who
    /// reports this.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn renew(&self, id: &str, uid: u32, now: BootTime) -> Result<BootTime, Refusal> {
        let mut all = lock(&self.0);
        let beat = all.usable(id, uid, now)?;
        (beat.heard, beat.is_spared) = (beat.heard.max(now), false);
        Ok(beat.deadline)
    }

    /// Notes that the rigs of a lease are used by its holder.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn used(&self, id: &str, uid: u32, now: BootTime) -> Result<(), Refusal> {
        let mut all = lock(&self.0);
        let beat = all.usable(id, uid, now)?;
        beat.used = beat.used.max(now);
        Ok(())
    }

    /// A lease begins.
    pub(super) fn begin(&self, lease: &Lease, now: BootTime) {
        let holder = lease.holder.clone();
        let beat = Beat { holder, deadline: lease.deadline, heard: now, used: now, is_spared: false };
        lock(&self.0).leases.insert(lease.id.clone(), beat);
    }

    /// A lease ends: from now on nothing passes by it.
    pub(super) fn end(&self, id: &str, ended: Ended) {
        let mut all = lock(&self.0);
        all.leases.remove(id);
        all.ended.push_back((id.to_owned(), ended));
        if all.ended.len() > ENDED {
            all.ended.pop_front();
        }
    }

    /// Why a lease has ended, if it has done so lately.
    pub(super) fn ended(&self, id: &str) -> Option<Ended> {
        lock(&self.0).ended.iter().rev().find(|(ended, _)| ended == id).map(|(_, ended)| ended.clone())
    }

    /// A holder was heard.
    pub(super) fn heard(&self, id: &str, now: BootTime) {
        if let Some(beat) = lock(&self.0).leases.get_mut(id) {
            (beat.heard, beat.is_spared) = (beat.heard.max(now), false);
        }
    }

    /// Why a lease is over at this time, if it is.
    pub(super) fn over(&self, lease: &Lease, now: BootTime) -> Option<String> {
        let all = lock(&self.0);
        let beat = all.leases.get(&lease.id)?;
        if now >= beat.deadline {
            return Some("its time is over".to_owned());
        }
        if now >= beat.heard.saturating_add(SILENCE) {
            return Some(format!("its holder was silent for {}", seconds(SILENCE)));
        }
        if lease.idle > 0 && now >= beat.used.saturating_add(lease.idle) {
            return Some(format!("its rigs were idle for {}", seconds(lease.idle)));
        }
        None
    }

    /// When a lease is over, if nothing is heard of it until then.
    pub(super) fn due(&self, lease: &Lease) -> BootTime {
        let all = lock(&self.0);
        let Some(beat) = all.leases.get(&lease.id) else { return BootTime::MAX };
        let idle = if lease.idle == 0 { BootTime::MAX } else { beat.used.saturating_add(lease.idle) };
        beat.deadline.min(beat.heard.saturating_add(SILENCE)).min(idle)
    }

    /// The agent has stood still, and has heard nobody: those who seem silent have a while to be heard, once.
    pub(super) fn spare(&self, now: BootTime) {
        for beat in lock(&self.0).leases.values_mut().filter(|beat| !beat.is_spared) {
            let spared = now.saturating_add(SPARED).saturating_sub(SILENCE);
            if beat.heard < spared {
                (beat.heard, beat.is_spared) = (spared, true);
            }
        }
    }
}
