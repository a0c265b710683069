//! The rules of the agent: who holds which rig, who waits, and what follows. This module does no
//! input and output.
//!
//! Each function gets the time. Work for other modules is added to [`Lab::effects`]. A change that
//! somebody is told of is written to the [`Books`] before the function returns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use serde_json::{Value, json};

use crate::clock::{BootTime, unix_seconds};
use crate::processes::Process;
use crate::records::{Books, Change, Entry, FLAPPING, Health, Holder, Kept, Lease};
use crate::rigs::{Selector, Spec};

mod heartbeats;

pub use heartbeats::{Ended, Heartbeats};

/// The time in which a waiting client must confirm an offer, in milliseconds.
pub const CONFIRM: u64 = 2_000;
/// How many offers a client may leave without an answer.
const OFFERS: u32 = 3;
/// The time after which a lease ends if its holder gives no sign of life, in milliseconds.
pub const SILENCE: u64 = 30_000;
/// How long after the start the holders of leases that the books do not have may tell them, and those who waited take their places again.
const RETURN: u64 = 1_000;
/// How soon it is looked again whether a process that has closed its connection has ended: its files are closed before it is gone.
const LOOK: u64 = 25;
/// When a rig in quarantine is tried again.
const AGAIN: [u64; 5] = [10_000, 30_000, 120_000, 600_000, 3_600_000];
/// How often it is brought back by what the list names for that, in one quarantine.
const RECOVERIES: usize = 3;
/// How often in a row it must answer.
const GOOD: u32 = 2;
const DAY: u64 = 24 * 60 * 60;
/// The most requests of one user that wait.
const QUEUE: usize = 1000;
/// How many entries of the log are looked through for the end of a lease that is not remembered.
const LOOKED: usize = 1000;
/// How long after the start of an agent a client is believed that it has waited before that.
const BELIEVED: u64 = 60_000;

/// The state of a rig.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// No lease has the rig.
    Idle,
    /// The rig is offered to the request with this name, which must confirm.
    Offered(String),
    /// The lease with this id has the rig.
    Leased(String),
    /// The rig is being brought to its safe state and asked for its manifest.
    Checked,
}

struct Rig {
    spec: Spec,
    is_listed: bool,
    state: State,
    health: Health,
}

/// A client's request for a lease.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    /// The name of the request, which the client has chosen. A repeated request gets the same
    /// lease.
    pub request: String,
    /// The selectors of the wanted rigs.
    pub selectors: Vec<Selector>,
    /// The number of rigs that the request wants of those that the selectors match.
    pub count: usize,
    /// The longest time in the queue, in milliseconds. `None` means not to wait.
    pub wait: Option<u64>,
    /// The time of the first request, which decides the place in the queue. A client that asks
    /// again after a crash of the agent keeps its place.
    pub since: BootTime,
    /// The longest duration of the lease, in milliseconds.
    pub ttl: u64,
    /// The time without use after which the lease ends, as in [`Lease::idle`].
    pub idle: u64,
    /// Whether other programs than the agent open the ports, as in [`Lease::is_raw`].
    pub is_raw: bool,
    /// The person and process that want the lease.
    pub holder: Holder,
}

struct Waiting {
    ask: LeaseRequest,
    conn: u64,
    order: u64,
    until: BootTime,
    offer: Option<(Vec<String>, BootTime)>,
    /// The offer was made longer, since the agent had stood still.
    is_spared: bool,
    offers: u32,
    rests: BootTime,
    /// The place and the states of the rigs that it was told last.
    told: Option<(usize, Vec<&'static str>)>,
}

/// Those who wait for the same rigs.
struct Group {
    rigs: Vec<usize>,
    /// How many of them were counted.
    count: usize,
    states: Vec<&'static str>,
    why: Option<String>,
}

/// The event of a lease's end, in the log.
const ENDED: &str = "ended";

/// The exit code of a [`Refusal`] that says that an offer has expired. No command ends with it,
/// since the client waits again.
pub const LATE: u8 = 255;

/// A refusal of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The exit code of the command that is refused.
    pub code: u8,
    /// The reason, for people.
    pub why: String,
}

impl Refusal {
    /// The refusal of a request that is wrong in itself, with exit code 2.
    pub fn usage(why: impl Into<String>) -> Self {
        Self { code: 2, why: why.into() }
    }

    /// The refusal of a correct request that cannot be fulfilled, with exit code 3.
    pub fn refused(why: impl Into<String>) -> Self {
        Self { code: 3, why: why.into() }
    }

    /// An offer that is over: the client is still in the queue.
    fn late() -> Self {
        Self { code: LATE, why: "the offer is over: it was not confirmed in time".to_owned() }
    }

    /// The time is over.
    fn timeout(why: impl Into<String>) -> Self {
        Self { code: 124, why: why.into() }
    }
}

/// A piece of work that other modules must do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a notification to a client.
    Tell {
        /// The number of the connection.
        conn: u64,
        /// The method of the notification.
        method: &'static str,
        /// The parameters of the notification.
        params: Value,
    },
    /// Close all connections to the rigs of a lease.
    Close {
        /// The id of the lease.
        lease: String,
        /// The reason, for the holder.
        why: String,
    },
    /// Check a rig after a lease: end the processes of the lease, bring the rig to its safe state,
    /// ask for its manifest, and report the result to [`Lab::record_check`].
    Check {
        /// The name of the rig.
        rig: String,
        /// The target of the rig.
        target: String,
        /// Whether the rig is asked for its manifest.
        asks: bool,
        /// The program, with its arguments, that recovers the rig and runs first. Empty if there is
        /// none.
        recover: Vec<String>,
        /// The identity of the board that was last seen at the target, if the target itself does
        /// not name it.
        board: Option<String>,
        /// The lease that had the rig. `None` if the check follows no lease.
        lease: Option<Box<Lease>>,
    },
}

/// The reason why a check of a rig failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A process that does not belong to the lab uses the rig. The text names it.
    Busy(String),
    /// Any other reason.
    Bad(String),
}

impl Fault {
    fn text(&self) -> &str {
        match self {
            Self::Busy(text) | Self::Bad(text) => text,
        }
    }
}

/// The answer to a request for a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum LeaseReply {
    /// The request has this lease already.
    Granted(Box<Lease>),
    /// The request waits in the queue, or has an offer to confirm.
    Waits,
}

