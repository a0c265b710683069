//! The lab as tools: which rigs there are, and a lease for the time in which an agent needs its rig.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rigline_host::Manifest;
use rigline_host::client::Described;
use rigline_host::relay::{OnTargetNews, Remote, TargetNews};
use rigline_lab::book::Refusal;
use rigline_lab::client::{self, Connection};
use rigline_lab::dial;
use rigline_lab::hosts::{HERE, Hosts, split};
use rigline_lab::shards::{RigRequest, Shards};
use rigline_std::mutex::lock;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::gate::{OwnTools, Tell, ToolDone};

const LIST: &str = "lab_list";
const LEASE: &str = "lease";
const RELEASE: &str = "release";
/// How long a lease lasts if the agent does not say it.
const TTL: u64 = 30 * 60;
/// The longest time of a lease, and the longest wait for it.
const LONGEST: u64 = 24 * 60 * 60;

/// The description of a lab of which no rig is chosen: it has no tools of its own.
pub(crate) fn nothing_chosen() -> Described {
    let text = json!({
        "name": "lab",
        "version": env!("CARGO_PKG_VERSION"),
        "protocolVersion": "0.0.1",
        "description": "The rigs of the lab. The tool lab_list shows them, and lease takes one. Its tools are there then, until release.",
        "operations": {},
    });
    let manifest = Manifest::read(&text.to_string()).unwrap_or_else(|error| unreachable!("{error}"));
    Described { text: manifest.text.clone(), manifest, kind: None, has_typed_outputs: true }
}

/// The lab's tools for one target, or for the rig that the agent chooses.
pub(crate) struct Rigs {
    hosts: Hosts,
    /// The target without `rig:`; none if the agent chooses.
    selector: Option<String>,
    relay: OnceLock<(Remote, OnTargetNews)>,
    runtime: Runtime,
    held: Mutex<Option<Shards>>,
}

impl fmt::Debug for Rigs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rigs").field("selector", &self.selector).finish_non_exhaustive()
    }
}

impl Rigs {
    /// `selector` is the target without `rig:`, and there is none if the agent chooses.
    pub(crate) fn new(hosts: Hosts, selector: Option<&str>) -> std::io::Result<Self> {
        // An agent may forget the rig that a call has taken.
        dial::end_idle_leases(Duration::from_secs(TTL));
        // The lease is kept here, whatever the others of this process do.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let selector = selector.map(str::to_owned);
        Ok(Self { hosts, selector, relay: OnceLock::new(), runtime, held: Mutex::default() })
    }

    /// The relay whose connection the lease is for, and who is told of its tools.
    pub(crate) fn set_relay(&self, relay: Remote, told: OnTargetNews) {
        let _ = self.relay.set((relay, told));
    }

    /// Whether the agent chooses the rig.
    pub(crate) fn is_chosen(&self) -> bool {
        self.selector.is_none()
    }

    async fn answer(&self, tool: &str, arguments: &Value, tell: &Tell) -> Result<(String, Value), String> {
        match tool {
            LIST => self.list(arguments).await,
            LEASE => self.lease(arguments, tell).await,
            _ => Ok(self.release().await),
        }
    }

    async fn list(&self, arguments: &Value) -> Result<(String, Value), String> {
        let selector = arguments["selector"].as_str().unwrap_or_default();
        let selector = match selector.strip_prefix("rig:").unwrap_or(selector) {
            "" => String::new(),
            rig => format!("rig:{rig}"),
        };
        let found = crate::lab::select(&selector).await.map_err(|failure| failure.text)?;
        let own = self.own().map(|(lease, _)| lease);
        let rigs: Vec<Value> =
            found["rigs"].as_array().into_iter().flatten().map(|rig| of_rig(rig, own.as_deref())).collect();
        let lines: Vec<String> = rigs.iter().map(line).collect();
        let waiting = found["queue"].as_array().map_or(0, Vec::len);
        Ok((lines.join("\n"), json!({ "rigs": rigs, "waiting": waiting })))
    }

