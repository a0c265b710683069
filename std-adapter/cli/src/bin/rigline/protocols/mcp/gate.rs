//! A gate between agents and their tools: confirmations, the record of the calls, the reason of the last failure, resources, prompts, and
//! word of tools that have changed. Everything else passes as it is.
//!
//! Standard input and output have one client. Over HTTP there are as many as there are sessions; those that have none are told apart by what they say
//! of themselves.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use rigline::json::{Json, JsonKind};
use rigline::protocol::mcp::MODERN;
use rigline_std::between::{Between, Passing, Peer, Renewal};
use rigline_std::mutex::lock;
use serde_json::{Map, Value, json};

use super::library::{Library, Missing};
use crate::out::complain;
use crate::policy::calls::{Calls, Ended};
use crate::policy::{Policy, is_same};

/// The tool that tells why the last call failed.
pub(crate) const LAST_FAILURE: &str = "last_failure";
/// The beginning of the ids of our own requests.
const OWN: &str = "rigline-";
/// How long a person has to answer, so that a question is not kept for ever.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The most questions that are open at a time.
const QUESTIONS: usize = 64;
/// The most calls of our own tools that run at a time.
const RUNNING: usize = 64;
/// The most clients that are remembered. One more, and the one that was silent for longest is forgotten.
const CLIENTS: usize = 1000;

/// Gets how it goes: a number and a text.
pub(crate) type Tell = Box<dyn Fn(u64, &str) + Send + Sync>;
/// Gets a tool's text and its structured content, or why it failed.
pub(crate) type ToolDone = Box<dyn FnOnce(Result<(String, Value), String>) + Send>;

/// Ends a tool that runs.
pub(crate) type CallOff = Box<dyn FnOnce() + Send>;

/// Tools beside the target's, which may take their time.
pub(crate) trait OwnTools: std::fmt::Debug + Send + Sync {
    /// The tools, for a list.
    fn tools(&self) -> Vec<Value>;

    /// Runs one. Returns what calls it off.
    fn run(self: Arc<Self>, tool: &str, arguments: &Value, tell: Tell, done: ToolDone) -> Box<dyn FnOnce() + Send>;
}

/// The parts of a gate.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The lab's tools, for a rig of the lab.
    pub(crate) own: Option<Arc<dyn OwnTools>>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) calls: Option<Arc<Calls>>,
    pub(crate) library: Library,
    /// Whether the tools can become others.
    pub(crate) can_change: bool,
    /// Whether the gate's own tool is offered.
    pub(crate) tells_failures: bool,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Gate {
    this: Weak<Self>,
    parts: Parts,
    renewal: OnceLock<Renewal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Own tools that run, by the numbers of their peers and the ids of their calls as JSON, and what calls them off.
    running: HashMap<(u64, String), (Peer, CallOff)>,
    /// By session, or by what they say of themselves.
    clients: HashMap<String, ClientState>,
    /// How often a client was heard of.
    heard: u64,
    /// Requests that have no reply yet, by the numbers of their peers and their ids as JSON.
    open: HashMap<(u64, String), (Peer, Open)>,
    /// Calls that wait for a person's word, by the number of the question.
    questions: HashMap<u64, Question>,
    next: u64,
    /// Subscriptions that want to know of other tools, and the ids of their requests.
    subscriptions: Vec<(Peer, Value)>,
    /// Streams of sessions, for what concerns all clients.
    listeners: Vec<Peer>,
    /// The tools are others than those that were served last.
    is_stale: bool,
    /// Lists of our own that are on their way: who asked for the manifest.
    manifests: HashMap<String, (Value, bool)>,
    /// Tools of ours that the target has too, as far as its tools were listed. Its own are not hidden.
    taken: HashSet<String>,
}

