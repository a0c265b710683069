//! The client of the agent.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::book::{LATE, Refusal, SILENCE};
use crate::clock;
pub use crate::connection::{AgentError, AgentLocation, Connection, ON_DEMAND};
use crate::records::Lease;

/// How long the holder of a lease waits for an agent that lives and does not answer: nobody else can get the rig meanwhile.
const SLOW: u64 = 120_000;
/// How often the holder of a lease tells that it lives.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How soon the agent is asked again.
const AGAIN: Duration = Duration::from_millis(50);

/// How soon another host that did not answer is asked again.
const AWAY: Duration = Duration::from_millis(250);

/// The parameters of a request for rigs.
#[derive(Debug, Clone)]
pub struct Want {
    /// The selectors of the wanted rigs: `rig:NAME`, `rig:KEY=VALUE`, or a target.
    pub rigs: Vec<String>,
    /// The number of rigs. All of them are granted together, or none is.
    pub count: usize,
    /// The longest time in the queue. `None` means not to wait.
    pub wait: Option<Duration>,
    /// The longest duration of the lease.
    pub ttl: Duration,
    /// The time after which the lease ends if nothing is sent to its rigs. `None` means never.
    pub idle: Option<Duration>,
    /// Whether other programs than the agent open the ports.
    pub is_raw: bool,
    /// The purpose of the lease, for people.
    pub purpose: String,
}

/// A lease that was granted, with the targets of its rigs.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The granted lease.
    pub lease: Lease,
    /// The rigs of the lease, as pairs of name and target.
    pub targets: Vec<(String, String)>,
}

impl Granted {
    fn of(mut answer: Value) -> Option<Self> {
        let targets = answer.get("targets").and_then(Value::as_array).into_iter().flatten();
        let text = |target: &Value, name: &str| target.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let targets = targets.map(|target| (text(target, "name"), text(target, "target"))).collect();
        let lease = serde_json::from_value(answer.get_mut("lease")?.take()).ok()?;
        Some(Self { lease, targets })
    }
}

/// Gets a lease, and waits in the queue for it if need be. When its place changes, `tell` gets the
/// place in the queue, and the reason why the lease is not granted yet.
///
/// If the future is dropped, the place in the queue is lost.
///
/// # Errors
/// The request is refused, the longest time in the queue is over, or the agent does not answer.
pub async fn acquire(
    place: &AgentLocation,
    want: &Want,
    tell: impl FnMut(u64, &str),
) -> Result<(Connection, Granted), Refusal> {
    acquire_first(place, want, &First::default(), tell).await
}

/// Of several requests the one that is granted first: no other one confirms an offer.
#[derive(Debug, Default)]
pub(crate) struct First(tokio::sync::Mutex<bool>);

/// As [`acquire`], for one of several requests.
pub(crate) async fn acquire_first(
    place: &AgentLocation,
    want: &Want,
    first: &First,
    mut tell: impl FnMut(u64, &str),
) -> Result<(Connection, Granted), Refusal> {
    let request = uuid::Uuid::new_v4().simple().to_string();
    let started = Instant::now();
    let mut lost = String::new();
    loop {
        // What was waited for before a crash of the agent counts.
        if want.wait.is_some_and(|wait| !wait.is_zero() && wait <= started.elapsed()) {
            return Err(Refusal { code: 124, why: format!("the wait for {} is over{lost}", want.rigs.join(" ")) });
        }
        let wait = want.wait.map(|wait| clock::to_millis(wait.saturating_sub(started.elapsed())));
        let mut connection = match Connection::open(place).await {
            Ok(connection) => connection,
            // It lives, or the way to another host may be there again before the wait is over.
            Err(AgentError::Lost(error))
                if want.wait.is_some_and(|wait| !wait.is_zero())
                    && (place.remote.is_some() || error.kind() == io::ErrorKind::TimedOut) =>
            {
                lost = format!(": {error}");
                sleep(AWAY).await;
                continue;
            }
            Err(trouble) => return Err(trouble.into()),
        };
        let since = connection.there().now().saturating_sub(clock::to_millis(started.elapsed()));
        let ask = json!({
            "request": request, "rigs": want.rigs, "count": want.count, "wait": wait, "since": since,
            "ttl": clock::to_millis(want.ttl), "idle": want.idle.map_or(0, clock::to_millis),
            "is_raw": want.is_raw, "purpose": want.purpose,
        });
        match wait_for(&mut connection, &request, ask, first, &mut tell).await {
            Ok(granted) => return Ok((connection, granted)),
            Err(AgentError::Refused(refusal)) => return Err(refusal),
            // Its successor knows the request, or gives it its place again.
            Err(AgentError::Lost(_)) => sleep(AGAIN).await,
        }
    }
}