    /// The lease that this server has, with its rig.
    fn own(&self) -> Option<(String, String)> {
        let held = lock(&self.held).as_ref().filter(|held| held.lost().is_none()).and_then(|held| {
            let rig = held.targets().first()?.strip_prefix("rig:")?.to_owned();
            Some((held.lease()?, rig))
        });
        held.or_else(dial::current_lease)
    }

    async fn lease(&self, arguments: &Value, tell: &Tell) -> Result<(String, Value), String> {
        let number = |name: &str, default: u64| match &arguments[name] {
            Value::Null => Ok(default),
            value => value
                .as_u64()
                .filter(|seconds| *seconds <= LONGEST)
                .ok_or_else(|| format!("{name}: {value} is not a whole number of seconds up to {LONGEST}")),
        };
        let (wait, ttl) = (number("wait_s", 0)?, number("ttl_s", TTL)?.max(1));
        let wanted = arguments["rig"].as_str().map(|rig| rig.strip_prefix("rig:").unwrap_or(rig));
        let wanted = wanted.filter(|rig| !rig.is_empty());
        if let (Some((lease, rig)), Some(wanted)) = (self.own(), wanted.filter(|_| self.is_chosen())) {
            let (place, id) = self.hosts.of_lease(&lease).await.map_err(|refusal| refusal.why)?;
            let wanted_there = format!("rig:{wanted}");
            let (host, selector) = split(&wanted_there);
            let mut agent = Connection::open(&place).await.map_err(why)?;
            let join = json!({ "lease": id, "selector": selector });
            let is_elsewhere = host.is_some_and(|host| host != place.host().unwrap_or(HERE));
            if is_elsewhere || agent.ask("join", join).await.map_err(why)?["rig"].is_null() {
                return Err(format!("this session has {rig}, which is not {wanted}; release gives it back"));
            }
        }
        if self.own().is_none() {
            let before = lock(&self.held).take();
            if let Some(before) = before {
                before.give_back().await;
            }
            let selector = self.selector.as_deref().or(wanted);
            let asked = RigRequest {
                selector: selector.ok_or("rig: required; lab_list shows the rigs")?,
                count: 1,
                wait: Duration::from_secs(wait),
                ttl: Duration::from_secs(ttl),
                purpose: arguments["purpose"].as_str().filter(|text| !text.is_empty()).unwrap_or("mcp"),
            };
            let taken = Shards::take(&self.hosts, &asked, |place, why| tell(place, why))
                .await
                .map_err(|refusal| refusal.why)?;
            *lock(&self.held) = Some(taken);
            if let Some((relay, _)) = self.relay.get() {
                // Its tools may be others than those that were listed.
                relay.find().await?;
            }
        }
        let Some((lease, rig)) = self.own() else { return Err("the lease was lost at once".to_owned()) };
        let (place, id) = self.hosts.of_lease(&lease).await.map_err(|refusal| refusal.why)?;
        let mut agent = Connection::open(&place).await.map_err(why)?;
        let renewed = agent.ask("renew", json!({ "lease": id })).await.map_err(why)?;
        let left =
            renewed["until"].as_u64().unwrap_or_default().saturating_sub(renewed["now"].as_u64().unwrap_or_default())
                / 1000;
        let text = format!("{rig} is yours for {left} s more at most; release gives it back");
        Ok((text, json!({ "rig": rig, "lease": lease, "ends_in_s": left })))
    }

    async fn release(&self) -> (String, Value) {
        let own = self.own();
        if let Some((relay, told)) = self.relay.get() {
            if self.is_chosen() {
                let nothing = nothing_chosen();
                relay.forget(&nothing).await;
                told(&TargetNews::Present(Box::new(nothing)));
            }
            // A lease that a call has taken ends with the connection.
            relay.release().await;
        }
        let held = lock(&self.held).take();
        if let Some(held) = held {
            held.give_back().await;
        }
        match own {
            Some((_, rig)) => (format!("{rig} is free for others"), json!({ "released": true, "rig": rig })),
            None => ("there was no lease".to_owned(), json!({ "released": false })),
        }
    }
}