#[derive(Debug, Default)]
struct ClientState {
    /// The description that a client of the legacy era has given of itself.
    about: Value,
    can_ask: bool,
    /// The request that begins its session again, where the session ends when the extension is served anew.
    beginning: Option<(Peer, Value)>,
    log_level: Option<Value>,
    last_failure: Option<Failure>,
    heard: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("open", &self.open).field("questions", &self.questions).finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Open {
    /// Of `initialize` or `server/discover`.
    Greeting,
    List,
    Listening(Value),
    Call(Box<OpenCall>),
    Other,
}

#[derive(Debug)]
struct OpenCall {
    /// The name of the client that sent it.
    owner: String,
    client: Value,
    tool: String,
    arguments: Value,
    began: Instant,
}

#[derive(Debug)]
struct Question {
    peer: Peer,
    id: Value,
    call: OpenCall,
    line: Vec<u8>,
    /// In the modern era: what the client gives back.
    is_modern: bool,
}

#[derive(Debug)]
struct Failure {
    tool: String,
    arguments: Value,
    reason: String,
    when: Instant,
}

impl State {
    /// The client of this name.
    fn client(&mut self, owner: &str) -> &mut ClientState {
        self.heard += 1;
        if self.clients.len() >= CLIENTS && !self.clients.contains_key(owner) {
            let silent = self.clients.iter().min_by_key(|(_, client)| client.heard).map(|(owner, _)| owner.clone());
            self.clients.remove(&silent.unwrap_or_default());
        }
        let client = self.clients.entry(owner.to_owned()).or_default();
        client.heard = self.heard;
        client
    }