/// The state of the lab: all rigs, all leases, and the queue.
pub struct Lab {
    books: Box<dyn Books>,
    boot: String,
    rigs: BTreeMap<String, Rig>,
    leases: BTreeMap<String, Held>,
    heartbeats: Heartbeats,
    queue: Vec<Waiting>,
    /// Ends of leases and knowledge of rigs that could not be written. They go with what is written next.
    unwritten: Vec<Change>,
    started: BootTime,
    /// Nothing is offered before this time.
    holds: BootTime,
    has_lost_books: bool,
    /// Leases whose processes live, and which nobody has told yet although the books were lost.
    expected: BTreeSet<String>,
    asks: u64,
    /// The work that other modules must do. The caller of a function takes it from here.
    pub effects: Vec<Effect>,
}

struct Held {
    lease: Lease,
    /// When the process of the lease is looked for, while it has no connection.
    looks: BootTime,
    conns: BTreeSet<u64>,
}

impl Lab {
    /// Restores the state that an earlier agent has `kept` in the books. Leases whose holders live
    /// go on, and the others end.
    ///
    /// The books were lost if nothing was kept although an agent has run before (`has_run`). `boot`
    /// is the id of the machine's start, and `now` the time since that start.
    pub fn new(books: Box<dyn Books>, kept: Option<Kept>, has_run: bool, boot: &str, now: BootTime) -> Self {
        let has_lost_books = kept.is_none() && has_run;
        let mut lab = Self {
            books,
            boot: boot.to_owned(),
            rigs: BTreeMap::new(),
            leases: BTreeMap::new(),
            heartbeats: Heartbeats::default(),
            queue: Vec::new(),
            unwritten: Vec::new(),
            started: now,
            holds: now,
            has_lost_books,
            expected: BTreeSet::new(),
            asks: 0,
            effects: Vec::new(),
        };
        let kept = kept.unwrap_or_default();
        for (name, mut health) in kept.rigs {
            if health.boot != boot {
                (health.due, health.boot) = (now, boot.to_owned());
            }
            let rig = Rig { spec: Spec::unlisted(&name), is_listed: false, state: State::Idle, health };
            lab.rigs.insert(name, rig);
        }
        if has_lost_books || !kept.leases.is_empty() {
            lab.holds = now + RETURN;
        }
        for lease in kept.leases {
            lab.take_over(lease, now);
        }
        lab
    }

    /// Delays all offers after a loss of the books. The holders of `leases` live, and are expected
    /// to tell their leases. Offers begin when all have, or at the time `until`.
    pub fn expect(&mut self, leases: BTreeSet<String>, until: BootTime) {
        self.expected = leases;
        if !self.expected.is_empty() {
            self.holds = self.holds.max(until);
        }
    }

    fn take_over(&mut self, lease: Lease, now: BootTime) {
        if self.expected.remove(&lease.id) && self.expected.is_empty() {
            self.holds = self.started + RETURN;
        }
        for name in &lease.rigs {
            let rig = self.rigs.entry(name.clone()).or_insert_with(|| Rig::unlisted(name));
            rig.state = State::Leased(lease.id.clone());
        }
        let id = lease.id.clone();
        let (is_of_boot, is_alive) = (lease.boot == self.boot, lease.process().is_alive());
        self.heartbeats.begin(&lease, now);
        self.leases.insert(id.clone(), Held { lease, looks: now, conns: BTreeSet::new() });
        if !is_of_boot {
            self.end(&id, "the machine was started again", "the agent", now);
        } else if !is_alive {
            self.end(&id, "its holder ended while no agent ran", "the agent", now);
        }
    }

    /// Takes over the present list of rigs. A rig that is no longer in the list stays until no
    /// lease has it.
    pub fn set_rigs(&mut self, specs: Vec<Spec>, now: BootTime) {
        let names: BTreeSet<String> = specs.iter().map(|spec| spec.name.clone()).collect();
        for spec in specs {
            match self.rigs.get_mut(&spec.name) {
                Some(rig) => {
                    if rig.spec.target != spec.target && rig.spec.target != rig.spec.name {
                        // It may be another board.
                        rig.health.has_answered = false;
                        rig.health.board = None;
                    }
                    (rig.spec, rig.is_listed) = (spec, true);
                }
                None => {
                    let name = spec.name.clone();
                    self.rigs.insert(name, Rig { is_listed: true, ..Rig::new(spec) });
                }
            }
        }
        for (name, rig) in &mut self.rigs {
            rig.is_listed &= names.contains(name);
        }
        self.schedule(now);
    }

