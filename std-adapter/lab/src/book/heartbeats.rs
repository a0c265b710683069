//! The heartbeats of leases: the time at which each holder was last heard, and the leases that have
//! ended.
//!
//! They are kept apart from the books. So holders are heard, and their bytes pass, also while a
//! slow disk is being written.

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

/// The record of a lease that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The name of the person, or `the agent`, who ended the lease.
    pub by: String,
    /// The reason why the lease ended.
    pub why: String,
    /// The time at which the lease ended, in seconds since 1970 (UTC).
    pub at: u64,
}

impl Ended {
    pub(super) fn text(&self) -> String {
        format!("the lease was ended by {} at {}: {}", self.by, time_of_day(self.at), self.why)
    }
}

/// The heartbeats of all leases. A clone has the same heartbeats.
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
    /// Returns whether the lease exists, or has ended recently.
    pub fn knows(&self, id: &str) -> bool {
        let all = lock(&self.0);
        all.leases.contains_key(id) || all.ended.iter().any(|(ended, _)| ended == id)
    }

    /// Returns the latest time at which the lease `id` ends, if the user `uid` may use it now.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn usable(&self, id: &str, uid: u32, now: BootTime) -> Result<BootTime, Refusal> {
        lock(&self.0).usable(id, uid, now).map(|beat| beat.deadline)
    }

    /// Records that the holder of the lease `id` was alive at the time `now`. Returns the latest
    /// time at which the lease ends. `uid` is the user who reports this.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn renew(&self, id: &str, uid: u32, now: BootTime) -> Result<BootTime, Refusal> {
        let mut all = lock(&self.0);
        let beat = all.usable(id, uid, now)?;
        (beat.heard, beat.is_spared) = (beat.heard.max(now), false);
        Ok(beat.deadline)
    }

    /// Records that the rigs of the lease `id` were used at the time `now`, so that the lease is
    /// not idle.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn record_use(&self, id: &str, uid: u32, now: BootTime) -> Result<(), Refusal> {
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