    fn open(&mut self, peer: &Peer, id: &Value, open: Open) {
        self.open.insert((peer.number, id.to_string()), (peer.clone(), open));
    }
}

/// Returns the name of a client: its session, or in the modern era, which has none, what it says of itself.
fn owner(peer: &Peer, meta: &Value, is_modern: bool) -> String {
    match is_modern {
        true => format!("client {}", meta["io.modelcontextprotocol/clientInfo"]),
        false => format!("session {}", peer.session.as_deref().unwrap_or_default()),
    }
}

impl Gate {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { this: this.clone(), parts, renewal: OnceLock::new(), state: Mutex::default() })
    }

    /// Runs one of our own tools. Its answer comes later.
    fn run_own(
        &self,
        own: &Arc<dyn OwnTools>,
        state: &mut State,
        peer: &Peer,
        message: &Value,
        call: OpenCall,
        is_modern: bool,
    ) {
        let id = message["id"].clone();
        if state.running.len() >= RUNNING {
            let why = format!("{RUNNING} calls of this server's own tools run already, which is the limit");
            self.fail(state, peer, &id, call, "refused", &why, is_modern);
            return;
        }
        let token = message["params"]["_meta"]["progressToken"].clone();
        let (this, tool, arguments) = (self.this.clone(), call.tool.clone(), call.arguments.clone());
        let (told, hears) = (std::sync::atomic::AtomicU64::new(0), peer.clone());
        let tell: Tell = Box::new(move |place, why| {
            if !token.is_null() {
                // Progress counts up, and the place in the queue does not.
                let progress = told.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                let text = format!("place {place} in the queue: {why}");
                let params = json!({ "progressToken": token, "progress": progress, "message": text });
                send(&hears, &json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }));
            }
        });
        let (key, asker) = ((peer.number, id.to_string()), peer.clone());
        let own_key = key.clone();
        let done: ToolDone = Box::new(move |outcome| {
            let Some(gate) = this.upgrade() else { return };
            let mut state = lock(&gate.state);
            // One that was called off has no answer.
            if state.running.remove(&own_key).is_none() {
                return;
            }
            match outcome {
                Ok((text, structured)) => {
                    let result = json!({ "content": [{ "type": "text", "text": text }], "structuredContent": structured, "isError": false });
                    gate.record(&call, "ok", &result);
                    answer(&asker, &id, result, is_modern);
                }
                Err(why) => gate.fail(&mut state, &asker, &id, call, "failed", &why, is_modern),
            }
        });
        // The lock is held until it is known how it is called off.
        let call_off = Arc::clone(own).run(&tool, &arguments, tell, done);
        state.running.insert(key, (peer.clone(), call_off));
    }

    /// The tools are others: clients are told. Where that ends the session, no call may be under way.
    pub(crate) fn changed(&self) {
        let mut state = lock(&self.state);
        state.is_stale = true;
        state.taken.clear();
        self.renew(&mut state);
    }

    fn renew(&self, state: &mut State) {
        let Some(renewal) = self.renewal.get().filter(|_| state.is_stale) else { return };
        if !renewal.ends_session || (state.open.is_empty() && state.manifests.is_empty()) {
            state.is_stale = false;
            renewal.ask();
        }
    }

    /// A tool's failure that the gate itself has found.
    #[allow(clippy::too_many_arguments, reason = "they are what is known of the request")]
    fn fail(
        &self,
        state: &mut State,
        peer: &Peer,
        id: &Value,
        call: OpenCall,
        outcome: &str,
        why: &str,
        is_modern: bool,
    ) {
        let result = json!({ "content": [{ "type": "text", "text": why }], "isError": true });
        self.record(&call, outcome, &result);
        let OpenCall { owner, tool, arguments, .. } = call;
        let failure = Failure { tool, arguments, reason: why.to_owned(), when: Instant::now() };
        state.client(&owner).last_failure = Some(failure);
        answer(peer, id, result, is_modern);
    }

    fn record(&self, call: &OpenCall, outcome: &str, result: &Value) {
        let Some(calls) = &self.parts.calls else { return };
        let ended = Ended {
            client: &call.client,
            operation: &call.tool,
            arguments: &call.arguments,
            outcome,
            result: result.clone(),
            took: call.began.elapsed(),
        };
        if let Err(error) = calls.add(&ended) {
            complain(format_args!("rigline: a call is not in the record: {error}"));
        }
    }

    /// A request of the client.
    fn request(&self, peer: &Peer, message: &Value, line: &[u8]) -> Passing {
        let method = message["method"].as_str().unwrap_or_default();
        let (id, params) = (&message["id"], &message["params"]);
        let meta = &params["_meta"];
        let is_modern =
            meta.as_object().is_some_and(|meta| meta.keys().any(|key| key.starts_with("io.modelcontextprotocol/")));
        // What the era requires of a request is the core's to check.
        let is_fit = !is_modern
            || (meta["io.modelcontextprotocol/protocolVersion"] == MODERN
                && meta["io.modelcontextprotocol/clientCapabilities"].is_object());
        let owner = owner(peer, meta, is_modern);
        let mut state = lock(&self.state);
        match method {
            "initialize" => {
                let ends_session = self.renewal.get().is_some_and(|renewal| renewal.ends_session);
                let client = state.client(&owner);
                client.about = params["clientInfo"].clone();
                client.can_ask = can_ask(&params["capabilities"]);
                client.beginning = ends_session.then(|| (peer.clone(), message.clone()));
                state.open(peer, id, Open::Greeting);
            }
            "server/discover" => state.open(peer, id, Open::Greeting),
            "logging/setLevel" => {
                state.client(&owner).log_level = Some(message.clone());
                state.open(peer, id, Open::Other);
            }
            "tools/list" => state.open(peer, id, Open::List),
            "subscriptions/listen"
                if is_fit && self.parts.can_change && params["notifications"]["toolsListChanged"] == true =>
            {
                state.open(peer, id, Open::Listening(id.clone()));
            }
            "tools/call" if is_fit => {
                let tool = params["name"].as_str().unwrap_or_default().to_owned();
                let is_taken = state.taken.contains(&tool);
                let client = state.client(&owner);
                let (about, can_ask) = match is_modern {
                    true => {
                        let about = meta["io.modelcontextprotocol/clientInfo"].clone();
                        (about, can_ask(&meta["io.modelcontextprotocol/clientCapabilities"]))
                    }
                    false => (client.about.clone(), client.can_ask && peer.hears_requests),
                };
                if self.parts.tells_failures && tool == LAST_FAILURE && !is_taken {
                    answer(peer, id, told(client.last_failure.as_ref()), is_modern);
                    return Passing::Kept;
                }
                let arguments = params["arguments"].clone();
                let call = OpenCall { owner, client: about, tool, arguments, began: Instant::now() };
                if let Some(own) = self.parts.own.as_ref().filter(|_| !is_taken)
                    && own.tools().iter().any(|tool| tool["name"] == call.tool.as_str())
                {
                    self.run_own(own, &mut state, peer, message, call, is_modern);
                    return Passing::Kept;
                }
                if self.parts.policy.wants_confirmation(&call.tool) {
                    return self.confirm(&mut state, peer, message, call, line, is_modern, can_ask);
                }
                state.open(peer, id, Open::Call(Box::new(call)));
            }
            "resources/list" | "resources/templates/list" | "resources/read" | "prompts/list" | "prompts/get"
                if is_fit =>
            {
                return self.library(&mut state, peer, method, message, is_modern);
            }
            _ => {}
        }
        Passing::On
    }

    fn library(&self, state: &mut State, peer: &Peer, method: &str, message: &Value, is_modern: bool) -> Passing {
        let (id, params) = (&message["id"], &message["params"]);
        let library = &self.parts.library;
        let page = |name: &str, list: Vec<Value>| {
            let mut result = Map::new();
            result.insert(name.to_owned(), list.into());
            if is_modern {
                result.insert("ttlMs".to_owned(), 0.into());
                result.insert("cacheScope".to_owned(), "private".into());
            }
            Value::Object(result)
        };
        let result = match method {
            "resources/list" => page("resources", library.resources()),
            "resources/templates/list" => page("resourceTemplates", Vec::new()),
            "prompts/list" if library.has_prompts() => page("prompts", library.prompts()),
            "prompts/get" if library.has_prompts() => match library.prompt(params["name"].as_str().unwrap_or_default())
            {
                Ok(prompt) => prompt,
                Err(_) => {
                    let text = format!("Unknown prompt: {}", params["name"].as_str().unwrap_or_default());
                    refuse(peer, id, -32602, &text, Value::Null);
                    return Passing::Kept;
                }
            },
            "resources/read" => {
                let uri = params["uri"].as_str().unwrap_or_default();
                let mut is_manifest = false;
                let read = library.read(uri, || {
                    is_manifest = true;
                    String::new()
                });
                if is_manifest {
                    // The core knows the tools: they are listed for this.
                    let own = format!("{OWN}{}", state.next);
                    state.next += 1;
                    let mut list = json!({ "jsonrpc": "2.0", "id": own, "method": "tools/list", "params": {} });
                    if is_modern {
                        list["params"]["_meta"] = params["_meta"].clone();
                    }
                    state.manifests.insert(Value::from(own).to_string(), (id.clone(), is_modern));
                    return Passing::Instead(list.to_string().into_bytes());
                }
                match read {
                    Ok((kind, text)) => contents(uri, kind, &text, is_modern),
                    Err(Missing::Unknown) => {
                        let code = if is_modern { -32602 } else { -32002 };
                        refuse(peer, id, code, "Resource not found", json!({ "uri": uri }));
                        return Passing::Kept;
                    }
                    Err(Missing::Unreadable(why)) => {
                        refuse(peer, id, -32603, &format!("{uri}: {why}"), Value::Null);
                        return Passing::Kept;
                    }
                }
            }
            _ => return Passing::On,
        };
        answer(peer, id, result, is_modern);
        Passing::Kept
    }

    /// Has a person confirm a call. It goes on when the word is given.
    #[allow(clippy::too_many_arguments, reason = "they are what is known of the request")]
    fn confirm(
        &self,
        state: &mut State,
        peer: &Peer,
        message: &Value,
        call: OpenCall,
        line: &[u8],
        is_modern: bool,
        can_ask: bool,
    ) -> Passing {
        let (id, params) = (&message["id"], &message["params"]);
        if !can_ask {
            let why = format!(
                "{} needs the confirmation of a person, and this client cannot ask for it: it has no elicitation of forms",
                call.tool
            );
            self.fail(state, peer, id, call, "refused", &why, is_modern);
            return Passing::Kept;
        }
        if is_modern && let Some(state_text) = params["requestState"].as_str() {
            let number = state_text.strip_prefix(OWN).and_then(|number| number.parse().ok());
            let asked = number.and_then(|number: u64| state.questions.remove(&number));
            let is_this = asked.is_some_and(|question| {
                let asked = &question.call;
                question.is_modern
                    && (&asked.owner, &asked.tool, &asked.arguments) == (&call.owner, &call.tool, &call.arguments)
            });
            let word = &params["inputResponses"]["confirm"];
            let why = match (is_this, word["action"].as_str()) {
                (true, Some("accept")) => {
                    state.open(peer, id, Open::Call(Box::new(call)));
                    return Passing::On;
                }
                (true, _) => format!("a person has declined the call of {}", call.tool),
                (false, _) => format!("the confirmation of {} is of another call, or too old", call.tool),
            };
            self.fail(state, peer, id, call, "refused", &why, is_modern);
            return Passing::Kept;
        }
        state.questions.retain(|_, question| question.call.began.elapsed() < PATIENCE);
        if state.questions.len() >= QUESTIONS {
            let why = format!("{QUESTIONS} calls wait for the confirmation of a person already");
            self.fail(state, peer, id, call, "refused", &why, is_modern);
            return Passing::Kept;
        }
        let number = state.next;
        state.next += 1;
        let name = format!("{OWN}{number}");
        let arguments = if call.arguments.is_null() { json!({}) } else { call.arguments.clone() };
        let text = format!("The agent wants to run {} with {arguments} on the rig. Run it?", call.tool);
        let schema = json!({ "type": "object", "properties": {} });
        if is_modern {
            let params = json!({ "mode": "form", "message": text, "requestedSchema": schema });
            let asked = json!({ "confirm": { "method": "elicitation/create", "params": params } });
            let result = json!({ "resultType": "input_required", "inputRequests": asked, "requestState": name });
            answer(peer, id, result, true);
        } else {
            let params = json!({ "message": text, "requestedSchema": schema });
            send(peer, &json!({ "jsonrpc": "2.0", "id": name, "method": "elicitation/create", "params": params }));
        }
        let (peer, id, line) = (peer.clone(), id.clone(), line.to_vec());
        state.questions.insert(number, Question { peer, id, call, line, is_modern });
        Passing::Kept
    }

    /// The answer to a question of ours. Only the session that was asked can give it.
    fn word(&self, from: &Peer, message: &Value) -> Passing {
        let number = message["id"].as_str().and_then(|id| id.strip_prefix(OWN)).and_then(|number| number.parse().ok());
        let Some(number) = number else { return Passing::On };
        let mut state = lock(&self.state);
        let is_asked = |question: &Question| !question.is_modern && question.peer.session == from.session;
        if !state.questions.get(&number).is_some_and(is_asked) {
            return Passing::Kept;
        }
        let Some(Question { peer, id, mut call, line, .. }) = state.questions.remove(&number) else {
            return Passing::Kept;
        };
        if message["result"]["action"] == "accept" {
            call.began = Instant::now();
            state.open(&peer, &id, Open::Call(Box::new(call)));
            peer.to_extension(line);
            return Passing::Kept;
        }
        let why = match message["error"]["message"].as_str() {
            Some(why) => format!("the client could not ask a person to confirm the call of {}: {why}", call.tool),
            None => format!("a person has declined the call of {}", call.tool),
        };
        self.fail(&mut state, &peer, &id, call, "refused", &why, false);
        Passing::Kept
    }

    fn notification(&self, from: &Peer, message: &Value) -> Passing {
        if message["method"] != "notifications/cancelled" {
            return Passing::On;
        }
        let cancelled = &message["params"]["requestId"];
        let mut state = lock(&self.state);
        state.subscriptions.retain(|(peer, id)| peer.session != from.session || id != cancelled);
        let is_meant = |peer: &Peer| peer.session == from.session;
        let key = cancelled.to_string();
        let running = state.running.iter().filter(|((_, id), (peer, _))| is_meant(peer) && *id == key);
        if let Some(key) = only(running.map(|(key, _)| key.clone()))
            && let Some((peer, call_off)) = state.running.remove(&key)
        {
            call_off();
            peer.end();
            return Passing::Kept;
        }
        let asked =
            state.questions.iter().filter(|(_, question)| is_meant(&question.peer) && question.id == *cancelled);
        if let Some(number) = only(asked.map(|(number, _)| *number)) {
            self.take_back(&mut state, number);
            return Passing::Kept;
        }
        let open = state.open.iter().filter(|((_, id), (peer, _))| is_meant(peer) && *id == key);
        if let Some(key) = only(open.map(|(key, _)| key.clone()))
            && let Some((_, Open::Call(call))) = state.open.remove(&key)
        {
            self.record(&call, "cancelled", &Value::Null);
        }
        self.renew(&mut state);
        Passing::On
    }

    /// Nobody waits for the call any more that a question is about.
    fn take_back(&self, state: &mut State, number: u64) {
        let Some(question) = state.questions.remove(&number) else { return };
        self.record(&question.call, "cancelled", &Value::Null);
        if !question.is_modern {
            let params = json!({ "requestId": format!("{OWN}{number}"), "reason": "the call was cancelled" });
            send(&question.peer, &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
            question.peer.end();
        }
    }
}