    /// Returns the rigs that are in the list or in use.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.rigs.values().filter(|rig| rig.is_listed || rig.is_in_use()).map(|rig| &rig.spec)
    }

    /// Returns whether a target is a rig of the list.
    pub fn is_listed(&self, spec: &Spec) -> bool {
        let is_it = |rig: &&Rig| {
            rig.spec.target == spec.target || rig.spec.boards.iter().any(|board| spec.boards.contains(board))
        };
        self.rigs.values().filter(|rig| rig.is_listed).any(|rig| is_it(&rig))
    }

    /// Returns the name of the rig that a target means. If the board is in the list, it is the name
    /// there. Otherwise the target becomes a rig of its own.
    pub fn name_of(&mut self, spec: Spec) -> String {
        let is_it =
            |rig: &&Rig| rig.spec.name == spec.name || rig.spec.boards.iter().any(|board| spec.boards.contains(board));
        let known = self.rigs.values().filter(is_it).max_by_key(|rig| rig.is_listed).map(|rig| rig.spec.name.clone());
        known.unwrap_or_else(|| {
            let name = spec.name.clone();
            self.rigs.insert(name.clone(), Rig::new(spec));
            name
        })
    }

    /// Asks for a lease on behalf of the connection `conn`.
    ///
    /// # Errors
    /// The request is refused without waiting.
    pub fn ask(&mut self, conn: u64, ask: LeaseRequest, now: BootTime) -> Result<LeaseReply, Refusal> {
        if let Some(held) = self.leases.values_mut().find(|held| held.lease.request == ask.request) {
            if held.lease.holder.uid != ask.holder.uid {
                return Err(Refusal::refused("this request is another user's"));
            }
            held.conns.insert(conn);
            self.heartbeats.heard(&held.lease.id, now);
            return Ok(LeaseReply::Granted(Box::new(held.lease.clone())));
        }
        if let Some(waiting) = self.queue.iter_mut().find(|waiting| waiting.ask.request == ask.request) {
            if waiting.ask.holder.uid != ask.holder.uid {
                return Err(Refusal::refused("this request is another user's"));
            }
            (waiting.conn, waiting.told) = (conn, None);
            if let Some((rigs, until)) = &waiting.offer {
                let params = json!({ "request": ask.request, "rigs": rigs, "until": until });
                self.effects.push(Effect::Tell { conn, method: "offer", params });
            }
            self.schedule(now);
            return Ok(LeaseReply::Waits);
        }
        if self.queue.iter().filter(|waiting| waiting.ask.holder.uid == ask.holder.uid).count() >= QUEUE {
            let user = &ask.holder.user;
            return Err(Refusal::refused(format!("{QUEUE} requests of {user} wait already, which is the limit")));
        }
        let candidates = self.candidates(&ask.selectors).len();
        if candidates == 0 {
            let listed = self.rigs.values().filter(|rig| rig.is_listed).map(|rig| &rig.spec);
            let selector = ask.selectors.first().ok_or_else(|| Refusal::usage("no rig is named"))?;
            return Err(Refusal::usage(selector.nothing(listed)));
        }
        if ask.count == 0 || candidates < ask.count {
            return Err(Refusal::usage(format!("{} rigs are wanted, and {candidates} match", ask.count)));
        }
        self.end_dead(|_| true, now);
        self.asks += 1;
        // To wait for no time is not to wait.
        let until = now.saturating_add(ask.wait.filter(|wait| *wait > 0).unwrap_or(u64::MAX));
        // Who asked the agent before this one has its place again.
        let since = if now < self.started.saturating_add(BELIEVED) { ask.since.min(now) } else { now };
        let ask = LeaseRequest { since, wait: ask.wait.filter(|wait| *wait > 0), ..ask };
        let order = self.asks;
        let waiting =
            Waiting { ask, conn, order, until, offer: None, is_spared: false, offers: 0, rests: 0, told: None };
        let place = (waiting.ask.since, waiting.order);
        let behind = self.queue.iter().position(|other| (other.ask.since, other.order) > place);
        self.queue.insert(behind.unwrap_or(self.queue.len()), waiting);
        self.schedule(now);
        Ok(LeaseReply::Waits)
    }

    /// Confirms an offer. When the function returns, the lease is in the books.
    ///
    /// # Errors
    /// The offer has expired, or the books cannot be written.
    pub fn confirm(&mut self, conn: u64, request: &str, uid: u32, now: BootTime) -> Result<Lease, Refusal> {
        if let Some(held) = self.leases.values_mut().find(|held| held.lease.request == request) {
            if held.lease.holder.uid != uid {
                return Err(Refusal::refused("this request is another user's"));
            }
            held.conns.insert(conn);
            return Ok(held.lease.clone());
        }
        let late = Refusal::late;
        let place = self.queue.iter().position(|waiting| waiting.ask.request == request && waiting.conn == conn);
        let waiting = place.and_then(|place| self.queue.get(place)).ok_or_else(late)?;
        let Some((rigs, until)) = waiting.offer.clone() else { return Err(late()) };
        if until <= now {
            self.tick(now);
            return Err(late());
        }
        let ask = &waiting.ask;
        let longest = rigs.iter().filter_map(|rig| Some(self.rigs.get(rig)?.spec.longest())).min().unwrap_or(u64::MAX);
        let lease = Lease {
            id: uuid::Uuid::new_v4().simple().to_string(),
            request: request.to_owned(),
            rigs: rigs.clone(),
            holder: ask.holder.clone(),
            keeper: None,
            since: unix_seconds(),
            boot: self.boot.clone(),
            deadline: now.saturating_add(ask.ttl.min(longest)),
            idle: ask.idle,
            is_raw: ask.is_raw,
        };
        let log = Entry {
            at: lease.since,
            what: "granted".into(),
            rigs: rigs.clone(),
            lease: Some(lease.id.clone()),
            who: lease.holder.to_string(),
            why: String::new(),
        };
        if let Err(error) = self.write(&[Change::Lease(lease.clone()), Change::Log(log)]) {
            // Perhaps it was written after all.
            self.unwritten.push(Change::End(lease.id));
            self.withdraw(request);
            self.queue.retain(|waiting| waiting.ask.request != request);
            self.schedule(now);
            return Err(Refusal::refused(format!(
                "no rig is granted, since the agent cannot write its books: {error}"
            )));
        }
        self.queue.retain(|waiting| waiting.ask.request != request);
        for name in &rigs {
            if let Some(rig) = self.rigs.get_mut(name) {
                rig.state = State::Leased(lease.id.clone());
            }
        }
        self.heartbeats.begin(&lease, now);
        let held = Held { lease: lease.clone(), looks: now, conns: BTreeSet::from([conn]) };
        self.leases.insert(lease.id.clone(), held);
        self.schedule(now);
        Ok(lease)
    }

    /// Withdraws a request. A request of another user stays.
    pub fn cancel(&mut self, request: &str, uid: u32, now: BootTime) {
        if self.queue.iter().any(|waiting| waiting.ask.request == request && waiting.ask.holder.uid != uid) {
            return;
        }
        self.withdraw(request);
        self.queue.retain(|waiting| waiting.ask.request != request);
        self.schedule(now);
    }

    /// Makes another process of the same user the keeper of a lease. If the books were lost, `told`
    /// is the lease as that process knows it.
    ///
    /// # Errors
    /// The lease has ended.
    pub fn attach(
        &mut self,
        conn: u64,
        id: &str,
        keeper: Option<Process>,
        told: Option<Lease>,
        uid: u32,
        now: BootTime,
    ) -> Result<Lease, Refusal> {
        if !self.leases.contains_key(id) {
            let known = self.heartbeats.ended(id).is_some();
            let is_free = |lease: &Lease| {
                lease.rigs.iter().all(|name| self.rigs.get(name).is_none_or(|rig| rig.state == State::Idle))
            };
            let adopted = told.filter(|lease| {
                // Nobody else can have had a rig that is free since the start.
                self.has_lost_books && !known && lease.id == id && lease.boot == self.boot
            });
            if let Some(lease) = adopted.filter(|lease| is_free(lease) && lease.holder.uid == uid) {
                if let Err(error) = self.write(&[Change::Lease(lease.clone())]) {
                    return Err(Refusal::refused(format!("the agent cannot write its books: {error}")));
                }
                self.take_over(lease, now);
            }
        }
        let lease = self.usable(id, uid, now)?;
        let new = keeper.filter(|keeper| lease.keeper != Some(*keeper));
        let lease = Lease { keeper: new.or(lease.keeper), ..lease.clone() };
        if new.is_some()
            && let Err(error) = self.write(&[Change::Lease(lease.clone())])
        {
            return Err(Refusal::refused(format!("the agent cannot write its books: {error}")));
        }
        let Some(held) = self.leases.get_mut(id) else { return Err(self.over(id)) };
        if new.is_some() {
            held.lease.clone_from(&lease);
            // From now on it ends with this one.
            held.conns.clear();
        }
        held.conns.insert(conn);
        self.heartbeats.heard(id, now);
        Ok(lease)
    }

    /// Returns a lease if the user `uid` may use it now.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn usable(&self, id: &str, uid: u32, now: BootTime) -> Result<&Lease, Refusal> {
        match self.leases.get(id) {
            Some(held) if held.lease.holder.uid != uid => {
                Err(Refusal::refused(format!("the lease is {}'s", held.lease.holder)))
            }
            Some(held) if now < held.lease.deadline => Ok(&held.lease),
            Some(_) => Err(Refusal::refused("the time of the lease is over")),
            None => Err(self.over(id)),
        }
    }

    /// Records that the holder of the lease `id` was alive at the time `now`. Returns the latest
    /// time at which the lease ends. `uid` is the user who reports this.
    ///
    /// # Errors
    /// The lease has ended, or is another user's.
    pub fn renew(&mut self, id: &str, uid: u32, now: BootTime) -> Result<BootTime, Refusal> {
        self.usable(id, uid, now)?;
        self.heartbeats.renew(id, uid, now)
    }

    /// Returns the heartbeats of all leases. They can be used without the books.
    pub fn heartbeats(&self) -> Heartbeats {
        self.heartbeats.clone()
    }

    /// Why a lease is not there.
    fn over(&self, id: &str) -> Refusal {
        let ended = self.heartbeats.ended(id).or_else(|| {
            // An agent before this one may have ended it.
            let entries = self.books.log(LOOKED).unwrap_or_default().into_iter().rev();
            let mut ended = entries.filter(|entry| entry.what == ENDED && entry.lease.as_deref() == Some(id));
            ended.next().map(|Entry { at, who: by, why, .. }| Ended { by, why, at })
        });
        Refusal::refused(ended.map_or_else(|| "there is no such lease".to_owned(), |ended| ended.text()))
    }

    /// Writes changes, and what could not be written before.
    fn write(&mut self, changes: &[Change]) -> io::Result<()> {
        if self.unwritten.is_empty() {
            return self.books.write(changes);
        }
        let all = [&self.unwritten, changes].concat();
        self.books.write(&all)?;
        self.unwritten.clear();
        Ok(())
    }

    /// Writes changes that hold already. If that fails, they are written with the next.
    fn note(&mut self, changes: &[Change]) {
        let Err(error) = self.write(changes) else { return };
        eprintln!("rigline lab: the books cannot be written: {error}");
        for change in changes {
            if let Change::Rig(name, _) = change {
                self.unwritten.retain(|other| !matches!(other, Change::Rig(other, _) if other == name));
            }
            // What people are told of it is lost: it would grow without a limit.
            if !matches!(change, Change::Log(_)) {
                self.unwritten.push(change.clone());
            }
        }
    }

    /// Ends a lease. Its rigs are brought to their safe state, and then given to the next in the
    /// queue.
    pub fn end(&mut self, id: &str, why: &str, by: &str, now: BootTime) {
        let Some(Held { lease, conns, .. }) = self.leases.remove(id) else { return };
        let ended = Ended { by: by.to_owned(), why: why.to_owned(), at: unix_seconds() };
        // Before the disk is waited for.
        self.heartbeats.end(id, ended.clone());
        let log = Entry {
            at: ended.at,
            what: ENDED.into(),
            rigs: lease.rigs.clone(),
            lease: Some(lease.id.clone()),
            who: by.to_owned(),
            why: why.to_owned(),
        };
        // If it cannot be written now, it is before the next one is granted.
        self.note(&[Change::End(id.to_owned()), Change::Log(log)]);
        let params = json!({ "lease": id, "by": ended.by, "why": ended.why, "at": ended.at });
        for conn in conns {
            self.effects.push(Effect::Tell { conn, method: "ended", params: params.clone() });
        }
        self.effects.push(Effect::Close { lease: id.to_owned(), why: ended.text() });
        for name in &lease.rigs {
            if self.rigs.get(name).is_some_and(|rig| rig.state == State::Leased(id.to_owned())) {
                self.check(name, Some(Box::new(lease.clone())));
            }
        }
        self.schedule(now);
    }

    /// Ends the lease of a rig because a person asks for it. `by` is the name of the person, and
    /// `reason` is told to the holder. If `uid` is given, only a lease of this user is ended.
    ///
    /// # Errors
    /// The rig is not known, no lease has it, or another user's lease has it.
    pub fn break_lease(
        &mut self,
        name: &str,
        reason: &str,
        by: &str,
        uid: Option<u32>,
        now: BootTime,
    ) -> Result<(), Refusal> {
        match self.rig(name)?.state.clone() {
            State::Leased(id) => {
                if let (Some(uid), Some(held)) = (uid, self.leases.get(&id))
                    && held.lease.holder.uid != uid
                {
                    return Err(Refusal::refused(format!(
                        "{} has {name}, and only administrators of the lab end another user's lease",
                        held.lease.holder
                    )));
                }
                self.end(&id, reason, by, now);
                Ok(())
            }
            _ => Err(Refusal::refused(format!("nobody has {name}"))),
        }
    }

    /// Records that a connection has ended. Requests that waited on it are withdrawn. Leases of
    /// processes that have ended end too.
    pub fn disconnected(&mut self, conn: u64, now: BootTime) {
        let gone: Vec<String> = self
            .queue
            .iter()
            .filter(|waiting| waiting.conn == conn)
            .map(|waiting| waiting.ask.request.clone())
            .collect();
        for request in gone {
            self.withdraw(&request);
            self.queue.retain(|waiting| waiting.ask.request != request);
        }
        for held in self.leases.values_mut() {
            held.conns.remove(&conn);
        }
        self.sweep(now);
        self.schedule(now);
    }

    /// Ends the leases of processes that have closed their connections and have ended.
    fn sweep(&mut self, now: BootTime) {
        self.end_dead(|held| held.conns.is_empty(), now);
    }

    /// Ends those of some leases whose processes have ended. That the connection of such a process is closed too may be learnt later.
    fn end_dead(&mut self, is_meant: impl Fn(&Held) -> bool, now: BootTime) {
        let mut dead: Vec<String> = Vec::new();
        for held in self.leases.values_mut().filter(|held| is_meant(held)) {
            if held.lease.process().is_elsewhere() {
                // It is known by what it says, and its lease ends when it is silent.
                held.looks = BootTime::MAX;
            } else if held.lease.process().is_alive() {
                held.looks = now + LOOK;
            } else {
                dead.push(held.lease.id.clone());
            }
        }
        for id in dead {
            self.end(&id, "its holder has ended", "the agent", now);
        }
    }

    /// Records the result of a check: the manifest of the rig, or the reason why the check failed.
    pub fn record_check(&mut self, name: &str, found: Result<Option<String>, Fault>, now: BootTime) {
        let boot = self.boot.clone();
        let Some(rig) = self.rigs.get_mut(name) else { return };
        if rig.state != State::Checked {
            return;
        }
        rig.state = State::Idle;
        let before = rig.health.clone();
        let health = &mut rig.health;
        let mut what = None;
        match found {
            Ok(manifest) => {
                health.has_answered |= manifest.is_some();
                if manifest.is_some() {
                    health.manifest = manifest;
                }
                if health.reason.is_some() && health.returns() {
                    health.goods += 1;
                    health.due = now + AGAIN[0];
                    if health.goods >= GOOD || health.tries == 0 {
                        (health.reason, health.tries, health.goods) = (None, 0, 0);
                        what = Some(("free", "it answers again".to_owned()));
                    }
                }
            }
            Err(fault) => {
                let day = unix_seconds().saturating_sub(DAY);
                health.quarantined_at.retain(|at| *at > day);
                if health.reason.is_none() {
                    if matches!(fault, Fault::Bad(_)) {
                        health.quarantined_at.push(unix_seconds());
                    }
                    what = Some(("quarantined", fault.text().to_owned()));
                }
                health.goods = 0;
                if health.by.is_none() {
                    health.reason = Some(fault.text().to_owned());
                }
                if matches!(fault, Fault::Busy(_)) && health.tries == 0 {
                    // Nothing is known of the rig itself.
                    health.due = now + AGAIN[0];
                } else {
                    health.due = now + AGAIN.get(health.tries).or(AGAIN.last()).copied().unwrap_or_default();
                    health.tries += 1;
                }
                health.boot = boot;
            }
        }
        if *health != before {
            let mut changes = vec![Change::Rig(name.to_owned(), health.clone())];
            if let Some((what, why)) = what {
                changes.push(Change::Log(Entry {
                    at: unix_seconds(),
                    what: what.into(),
                    rigs: vec![name.to_owned()],
                    lease: None,
                    who: "the agent".into(),
                    why,
                }));
            }
            self.note(&changes);
        }
        self.schedule(now);
    }

    /// Returns the identity of the board that was last seen as this rig. Returns `None` if it is
    /// not known, or if the target names the board itself.
    pub fn board(&self, name: &str) -> Option<String> {
        self.rigs.get(name)?.health.board.clone()
    }

    /// Records the identity of the board that answered as this rig. It matters for a port whose
    /// name another board may get.
    pub fn identified(&mut self, name: &str, board: String) {
        let Some(rig) = self.rigs.get_mut(name).filter(|rig| rig.health.board.is_none()) else { return };
        rig.health.board = Some(board);
        let change = Change::Rig(name.to_owned(), rig.health.clone());
        self.note(&[change]);
    }

    /// Puts a rig into quarantine because a person asks for it. The lease of the rig goes on.
    /// Without a `reason`, the rig is taken out of quarantine.
    ///
    /// # Errors
    /// The rig is not known.
    pub fn quarantine(&mut self, name: &str, reason: Option<&str>, by: &str, now: BootTime) -> Result<(), Refusal> {
        self.rig(name)?;
        let Some(rig) = self.rigs.get_mut(name) else { return Ok(()) };
        let health = &mut rig.health;
        match reason {
            Some(reason) => (health.reason, health.by) = (Some(reason.to_owned()), Some(by.to_owned())),
            None => {
                (health.reason, health.by, health.tries, health.goods) = (None, None, 0, 0);
                health.quarantined_at.clear();
                // A person has put another board there, perhaps.
                health.board = None;
            }
        }
        let log = Entry {
            at: unix_seconds(),
            what: if reason.is_some() { "quarantined" } else { "free" }.into(),
            rigs: vec![name.to_owned()],
            lease: None,
            who: by.to_owned(),
            why: reason.unwrap_or_default().to_owned(),
        };
        let change = Change::Rig(name.to_owned(), health.clone());
        self.note(&[change, Change::Log(log)]);
        if reason.is_none() && self.rig(name)?.state == State::Idle {
            self.check(name, None);
        }
        self.schedule(now);
        Ok(())
    }

    /// Begins a check of one rig, or of all rigs. Rigs that a lease has are left out.
    ///
    /// # Errors
    /// The rig is not known.
    pub fn check_now(&mut self, name: Option<&str>) -> Result<(), Refusal> {
        let names: Vec<String> = match name {
            Some(name) => vec![self.rig(name).map(|rig| rig.spec.name.clone())?],
            None => self.rigs.values().filter(|rig| rig.is_listed).map(|rig| rig.spec.name.clone()).collect(),
        };
        for name in names {
            if self.rigs.get(&name).is_some_and(|rig| rig.state == State::Idle) {
                self.check(&name, None);
            }
        }
        Ok(())
    }

    /// Extends leases and offers that would end because the agent itself has stood still. It heard
    /// nobody in that time, so nobody loses a lease or an offer by it.
    pub fn spare(&mut self, now: BootTime) {
        self.heartbeats.spare(now);
        for waiting in &mut self.queue {
            if let Some((_, until)) = &mut waiting.offer
                && !waiting.is_spared
            {
                (*until, waiting.is_spared) = ((*until).max(now + CONFIRM), true);
            }
        }
    }

    /// Restarts the time of offers that no client was told yet, since a slow disk may have delayed
    /// them.
    pub fn freshen(&mut self, now: BootTime) {
        for effect in &mut self.effects {
            let Effect::Tell { method: "offer", params, .. } = effect else { continue };
            let request = params.get("request").and_then(Value::as_str).unwrap_or_default();
            let waiting = self.queue.iter_mut().find(|waiting| waiting.ask.request == request);
            if let Some((_, until)) = waiting.and_then(|waiting| waiting.offer.as_mut()) {
                *until = (*until).max(now + CONFIRM);
                params["until"] = (*until).into();
            }
        }
    }

    /// Does everything that is due at the time `now`: leases end, requests expire, and quarantined
    /// rigs are tried again.
    pub fn tick(&mut self, now: BootTime) {
        if now >= self.holds {
            self.holds = 0;
        }
        let over: Vec<(String, String)> = self
            .leases
            .values()
            .filter_map(|held| Some((held.lease.id.clone(), self.heartbeats.over(&held.lease, now)?)))
            .collect();
        for (id, why) in over {
            self.end(&id, &why, "the agent", now);
        }
        self.sweep(now);
        for place in 0..self.queue.len() {
            let Some(waiting) = self.queue.get_mut(place) else { break };
            if waiting.offer.as_ref().is_some_and(|(_, until)| *until <= now) {
                let request = waiting.ask.request.clone();
                waiting.offers += 1;
                // The next in the queue gets the rig meanwhile.
                waiting.rests = now + CONFIRM;
                self.withdraw(&request);
            }
        }
        let due: Vec<String> = self
            .rigs
            .values()
            .filter(|rig| rig.state == State::Idle && rig.health.reason.is_some() && rig.health.returns())
            .filter(|rig| rig.health.due <= now)
            .map(|rig| rig.spec.name.clone())
            .collect();
        for name in due {
            self.check(&name, None);
        }
        self.schedule(now);
    }

    /// Returns the time at which [`tick`](Self::tick) must be called next. Returns `None` if
    /// nothing is due.
    pub fn due(&self) -> Option<BootTime> {
        let leases = self.leases.values().map(|held| {
            let looks = if held.conns.is_empty() { held.looks } else { u64::MAX };
            self.heartbeats.due(&held.lease).min(looks)
        });
        let queue = self.queue.iter().map(|waiting| {
            let offer = waiting.offer.as_ref().map_or(u64::MAX, |(_, until)| *until);
            // One that rests is offered something after that.
            let rests = if waiting.offer.is_none() && waiting.rests > 0 { waiting.rests } else { u64::MAX };
            waiting.until.min(offer).min(rests)
        });
        let rigs = self.rigs.values().filter(|rig| rig.state == State::Idle);
        let rigs = rigs.filter(|rig| rig.health.reason.is_some() && rig.health.returns()).map(|rig| rig.health.due);
        let holds = if self.queue.is_empty() { None } else { Some(self.holds) };
        let due = leases.chain(queue).chain(rigs).chain(holds.filter(|holds| *holds > 0)).min();
        due.filter(|due| *due < u64::MAX)
    }

    /// Returns whether there are no leases, no requests and no checks, so that the agent may end.
    pub fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.queue.is_empty() && self.rigs.values().all(|rig| rig.state == State::Idle)
    }

    /// Returns inconsistencies of the state. There should be none: each rig is free, or has one
    /// lease whose holder lives.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut holders: HashMap<&str, &str> = HashMap::new();
        for Held { lease, .. } in self.leases.values() {
            for rig in &lease.rigs {
                if let Some(other) = holders.insert(rig, &lease.id) {
                    faults.push(format!("{rig} has the leases {other} and {}", lease.id));
                }
                if self.rigs.get(rig).is_none_or(|rig| rig.state != State::Leased(lease.id.clone())) {
                    faults.push(format!("{rig} does not know of its lease {}", lease.id));
                }
            }
            if !lease.process().is_alive() {
                faults.push(format!("the holder of lease {} ({}) has ended", lease.id, lease.holder));
            }
        }
        for rig in self.rigs.values() {
            match &rig.state {
                State::Leased(id) if !self.leases.contains_key(id) => {
                    faults.push(format!("{} has the lease {id}, which is not there", rig.spec.name));
                }
                State::Offered(request) if !self.queue.iter().any(|waiting| waiting.ask.request == *request) => {
                    faults.push(format!("{} is offered to nobody", rig.spec.name));
                }
                _ => {}
            }
        }
        faults
    }

    /// Returns the state of the rigs and the queue as JSON, for `rigline lab status`. If `name` is
    /// given, only of that rig.
    pub fn status(&self, name: Option<&str>, now: BootTime) -> Result<Value, Refusal> {
        if let Some(name) = name {
            self.rig(name)?;
        }
        let is_meant = |rig: &&Rig| match name {
            Some(name) => rig.spec.name == name,
            None => rig.is_listed || rig.is_in_use(),
        };
        let rigs: Vec<Value> = self.rigs.values().filter(is_meant).map(|rig| self.rig_json(rig, now)).collect();
        let queue: Vec<Value> = self
            .queue
            .iter()
            .filter(|waiting| {
                name.is_none_or(|name| self.candidates(&waiting.ask.selectors).iter().any(|rig| rig == name))
            })
            .enumerate()
            .map(|(place, waiting)| {
                json!({
                    "place": place + 1,
                    "who": waiting.ask.holder.to_string(),
                    "user": waiting.ask.holder.user,
                    "pid": waiting.ask.holder.process.pid,
                    "wants": waiting.ask.selectors.iter().map(ToString::to_string).collect::<Vec<_>>(),
                    "count": waiting.ask.count,
                    "request": waiting.ask.request,
                })
            })
            .collect();
        Ok(json!({ "rigs": rigs, "queue": queue, "faults": self.faults() }))
    }

    fn rig_json(&self, rig: &Rig, now: BootTime) -> Value {
        let lease = match &rig.state {
            State::Leased(id) => self.leases.get(id).map(|held| {
                json!({
                    "id": id,
                    "holder": held.lease.holder.to_string(),
                    "user": held.lease.holder.user,
                    "pid": held.lease.holder.process.pid,
                    "since": held.lease.since,
                    "ends_in_ms": held.lease.deadline.saturating_sub(now),
                    "rigs": held.lease.rigs,
                })
            }),
            _ => None,
        };
        json!({
            "name": rig.spec.name,
            "target": rig.spec.target,
            "tags": rig.spec.tags,
            "shares": rig.spec.shares,
            "listed": rig.is_listed,
            "state": rig.word(),
            "lease": lease,
            "manifest": rig.health.manifest,
            "reason": rig.health.reason,
            "by": rig.health.by,
            "flapping": rig.health.is_flapping(),
            "next_check_in_ms": (rig.health.reason.is_some() && rig.health.returns())
                .then(|| rig.health.due.saturating_sub(now)),
        })
    }

    /// Returns the last 200 entries of the log. If `name` is given, only those about that rig.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn log(&self, name: Option<&str>) -> Result<Value, Refusal> {
        let entries = self.books.log(usize::MAX).map_err(|error| Refusal::refused(error.to_string()))?;
        let is_meant = |entry: &Entry| name.is_none_or(|name| entry.rigs.iter().any(|rig| rig == name));
        let entries: Vec<Entry> = entries.into_iter().filter(is_meant).collect();
        let from = entries.len().saturating_sub(200);
        Ok(json!(entries.get(from..)))
    }

    fn rig(&self, name: &str) -> Result<&Rig, Refusal> {
        self.rigs.get(name).ok_or_else(|| {
            let listed = self.rigs.values().filter(|rig| rig.is_listed || rig.is_in_use()).map(|rig| &rig.spec);
            Refusal::usage(Selector::Name(name.to_owned()).nothing(listed))
        })
    }

    /// The names of the rigs that are meant.
    fn candidates(&self, selectors: &[Selector]) -> Vec<String> {
        self.rigs.values().filter(|rig| is_meant(rig, selectors)).map(|rig| rig.spec.name.clone()).collect()
    }

    /// Returns the names of the requests that wait for one of these rigs.
    pub fn waiting_for(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let is_one = |waiting: &&Waiting| {
            let rigs = self.rigs.values().filter(|rig| names.contains(&rig.spec.name));
            rigs.into_iter().any(|rig| is_meant(rig, &waiting.ask.selectors))
        };
        self.queue.iter().filter(is_one).map(|waiting| waiting.ask.request.clone()).collect()
    }

    /// Takes an offer back.
    fn withdraw(&mut self, request: &str) {
        for rig in self.rigs.values_mut() {
            if rig.state == State::Offered(request.to_owned()) {
                rig.state = State::Idle;
            }
        }
        for waiting in self.queue.iter_mut().filter(|waiting| waiting.ask.request == request) {
            waiting.offer = None;
        }
    }

    fn check(&mut self, name: &str, lease: Option<Box<Lease>>) {
        let Some(rig) = self.rigs.get_mut(name) else { return };
        rig.state = State::Checked;
        // A board that was never asked need not speak: what its users flash is their affair.
        // Each time that it is tried again, a few times: what does not help then, does not help.
        let is_recovered = rig.health.reason.is_some()
            && rig.health.returns()
            && (1..=RECOVERIES).contains(&rig.health.tries)
            && rig.health.goods == 0;
        let is_raw_and_unknown = lease.as_ref().is_some_and(|lease| lease.is_raw) && !rig.health.has_answered;
        self.effects.push(Effect::Check {
            rig: name.to_owned(),
            target: rig.spec.target.clone(),
            asks: rig.spec.check && !is_raw_and_unknown,
            recover: if is_recovered { rig.spec.recover.clone() } else { Vec::new() },
            board: rig.health.board.clone(),
            lease,
        });
    }

    /// Offers what is free to those who wait, in their order. What a place in front waits for is not given to one behind it, but as
    /// many rigs as it needs only.
    fn schedule(&mut self, now: BootTime) {
        if self.holds > now {
            self.tell_places(now);
            return;
        }
        let mut reserved: BTreeSet<String> = BTreeSet::new();
        let mut to_check: Vec<String> = Vec::new();
        let mut refused: Vec<(String, Refusal)> = Vec::new();
        for place in 0..self.queue.len() {
            let Some(waiting) = self.queue.get(place) else { break };
            if waiting.offer.is_some() {
                continue;
            }
            let (request, count, is_raw) = (waiting.ask.request.clone(), waiting.ask.count, waiting.ask.is_raw);
            let candidates = self.candidates(&waiting.ask.selectors);
            if let Some(refusal) = self.refusal(waiting, &candidates, now) {
                refused.push((request, refusal));
                continue;
            }
            if waiting.rests > now {
                continue;
            }
            let mut chosen: Vec<String> = Vec::new();
            for name in &candidates {
                if chosen.len() < count && !reserved.contains(name) && self.is_free(name, &chosen, &reserved) {
                    chosen.push(name.clone());
                }
            }
            let unknown = |name: &&String| {
                let rig = self.rigs.get(*name);
                rig.is_some_and(|rig| rig.spec.check && !rig.health.has_answered && !is_raw)
            };
            let unknown: Vec<String> = chosen.iter().filter(unknown).cloned().collect();
            if chosen.len() < count || !unknown.is_empty() {
                to_check.extend(unknown);
                reserved.extend(chosen);
                continue;
            }
            for name in &chosen {
                if let Some(rig) = self.rigs.get_mut(name) {
                    rig.state = State::Offered(request.clone());
                }
            }
            let until = now + CONFIRM;
            if let Some(waiting) = self.queue.get_mut(place) {
                waiting.offer = Some((chosen.clone(), until));
                (waiting.is_spared, waiting.told) = (false, None);
                let params = json!({ "request": request, "rigs": chosen, "until": until });
                self.effects.push(Effect::Tell { conn: waiting.conn, method: "offer", params });
            }
        }
        for name in to_check {
            if self.rigs.get(&name).is_some_and(|rig| rig.state == State::Idle) {
                self.check(&name, None);
            }
        }
        for (request, Refusal { code, why }) in refused {
            let conn = self.queue.iter().find(|waiting| waiting.ask.request == request).map(|waiting| waiting.conn);
            self.queue.retain(|waiting| waiting.ask.request != request);
            if let Some(conn) = conn {
                let params = json!({ "request": request, "code": code, "why": why });
                self.effects.push(Effect::Tell { conn, method: "refused", params });
            }
        }
        self.tell_places(now);
    }

    /// Whether a rig can be offered together with those that are chosen already.
    fn is_free(&self, name: &str, chosen: &[String], reserved: &BTreeSet<String>) -> bool {
        let Some(rig) = self.rigs.get(name) else { return false };
        rig.state == State::Idle
            && rig.health.reason.is_none()
            && !rig.spec.parts().any(|part| {
                self.rigs.values().any(|other| {
                    let other_name = &other.spec.name;
                    let is_used = other.state != State::Idle || reserved.contains(other_name);
                    other_name != name
                        && !chosen.contains(other_name)
                        && is_used
                        && other.spec.parts().any(|its| its == part)
                })
            })
    }

    /// Why one that waits cannot go on waiting.
    fn refusal(&self, waiting: &Waiting, candidates: &[String], now: BootTime) -> Option<Refusal> {
        let ask = &waiting.ask;
        let wanted = ask.selectors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        if waiting.offers >= OFFERS {
            let why = format!("{wanted} was offered {OFFERS} times, and none of the offers was confirmed");
            return Some(Refusal::refused(why));
        }
        let rigs = || candidates.iter().filter_map(|name| self.rigs.get(name));
        let each = || rigs().map(|rig| self.why_not(rig, now)).collect::<Vec<_>>().join("; ");
        if waiting.until <= now {
            return Some(Refusal::timeout(format!("the wait for {wanted} is over: {}", each())));
        }
        // What does not come back by itself is not waited for.
        let hopeful = rigs().filter(|rig| rig.health.reason.is_none() || rig.health.returns()).count();
        if hopeful < ask.count {
            return Some(Refusal::refused(format!("{wanted} cannot be had: {}", each())));
        }
        if ask.wait.is_none() && waiting.rests <= now {
            // What is only being made ready is not waited for long.
            let soon = rigs().filter(|rig| {
                rig.health.reason.is_none() && matches!(rig.state, State::Idle | State::Checked) && {
                    let shared = rig.spec.parts().any(|part| {
                        self.rigs.values().any(|other| {
                            other.spec.name != rig.spec.name
                                && matches!(other.state, State::Leased(_) | State::Offered(_))
                                && other.spec.parts().any(|its| its == part)
                        })
                    });
                    !shared
                }
            });
            let ahead = self.queue.iter().take_while(|other| other.order != waiting.order).filter(|other| {
                other.offer.is_none()
                    && self.candidates(&other.ask.selectors).iter().any(|name| candidates.contains(name))
            });
            if soon.count() < ask.count + ahead.map(|other| other.ask.count).sum::<usize>() {
                return Some(Refusal::refused(format!(
                    "{wanted} cannot be had now: {}; --wait 10m waits for it",
                    each()
                )));
            }
        }
        None
    }

    fn why_not(&self, rig: &Rig, now: BootTime) -> String {
        let name = &rig.spec.name;
        match (&rig.health.reason, &rig.state) {
            (Some(reason), _) => {
                let until = if rig.health.is_flapping() {
                    format!(
                        "; it was there more than {FLAPPING} times in a day, and stays until `rigline lab quarantine {name} --clear`"
                    )
                } else if let Some(by) = &rig.health.by {
                    format!("; {by} has put it there")
                } else {
                    format!("; it is tried again in {}", seconds(rig.health.due.saturating_sub(now)))
                };
                format!("{name} is in quarantine ({reason}{until})")
            }
            (None, State::Leased(id)) => match self.leases.get(id) {
                Some(held) => format!(
                    "{} has {name} for {} more at most",
                    held.lease.holder,
                    seconds(held.lease.deadline.saturating_sub(now))
                ),
                None => format!("{name} has a lease"),
            },
            (None, State::Offered(request)) => {
                let who = self.queue.iter().find(|waiting| waiting.ask.request == *request);
                format!("{name} is offered to {}", who.map(|who| who.ask.holder.to_string()).unwrap_or_default())
            }
            (None, State::Checked) => format!("{name} is being made safe"),
            (None, State::Idle) if rig.spec.check && !rig.health.has_answered => {
                format!("{name} has not been asked yet")
            }
            (None, State::Idle) => {
                format!("{name} is kept for another one who waits, or shares a part with one that is in use")
            }
        }
    }

    /// Tells those who wait where they are, when that has changed.
    fn tell_places(&mut self, now: BootTime) {
        let words: Vec<&'static str> = self.rigs.values().map(Rig::word).collect();
        let mut groups: Vec<Group> = Vec::new();
        let mut news: Vec<(usize, usize, usize)> = Vec::new();
        for (number, waiting) in self.queue.iter().enumerate() {
            let rigs = self.rigs.values().enumerate().filter(|(_, rig)| is_meant(rig, &waiting.ask.selectors));
            let rigs: Vec<usize> = rigs.map(|(rig, _)| rig).collect();
            let is_ahead = |group: &&Group| group.rigs.iter().any(|rig| rigs.binary_search(rig).is_ok());
            let place = groups.iter().filter(is_ahead).map(|group| group.count).sum::<usize>() + 1;
            let group = groups.iter().position(|group| group.rigs == rigs).unwrap_or_else(|| {
                let states = rigs.iter().filter_map(|rig| words.get(*rig).copied()).collect();
                groups.push(Group { rigs, count: 0, states, why: None });
                groups.len() - 1
            });
            let Some(of) = groups.get_mut(group) else { break };
            of.count += 1;
            let is_known = waiting.told.as_ref().is_some_and(|(told, states)| *told == place && *states == of.states);
            if waiting.offer.is_none() && !is_known {
                news.push((number, place, group));
            }
        }
        for (number, place, group) in news {
            let Some(group) = groups.get_mut(group) else { break };
            let why = group.why.get_or_insert_with(|| {
                let all: Vec<&Rig> = self.rigs.values().collect();
                let rigs = group.rigs.iter().filter_map(|rig| all.get(*rig));
                rigs.map(|rig| self.why_not(rig, now)).collect::<Vec<_>>().join("; ")
            });
            let Some(waiting) = self.queue.get_mut(number) else { break };
            let params = json!({ "request": waiting.ask.request, "place": place, "why": why });
            self.effects.push(Effect::Tell { conn: waiting.conn, method: "place", params });
            waiting.told = Some((place, group.states.clone()));
        }
    }
}