async fn wait_for(
    connection: &mut Connection,
    request: &str,
    ask: Value,
    first: &First,
    tell: &mut impl FnMut(u64, &str),
) -> Result<Granted, AgentError> {
    let of =
        |answer| Granted::of(answer).ok_or_else(|| AgentError::Lost(io::Error::other("it answers without a lease")));
    let answer = connection.ask("lock", ask).await?;
    if !answer.get("lease").is_none_or(Value::is_null) {
        *first.0.lock().await = true;
        return of(answer);
    }
    loop {
        let (method, params) = connection.event().await.map_err(AgentError::Lost)?;
        if params.get("request").and_then(Value::as_str) != Some(request) {
            continue;
        }
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match method.as_str() {
            "place" => tell(params.get("place").and_then(Value::as_u64).unwrap_or_default(), &text("why")),
            "offer" => {
                let mut is_granted = first.0.lock().await;
                if *is_granted {
                    return Err(AgentError::Refused(Refusal::refused("another host has granted the rig")));
                }
                match connection.ask("confirm", json!({ "request": request })).await {
                    Ok(answer) => {
                        *is_granted = true;
                        return of(answer);
                    }
                    Err(AgentError::Refused(Refusal { code: LATE, .. })) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            "refused" => {
                let code = params.get("code").and_then(Value::as_u64).and_then(|code| u8::try_from(code).ok());
                return Err(AgentError::Refused(Refusal { code: code.unwrap_or(3), why: text("why") }));
            }
            _ => {}
        }
    }
}

/// Takes over or joins a lease of this user. If `keeps` is set, this process becomes its keeper,
/// and the lease ends with it. Otherwise the present keeper stays.
///
/// # Errors
/// The lease has ended, or the agent does not answer.
pub async fn attach(place: &AgentLocation, lease: &str, keeps: bool) -> Result<(Connection, Granted), Refusal> {
    let given_up = Instant::now() + Duration::from_millis(SILENCE);
    let (connection, answer) = loop {
        let asked = async {
            let mut connection = Connection::open(place).await?;
            let answer = connection.ask("attach", json!({ "lease": lease, "keeps": keeps, "told": null })).await?;
            Ok((connection, answer))
        };
        match asked.await {
            Ok(asked) => break asked,
            // The agent was killed meanwhile: its successor knows the lease.
            Err(AgentError::Lost(_)) if Instant::now() < given_up => sleep(AGAIN).await,
            Err(trouble) => return Err(trouble.into()),
        }
    };
    let granted = Granted::of(answer).ok_or_else(|| Refusal::refused("the agent answers without a lease"))?;
    Ok((connection, granted))
}

/// Keeps a lease alive by regular signs of life. It returns when the lease is lost, with the
/// reason.
pub async fn keep(place: &AgentLocation, connection: Connection, lease: &Lease, keeps: bool) -> Refusal {
    let mut connection = Some(connection);
    let mut lost_since = None;
    loop {
        match connection.take() {
            Some(mut open) => match beat(&mut open, lease).await {
                Ok(()) => connection = Some(open),
                Err(AgentError::Refused(refusal)) => return refusal,
                Err(AgentError::Lost(_)) => {}
            },
            None => {
                let since = *lost_since.get_or_insert_with(clock::now);
                let again = async {
                    let mut open = Connection::open(place).await?;
                    open.ask("attach", json!({ "lease": lease.id, "keeps": keeps, "told": lease })).await?;
                    Ok(open)
                };
                match again.await {
                    Ok(open) => (connection, lost_since) = (Some(open), None),
                    Err(AgentError::Refused(refusal)) => return refusal,
                    Err(AgentError::Lost(error)) => {
                        let patience = if error.kind() == io::ErrorKind::TimedOut { SLOW } else { SILENCE };
                        if clock::now() >= since.saturating_add(patience) {
                            return Refusal::refused(format!("the lease is lost, since no agent answers: {error}"));
                        }
                        sleep(AGAIN).await;
                    }
                }
            }
        }
    }
}

/// Listens for the lease's end, and then says that its holder lives.
async fn beat(open: &mut Connection, lease: &Lease) -> Result<(), AgentError> {
    let next = Instant::now() + HEARTBEAT;
    loop {
        match tokio::time::timeout_at(next, open.event()).await {
            Err(_) => break,
            Ok(Err(error)) => return Err(AgentError::Lost(error)),
            Ok(Ok((method, params))) if method == "ended" => {
                let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
                if text("lease") == lease.id {
                    let at = params.get("at").and_then(Value::as_u64).unwrap_or_default();
                    let at = crate::book::time_of_day(at);
                    let why = format!("the lease was ended by {} at {at}: {}", text("by"), text("why"));
                    return Err(AgentError::Refused(Refusal::refused(why)));
                }
            }
            Ok(Ok(_)) => {}
        }
    }
    open.ask("renew", json!({ "lease": lease.id })).await.map(drop)
}

/// Gives a lease back.
///
/// # Errors
/// The lease has ended already, or the agent does not answer.
pub async fn release(place: &AgentLocation, lease: &str) -> Result<(), Refusal> {
    let given_up = Instant::now() + Duration::from_millis(SILENCE);
    let mut was_lost = false;
    loop {
        let asked = async { Connection::open(place).await?.ask("release", json!({ "lease": lease })).await };
        match asked.await {
            Ok(_) => return Ok(()),
            // The agent was killed before it answered: it had ended the lease, or its successor does.
            Err(AgentError::Refused(_)) if was_lost => return Ok(()),
            Err(AgentError::Lost(_)) if Instant::now() < given_up => was_lost = true,
            Err(trouble) => return Err(trouble.into()),
        }
        sleep(AGAIN).await;
    }
}