/// The only one there is.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

/// The message with a resource's text.
fn contents(uri: &str, kind: &str, text: &str, is_modern: bool) -> Value {
    let mut result = json!({ "contents": [{ "uri": uri, "mimeType": kind, "text": text }] });
    if is_modern {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    result
}

fn told(failure: Option<&Failure>) -> Value {
    let Some(failure) = failure else {
        let text = "no call has failed";
        return json!({ "content": [{ "type": "text", "text": text }], "structuredContent": { "failed": false } });
    };
    let seconds = failure.when.elapsed().as_secs();
    let structured = json!({
        "failed": true,
        "tool": failure.tool,
        "arguments": failure.arguments,
        "reason": failure.reason,
        "secondsAgo": seconds,
    });
    let text = format!("{} failed {seconds} s ago: {}", failure.tool, failure.reason);
    json!({ "content": [{ "type": "text", "text": text }], "structuredContent": structured })
}

fn failure_tool() -> Value {
    json!({
        "name": LAST_FAILURE,
        "title": "Last failure",
        "description": "Why the last call that failed did so, also if its answer was lost or cut",
        "inputSchema": { "type": "object", "properties": {} },
        "outputSchema": {
            "type": "object",
            "properties": {
                "failed": { "type": "boolean", "description": "Whether any call has failed" },
                "tool": { "type": "string" },
                "arguments": { "description": "The arguments of that call" },
                "reason": { "type": "string" },
                "secondsAgo": { "type": "integer" },
            },
            "required": ["failed"],
        },
        "annotations": { "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true },
    })
}

/// Whether a client's capabilities have a form that a person can answer.
fn can_ask(capabilities: &Value) -> bool {
    let elicitation = &capabilities["elicitation"];
    elicitation.as_object().is_some_and(|kinds| kinds.is_empty() || kinds.contains_key("form"))
}

fn send(peer: &Peer, message: &Value) {
    peer.to_client(message.to_string().as_bytes());
}

fn answered(id: &Value, mut result: Value, is_modern: bool) -> Value {
    if is_modern && result.get("resultType").is_none() {
        result["resultType"] = "complete".into();
    }
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn answer(peer: &Peer, id: &Value, result: Value, is_modern: bool) {
    send(peer, &answered(id, result, is_modern));
}

fn refuse(peer: &Peer, id: &Value, code: i32, message: &str, data: Value) {
    let mut error = json!({ "code": code, "message": message });
    if !data.is_null() {
        error["data"] = data;
    }
    send(peer, &json!({ "jsonrpc": "2.0", "id": id, "error": error }));
}

/// The first text of a tool's result.
fn text_of(result: &Value) -> String {
    let mut texts = result["content"].as_array().into_iter().flatten();
    texts.find_map(|block| block["text"].as_str()).unwrap_or_default().to_owned()
}

impl Between for Gate {
    fn begin(&self, renewal: Renewal) {
        let mut state = lock(&self.state);
        state.next = 1;
        // What has changed before anybody asked is nothing new, unless the extension is served already.
        state.is_stale &= !renewal.ends_session;
        let _ = self.renewal.set(renewal);
        self.renew(&mut state);
    }

    fn received(&self, from: &Peer, line: &[u8]) -> Passing {
        let Ok(json) = Json::parse(line) else { return Passing::On };
        if json.kind() == JsonKind::Array && !self.parts.policy.is_empty() {
            // Of the first revision, and no client sends any: nothing passes by it.
            let text = "batches are not accepted where calls are limited, confirmed or recorded";
            refuse(from, &Value::Null, -32600, text, Value::Null);
            return Passing::Kept;
        }
        if json.kind() != JsonKind::Object {
            return Passing::On;
        }
        let (has_method, id) = (json.get("method").is_some(), json.get("id"));
        let Ok(message) = serde_json::from_slice::<Value>(line) else { return Passing::On };
        match (has_method, id.map(|id| id.kind())) {
            (true, Some(JsonKind::String | JsonKind::Number)) => self.request(from, &message, line),
            (true, None) => self.notification(from, &message),
            (false, Some(JsonKind::String)) => self.word(from, &message),
            _ => Passing::On,
        }
    }

    fn sent(&self, to: &Peer, line: &[u8]) -> Passing {
        let Some(json) = Json::parse(line.trim_ascii()).ok().filter(|json| json.kind() == JsonKind::Object) else {
            return Passing::On;
        };
        let Some(id) = json.get("id") else { return self.sent_notification(to, json, line) };
        if json.get("method").is_some() {
            return Passing::On;
        }
        let mut state = lock(&self.state);
        let key = id.text().map_or_else(|| id.as_str().to_owned(), |text| Value::from(text.to_string()).to_string());
        if key.get(1..).is_some_and(|name| name.starts_with(OWN)) {
            let Some((asker, is_modern)) = state.manifests.remove(&key) else { return Passing::Kept };
            let reply: Value = serde_json::from_slice(line).unwrap_or_default();
            let text = format!("{:#}", json!({ "tools": reply["result"]["tools"] }));
            let result = contents("rigline://manifest", "application/json", &text, is_modern);
            self.renew(&mut state);
            return Passing::Instead(answered(&asker, result, is_modern).to_string().into_bytes());
        }
        let passing = match state.open.remove(&(to.number, key)).map(|(_, open)| open) {
            None | Some(Open::Other | Open::Listening(_)) => Passing::On,
            Some(Open::Call(call)) => {
                let is_error = json.get("error").is_some()
                    || json.get("result").and_then(|result| result.get("isError")?.bool()).unwrap_or_default();
                if is_error || self.parts.calls.is_some() {
                    self.ended(&mut state, *call, line, is_error);
                }
                Passing::On
            }
            Some(Open::Greeting) => self.greeted(line),
            Some(Open::List) => self.listed(&mut state, line),
        };
        self.renew(&mut state);
        passing
    }

    fn renewed(&self) {
        let mut state = lock(&self.state);
        // Sessions of the legacy era that have ended with it go on.
        let mut peers = Vec::new();
        let mut next = state.next;
        for client in state.clients.values() {
            let Some((peer, initialize)) = &client.beginning else { continue };
            for message in [Some(initialize), client.log_level.as_ref()].into_iter().flatten() {
                let mut message = message.clone();
                message["id"] = Value::from(format!("{OWN}{next}"));
                next += 1;
                peer.to_extension(message.to_string().into_bytes());
            }
            peers.push(peer.clone());
        }
        state.next = next;
        // Of several streams of a session, the last one.
        for peer in state.listeners.iter().rev() {
            if !peers.iter().any(|known| known.session == peer.session) {
                peers.push(peer.clone());
            }
        }
        let message = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        peers.iter().for_each(|peer| send(peer, &message));
        for (peer, id) in &state.subscriptions {
            let mut message = message.clone();
            message["params"] = json!({ "_meta": { "io.modelcontextprotocol/subscriptionId": id } });
            send(peer, &message);
        }
    }

    fn listens(&self, peer: &Peer) {
        lock(&self.state).listeners.push(peer.clone());
    }

    fn gone(&self, peer: &Peer, is_cancelled: bool) {
        let mut state = lock(&self.state);
        let is_other = |known: &Peer| known.number != peer.number;
        state.subscriptions.retain(|(known, _)| is_other(known));
        state.listeners.retain(is_other);
        let asked = state.questions.iter().filter(|(_, question)| !question.is_modern && !is_other(&question.peer));
        for number in asked.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.take_back(&mut state, number);
        }
        let running: Vec<_> = state.running.keys().filter(|(number, _)| *number == peer.number).cloned().collect();
        for key in running {
            if let Some((_, call_off)) = state.running.remove(&key) {
                call_off();
            }
        }
        let keys: Vec<_> = state.open.keys().filter(|(number, _)| *number == peer.number).cloned().collect();
        for key in keys {
            if let Some((_, Open::Call(call))) = state.open.remove(&key) {
                self.record(&call, if is_cancelled { "cancelled" } else { "unheard" }, &Value::Null);
            }
        }
        self.renew(&mut state);
    }

    fn session_ended(&self, name: &str) {
        let mut state = lock(&self.state);
        state.clients.remove(&format!("session {name}"));
        let is_of = |peer: &Peer| peer.session.as_deref() == Some(name);
        let asked = state.questions.iter().filter(|(_, question)| is_of(&question.peer));
        for number in asked.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.take_back(&mut state, number);
        }
        state.listeners.retain(|peer| !is_of(peer));
    }
}

impl Gate {
    fn ended(&self, state: &mut State, call: OpenCall, line: &[u8], is_error: bool) {
        let reply: Value = serde_json::from_slice(line).unwrap_or_default();
        let result = reply.get("result").or_else(|| reply.get("error")).cloned().unwrap_or_default();
        self.record(&call, if is_error { "failed" } else { "ok" }, &result);
        if is_error {
            let reason = match result["message"].as_str() {
                Some(message) => message.to_owned(),
                None => text_of(&result),
            };
            let OpenCall { owner, tool, arguments, .. } = call;
            let failure = Failure { tool, arguments, reason, when: Instant::now() };
            state.client(&owner).last_failure = Some(failure);
        }
    }

    /// Adds what the gate itself can do.
    fn greeted(&self, line: &[u8]) -> Passing {
        let Ok(mut reply) = serde_json::from_slice::<Value>(line) else { return Passing::On };
        let Some(capabilities) = reply["result"]["capabilities"].as_object_mut() else { return Passing::On };
        if self.parts.can_change {
            capabilities.insert("tools".to_owned(), json!({ "listChanged": true }));
        }
        capabilities.insert("resources".to_owned(), json!({}));
        if self.parts.library.has_prompts() {
            capabilities.insert("prompts".to_owned(), json!({}));
        }
        Passing::Instead(reply.to_string().into_bytes())
    }

    /// Adds our own tools to the last page of a list.
    fn listed(&self, state: &mut State, line: &[u8]) -> Passing {
        let mut added = self.parts.own.as_ref().map(|own| own.tools()).unwrap_or_default();
        if self.parts.tells_failures {
            added.push(failure_tool());
        }
        if added.is_empty() {
            return Passing::On;
        }
        // The tools stay as they are written, their numbers too.
        let text = String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        let result = Json::parse(text.as_bytes()).ok().and_then(|json| json.get("result"));
        let Some((result, json)) = result.and_then(|result| Some((result, result.get("tools")?))) else {
            return Passing::On;
        };
        let names = json.elements().filter_map(|tool| tool.get("name")?.text().map(|name| name.to_string()));
        let names: Vec<String> = names.collect();
        let list = json.as_str();
        let own_name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
        state.taken.extend(added.iter().map(own_name).filter(|own| names.iter().any(|name| is_same(name, own))));
        if result.get("nextCursor").is_some() {
            return Passing::On;
        }
        added.retain(|tool| !state.taken.contains(&own_name(tool)));
        let start = (list.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        let (Some(before), Some(after)) = (text.get(..start), text.get(start.saturating_add(list.len())..)) else {
            return Passing::On;
        };
        let Some(open) = list.strip_suffix(']') else { return Passing::On };
        let mut tools = open.to_owned();
        for tool in added {
            if !tools.ends_with('[') {
                tools.push(',');
            }
            tools.push_str(&tool.to_string());
        }
        Passing::Instead(format!("{before}{tools}]{after}").into_bytes())
    }

    /// A subscription is acknowledged: it is told what it will get.
    fn sent_notification(&self, to: &Peer, json: Json<'_>, line: &[u8]) -> Passing {
        let is_acknowledgement = json
            .get("method")
            .and_then(|method| method.text())
            .is_some_and(|method| method == "notifications/subscriptions/acknowledged");
        if !is_acknowledgement {
            return Passing::On;
        }
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else { return Passing::On };
        let id = message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone();
        let mut state = lock(&self.state);
        match state.open.remove(&(to.number, id.to_string())) {
            Some((_, Open::Listening(id))) => {
                state.subscriptions.push((to.clone(), id));
                message["params"]["notifications"] = json!({ "toolsListChanged": true });
                Passing::Instead(message.to_string().into_bytes())
            }
            _ => Passing::On,
        }
    }
}

#[cfg(test)]
mod tests {
    use rigline_std::between::Wire;

    use super::*;

    /// A tool that does not end.
    #[derive(Debug)]
    struct Slow;

    impl OwnTools for Slow {
        fn tools(&self) -> Vec<Value> {
            vec![json!({ "name": "slow", "inputSchema": { "type": "object" } })]
        }

        fn run(self: Arc<Self>, _: &str, _: &Value, _: Tell, _: ToolDone) -> CallOff {
            Box::new(|| ())
        }
    }

    #[derive(Default)]
    struct Heard(Mutex<Vec<Value>>);

    impl Wire for Heard {
        fn to_client(&self, message: &[u8]) {
            lock(&self.0).push(serde_json::from_slice(message).unwrap());
        }

        fn to_extension(&self, _: Vec<u8>) {}
    }

    #[test]
    fn calls_of_own_tools_are_bounded_and_one_that_is_called_off_makes_room() {
        let gate = Gate::new(Parts { own: Some(Arc::new(Slow)), ..Parts::default() });
        let heard = Arc::new(Heard::default());
        let peer = Peer::new(1, None, true, Arc::clone(&heard) as Arc<dyn Wire>);
        let call = |id: usize| {
            let params = json!({ "name": "slow", "arguments": {} });
            let line = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string();
            assert_eq!(gate.received(&peer, line.as_bytes()), Passing::Kept);
        };
        for id in 0..RUNNING {
            call(id);
        }
        assert!(lock(&heard.0).is_empty());
        call(1000);
        let answer = lock(&heard.0).pop().unwrap();
        assert!(answer["id"] == 1000 && answer["result"]["isError"] == true, "{answer}");
        assert!(answer.to_string().contains("64 calls of this server's own tools run already"), "{answer}");
        let off = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}"#;
        gate.received(&peer, off.as_bytes());
        call(1001);
        assert!(lock(&heard.0).is_empty());
    }
}