/// Whether a rig is one that is wanted: of the list, or named as it is.
fn is_meant(rig: &Rig, selectors: &[Selector]) -> bool {
    selectors.iter().any(|selector| match selector {
        Selector::Name(name) | Selector::Target(name) => rig.spec.name == *name,
        Selector::Tags(_) => rig.is_listed && selector.fits(&rig.spec),
    })
}

impl Rig {
    fn new(spec: Spec) -> Self {
        Self { spec, is_listed: false, state: State::Idle, health: Health::default() }
    }

    fn unlisted(target: &str) -> Self {
        Self::new(Spec::unlisted(target))
    }

    fn is_in_use(&self) -> bool {
        self.state != State::Idle || self.health.reason.is_some()
    }

    fn word(&self) -> &'static str {
        match (&self.state, &self.health.reason) {
            (State::Leased(_), _) => "leased",
            (State::Offered(_), _) => "offered",
            (State::Checked, _) => "checked",
            (State::Idle, Some(_)) => "quarantine",
            (State::Idle, None) => "free",
        }
    }
}

/// Returns a time in milliseconds in words, such as `5 min`.
pub fn seconds(millis: u64) -> String {
    match millis.div_ceil(1000) {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Returns the time of day (UTC) of a time in seconds since 1970, such as `17:05:00Z`.
pub fn time_of_day(wall: u64) -> String {
    format!("{:02}:{:02}:{:02}Z", wall / 3600 % 24, wall / 60 % 60, wall % 60)
}

#[cfg(test)]
#[path = "book/tests.rs"]
pub(crate) mod tests;
