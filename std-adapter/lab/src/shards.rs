//! Several rigs for one command. It gets all of them or none, for as long as it runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline_std::mutex::lock;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::book::Refusal;
use crate::client::{self, Granted, Want};
use crate::connection::{AgentLocation, Connection};
use crate::dial;
use crate::hosts::{HERE, Hosts, split};
use crate::rigs::Selector;

/// The longest duration of a lease for one command: 24 hours.
pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A request for several rigs.
#[derive(Debug, Clone, Copy)]
pub struct RigRequest<'a> {
    /// The selector of the rigs: a name or tags, with or without `rig:`.
    pub selector: &'a str,
    /// The number of rigs. All of them are granted together, or none is.
    pub count: usize,
    /// The longest time to wait for the rigs. Zero means not to wait.
    pub wait: Duration,
    /// The longest duration of the lease.
    pub ttl: Duration,
    /// The purpose of the lease, for people.
    pub purpose: &'a str,
}

/// Rigs that this process has. Its targets `rig:NAME` join their lease.
pub struct Shards {
    targets: Vec<String>,
    own: Vec<Own>,
}

/// The rigs of one host.
struct Own {
    place: AgentLocation,
    lease: String,
    lost: Arc<Mutex<Option<String>>>,
    keeping: JoinHandle<()>,
}

impl Shards {
    /// Takes rigs: those of the lease that this process runs within, if that has so many, and otherwise by leases of its own. `tell` gets the
    /// place in the queue. Rigs of several hosts are taken one host after the other, and are given back if not all can be had.
    ///
    /// # Errors
    /// There are not so many, they are not free within `wait`, or the agent does not answer.
    pub async fn take(hosts: &Hosts, asked: &RigRequest<'_>, mut tell: impl FnMut(u64, &str)) -> Result<Self, Refusal> {
        let RigRequest { selector, count, wait, ttl, purpose } = *asked;
        let selector = format!("rig:{}", selector.strip_prefix("rig:").unwrap_or(selector));
        let (host, rest) = split(&selector);
        rest.parse::<Selector>().map_err(Refusal::usage)?;
        if let Some((place, _, rigs)) = dial::join(hosts, Some(&selector)).await?
            && rigs.len() >= count
        {
            let targets = rigs.iter().take(count).map(|rig| format!("rig:{}", place.named(rig)));
            return Ok(Self { targets: targets.collect(), own: Vec::new() });
        }
        let want = Want {
            rigs: vec![selector.clone()],
            count,
            wait: (!wait.is_zero()).then_some(wait),
            ttl,
            idle: None,
            is_raw: false,
            purpose: purpose.to_owned(),
        };
        let mut taken = Self { targets: Vec::new(), own: Vec::new() };
        if count == 1 || host.is_some() || hosts.is_alone() {
            let (place, connection, granted) = hosts.acquire(&want, tell).await?;
            taken.add(place, connection, granted);
        } else {
            let started = Instant::now();
            for (place, count) in hosts.spread(&rest, count).await? {
                let left = want.wait.map(|wait| wait.saturating_sub(started.elapsed()).max(Duration::from_millis(1)));
                let want = Want { rigs: vec![rest.clone()], count, wait: left, ..want.clone() };
                let name = place.host().unwrap_or(HERE).to_owned();
                let tell = |place: u64, why: &str| tell(place, &format!("on {name}: {why}"));
                match client::acquire(&place, &want, tell).await {
                    Ok((connection, granted)) => taken.add(place, connection, granted),
                    Err(refusal) => {
                        taken.give_back().await;
                        return Err(refusal);
                    }
                }
            }
        }
        dial::within(taken.own.iter().map(|own| own.place.named(&own.lease)).collect());
        Ok(taken)
    }

    fn add(&mut self, place: AgentLocation, connection: Connection, granted: Granted) {
        let rigs = granted.lease.rigs.iter();
        // Without other hosts a name is enough.
        self.targets.extend(rigs.map(|rig| format!("rig:{}", place.named(rig))));
        let lost = Arc::new(Mutex::new(None));
        let (lease, told, at) = (granted.lease.id.clone(), Arc::clone(&lost), place.clone());
        let keeping = tokio::spawn(async move {
            let why = client::keep(&at, connection, &granted.lease, false).await;
            *lock(&told) = Some(why.why);
        });
        self.own.push(Own { place, lease, lost, keeping });
    }

    /// The targets of the rigs.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// The first lease, if it is one of its own, with its host in front if that is another one.
    pub fn lease(&self) -> Option<String> {
        self.own.first().map(|own| own.place.named(&own.lease))
    }

    /// The reason why rigs were lost; none if this process still has all of them.
    pub fn lost(&self) -> Option<String> {
        self.own.iter().find_map(|own| lock(&own.lost).clone())
    }

    /// Gives the rigs back. Returns the reason why they were lost before, if they were.
    pub async fn give_back(self) -> Option<String> {
        if self.own.is_empty() {
            return None;
        }
        dial::within(Vec::new());
        let mut whys = Vec::new();
        for Own { place, lease, lost, keeping } in self.own {
            keeping.abort();
            let lost = lock(&lost).clone();
            match lost {
                Some(why) => whys.push(why),
                None => whys.extend(client::release(&place, &lease).await.err().map(|refusal| refusal.why)),
            }
        }
        (!whys.is_empty()).then(|| whys.join("; "))
    }
}
