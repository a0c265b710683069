//! Several rigs for one command. It gets all of them or none, for as long as it runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline_std::mutex::lock;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::book::Refusal;
use crate::client::{self, AgentLocation, Connection, Want};
use crate::dial;
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
    own: Option<Own>,
}

struct Own {
    place: AgentLocation,
    lease: String,
    lost: Arc<Mutex<Option<String>>>,
    keeping: JoinHandle<()>,
}

impl Shards {
    /// Gets rigs. If this process runs within a lease that has enough rigs, it takes those;
    /// otherwise it gets a lease of its own. `tell` gets the place in the queue and the reason of
    /// the wait.
    ///
    /// # Errors
    /// There are not enough rigs, they are not free within `wait`, or the agent does not answer.
    pub async fn take(
        place: &AgentLocation,
        asked: &RigRequest<'_>,
        tell: impl FnMut(u64, &str),
    ) -> Result<Self, Refusal> {
        let RigRequest { selector, count, wait, ttl, purpose } = *asked;
        let selector = format!("rig:{}", selector.strip_prefix("rig:").unwrap_or(selector));
        selector.parse::<Selector>().map_err(Refusal::usage)?;
        if let Some(lease) = dial::joined() {
            let mut agent = Connection::open(place).await?;
            let joined = agent.ask("join", json!({ "lease": lease, "selector": selector })).await?;
            let rigs: Vec<&str> =
                joined.get("rigs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
            if rigs.len() >= count {
                return Ok(Self {
                    targets: rigs.iter().take(count).map(|rig| format!("rig:{rig}")).collect(),
                    own: None,
                });
            }
        }
        let want = Want {
            rigs: vec![selector],
            count,
            wait: (!wait.is_zero()).then_some(wait),
            ttl,
            idle: None,
            is_raw: false,
            purpose: purpose.to_owned(),
        };
        let (connection, granted) = client::acquire(place, &want, tell).await?;
        let targets = granted.lease.rigs.iter().map(|rig| format!("rig:{rig}")).collect();
        dial::within(Some(granted.lease.id.clone()));
        let lost = Arc::new(Mutex::new(None));
        let (id, told, at) = (granted.lease.id.clone(), Arc::clone(&lost), place.clone());
        let keeping = tokio::spawn(async move {
            let why = client::keep(&at, connection, &granted.lease, false).await;
            *lock(&told) = Some(why.why);
        });
        Ok(Self { targets, own: Some(Own { place: place.clone(), lease: id, lost, keeping }) })
    }

    /// The targets of the rigs.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// The id of the lease, if this process has got one of its own.
    pub fn lease(&self) -> Option<&str> {
        self.own.as_ref().map(|own| own.lease.as_str())
    }

    /// The reason why the rigs were lost; none if this process still has them.
    pub fn lost(&self) -> Option<String> {
        self.own.as_ref().and_then(|own| lock(&own.lost).clone())
    }

    /// Gives the rigs back. Returns the reason why they were lost before, if they were.
    pub async fn give_back(self) -> Option<String> {
        let Own { place, lease, lost, keeping } = self.own?;
        dial::within(None);
        keeping.abort();
        let lost = lock(&lost).clone();
        match lost {
            Some(why) => Some(why),
            None => client::release(&place, &lease).await.err().map(|refusal| refusal.why),
        }
    }
}