fn why(trouble: client::AgentError) -> String {
    Refusal::from(trouble).why
}

/// Facts about a rig for agents.
fn of_rig(rig: &Value, own: Option<&str>) -> Value {
    let mut told = json!({ "name": rig["name"], "state": rig["state"], "tags": rig["tags"] });
    if let Some(lease) = rig.get("lease").filter(|lease| !lease.is_null()) {
        told["holder"] = lease["holder"].clone();
        told["ends_in_s"] = (lease["ends_in_ms"].as_u64().unwrap_or_default() / 1000).into();
        let id = own.map(|own| own.rsplit('/').next().unwrap_or_default());
        told["mine"] = (own.is_some() && lease["id"].as_str() == id).into();
    }
    if !rig["reason"].is_null() {
        told["reason"] = rig["reason"].clone();
    }
    told
}

fn line(rig: &Value) -> String {
    let text = |name: &str| rig[name].as_str().unwrap_or_default().to_owned();
    let tags: Vec<String> = rig["tags"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let mut line = format!("{}: {} ({})", text("name"), text("state"), tags.join(","));
    if rig["holder"].is_string() {
        line += &format!(", {} has it for {} s more at most", text("holder"), rig["ends_in_s"]);
    }
    if rig["reason"].is_string() {
        line += &format!(", {}", text("reason"));
    }
    line
}

impl OwnTools for Rigs {
    fn tools(&self) -> Vec<Value> {
        let what = match &self.selector {
            Some(selector) => format!("Takes rig:{selector} for this session, so that nobody else uses it. Without it, the first call takes the rig if it is free. Use wait_s to wait in the queue"),
            None => "Takes a rig for this session, so that nobody else uses it. Its tools are there then. Use wait_s to wait in the queue".to_owned(),
        };
        let seconds = |what: &str| json!({ "type": "integer", "minimum": 0, "maximum": LONGEST, "description": what });
        let mut properties = json!({
            "wait_s": seconds("How long to wait for the rig, in seconds; not at all if absent"),
            "ttl_s": seconds("After how many seconds the lease ends at the latest; 1800 if absent"),
            "purpose": { "type": "string", "description": "What for: others see it" },
        });
        if self.is_chosen() {
            properties["rig"] =
                json!({ "type": "string", "description": "A rig's name, or KEY=VALUE,… for any rig with these tags" });
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        if self.is_chosen() {
            schema["required"] = json!(["rig"]);
        }
        vec![
            json!({
                "name": LIST,
                "title": "Rigs of the lab",
                "description": "The rigs of the lab: what each is, who has it and for how long, and how many wait",
                "inputSchema": {
                    "type": "object",
                    "properties": { "selector": { "type": "string", "description": "A rig's name, or KEY=VALUE,… for rigs with these tags; all if absent" } },
                },
                "annotations": { "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true },
            }),
            json!({
                "name": LEASE,
                "title": "Take the rig",
                "description": what,
                "inputSchema": schema,
                "annotations": { "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true },
            }),
            json!({
                "name": RELEASE,
                "title": "Give the rig back",
                "description": "Gives the rig back, so that others can have it. Its outputs are switched off",
                "inputSchema": { "type": "object", "properties": {} },
                "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true },
            }),
        ]
    }

    fn run(self: Arc<Self>, tool: &str, arguments: &Value, tell: Tell, done: ToolDone) -> Box<dyn FnOnce() + Send> {
        let (tool, arguments, this) = (tool.to_owned(), arguments.clone(), Arc::clone(&self));
        let running = self.runtime.spawn(async move { done(this.answer(&tool, &arguments, &tell).await) });
        Box::new(move || running.abort())
    }
}
