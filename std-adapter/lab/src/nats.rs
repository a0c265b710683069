//! The carrier over NATS: agents and those who use their rigs connect to a server, which is reached from both.
//!
//! | subject | who publishes | what |
//! |---|---|---|
//! | `lab.v1.host.HOST.link.USER` | USER | messages to the agent of HOST |
//! | `lab.v1.all.who.USER` | USER | the question which hosts there are |
//! | `lab.v1.host.HOST.agent.HOST` | the agent of HOST | that it is there, to find another one of the same name |
//! | `_INBOX.USER.…` | agents | messages to USER, and answers |
//!
//! Who USER is, the server's permissions decide: a user may publish subjects that end with the user's own name, and no others. Agents take
//! their word for it that a message comes from who is in its subject, and answer to inboxes of that user only.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Message, ServerError, StatusCode, Subscriber};
use futures_core::Stream as _;
use rigline_host::files;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::connection::AgentLocation;
use crate::link::{CARRIED, Carrier, Event, Host, LEAST, LONGEST, Outgoing, RUNTIME, Received};
use crate::users;

/// How long a server that does not answer is tried again.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the hosts have to say that they are there.
const GATHER: Duration = Duration::from_millis(300);
/// How long another agent of the same name has to say that it is there.
const TWIN: Duration = Duration::from_millis(250);
/// How often it is asked whether the server is there.
const PING: Duration = Duration::from_secs(5);
/// The most bytes of a file of credentials.
const CREDENTIALS: u64 = 1 << 20;

/// A NATS server, and who connects to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatsServer {
    url: String,
    user: String,
    password: Option<String>,
    creds: Option<PathBuf>,
    ca: Option<PathBuf>,
}

/// Whether a text can be one part of a subject.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Why a server cannot be used.
#[derive(Debug)]
enum Fault {
    /// It does not answer.
    Lost(String),
    /// It refuses.
    Denied(String),
}

impl NatsServer {
    /// Reads `nats://[USER[:PASSWORD]@]HOST[:PORT]`, or the same with `tls://`. Without a user it is this system's.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn new(text: &str, creds: Option<PathBuf>, ca: Option<PathBuf>) -> Result<Self, String> {
        // A password is not repeated.
        let shown = match (text.split_once("://"), text.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
            _ => text.to_owned(),
        };
        let wrong = |why: &str| format!("`{shown}` {why}; write nats://[USER@]HOST[:PORT]");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        if !["nats", "tls"].contains(&scheme) {
            return Err(wrong("is neither nats:// nor tls://"));
        }
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let host = host.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
            return Err(wrong("names no host"));
        }
        let (user, password) = match user {
            Some(user) => match user.split_once(':') {
                Some((user, password)) => (user.to_owned(), Some(password.to_owned())),
                None => (user.to_owned(), None),
            },
            None => (users::name(rustix::process::getuid().as_raw()), None),
        };
        if !is_token(&user) {
            return Err(wrong("has a user whose name is not letters, digits, `_` and `-`"));
        }
        let url = format!("{scheme}://{host}");
        url.parse::<async_nats::ServerAddr>().map_err(|error| wrong(&format!("is no address: {error}")))?;
        Ok(Self { url, user, password, creds, ca })
    }

    /// Its address, without the user.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn inbox(&self) -> String {
        format!("_INBOX.{}", self.user)
    }

    /// Connects. `tell` gets what happens to the connection later.
    async fn connect(&self, tell: mpsc::Sender<Event>, within: Option<Duration>) -> Result<Client, Fault> {
        let given_up = within.map(|within| Instant::now() + within);
        let mut complained = false;
        loop {
            let options = self.options(tell.clone()).await?;
            let error = match options.connect(self.url.as_str()).await {
                Ok(client) => return Ok(client),
                Err(error) => error,
            };
            let why = format!("{}: {}", self.url, whole(&error));
            match error.kind() {
                ConnectErrorKind::Io | ConnectErrorKind::Dns | ConnectErrorKind::TimedOut => {}
                ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                    return Err(Fault::Denied(format!(
                        "{}: the server refuses the user {}: {}",
                        self.url,
                        self.user,
                        whole(&error)
                    )));
                }
                _ => return Err(Fault::Denied(why)),
            }
            // It is no other one a moment later.
            if why.contains("certificate") {
                return Err(Fault::Denied(why));
            }
            if given_up.is_some_and(|given_up| Instant::now() >= given_up) {
                return Err(Fault::Lost(why));
            }
            if given_up.is_none() && !std::mem::replace(&mut complained, true) {
                eprintln!("rigline lab: {why}; it is tried again");
            }
            let _ = tell.try_send(Event::Down(why));
            sleep(delay(2)).await;
        }
    }

    async fn options(&self, tell: mpsc::Sender<Event>) -> Result<ConnectOptions, Fault> {
        let mut options = ConnectOptions::new();
        if let Some(file) = &self.creds {
            let wrong = |why: String| Fault::Denied(format!("{}: {why}", file.display()));
            let text = files::read_text(file, CREDENTIALS).map_err(|error| wrong(error.to_string()))?;
            // A file of credentials, or the seed of an NKey alone.
            let seed = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
            options = match seed {
                Some(seed) if seed.starts_with("SU") => options.nkey(seed.to_owned()),
                _ => options.credentials(&text).map_err(|error| {
                    wrong(format!("it is neither credentials of NATS nor the seed of a user's NKey: {error}"))
                })?,
            };
        }
        if let Some(password) = &self.password {
            options = options.user_and_password(self.user.clone(), password.clone());
        }
        if let Some(file) = &self.ca {
            // One that cannot be read is told with its name.
            std::fs::metadata(file).map_err(|error| Fault::Denied(format!("{}: {error}", file.display())))?;
            options = options.add_root_certificates(file.clone()).require_tls(true);
        }
        let (url, user) = (self.url.clone(), self.user.clone());
        Ok(options
            .name(format!("rigline {} of {user}", env!("CARGO_PKG_VERSION")))
            .custom_inbox_prefix(self.inbox())
            .ping_interval(PING)
            .connection_timeout(Duration::from_secs(2))
            .reconnect_delay_callback(delay)
            .ignore_discovered_servers()
            .event_callback(move |event| {
                let (tell, url, user) = (tell.clone(), url.clone(), user.clone());
                async move {
                    let event = match event {
                        async_nats::Event::Connected => Event::Up(LONGEST),
                        async_nats::Event::Disconnected => Event::Down(format!("{url} is gone")),
                        async_nats::Event::ServerError(ServerError::Other(text))
                            if text.to_lowercase().contains("permissions violation") =>
                        {
                            Event::Denied(format!("{url}: the server refuses it to the user {user}: {text}"))
                        }
                        async_nats::Event::ServerError(ServerError::AuthorizationViolation) => {
                            Event::Denied(format!("{url}: the server refuses the user {user}"))
                        }
                        async_nats::Event::ClientError(error) => Event::Down(format!("{url}: {error}")),
                        _ => return,
                    };
                    let _ = tell.send(event).await;
                }
            }))
    }
}

/// An error with its sources.
fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// How long to wait before a try to connect: longer after many, and not the same time for all who have lost one server.
fn delay(attempts: usize) -> Duration {
    if attempts <= 1 {
        return Duration::ZERO;
    }
    let base = 50_u64 << attempts.min(6).saturating_sub(2);
    let jitter = u64::from(uuid::Uuid::new_v4().as_fields().0) % (base + 1);
    Duration::from_millis(base / 2 + jitter)
}

/// The most bytes of a message, as the server has it.
fn longest(client: &Client) -> Result<usize, Fault> {
    let most = client.max_payload();
    if most < LEAST {
        return Err(Fault::Denied(format!(
            "the server's max_payload is {most} bytes, and rigline needs {LEAST} at least"
        )));
    }
    Ok(most.min(LONGEST))
}

async fn next(subscriber: &mut Subscriber) -> Option<Message> {
    std::future::poll_fn(|cx| Pin::new(&mut *subscriber).poll_next(cx)).await
}

/// Begins to connect to a host by a server.
pub(crate) fn start(server: &NatsServer, host: &str) -> std::io::Result<Carrier> {
    let runtime = RUNTIME.as_ref().map_err(|error| std::io::Error::new(error.kind(), error.to_string()))?;
    let (out, mut messages) = mpsc::channel::<Vec<u8>>(CARRIED);
    let (tell, events) = mpsc::channel(CARRIED);
    let subject = format!("lab.v1.host.{host}.link.{}", server.user);
    let server = server.clone();
    runtime.spawn(async move {
        let connected = async {
            let client = server.connect(tell.clone(), Some(CONNECT)).await?;
            let longest = longest(&client)?;
            let inbox = client.new_inbox();
            let incoming = client.subscribe(inbox.clone()).await;
            let incoming = incoming.map_err(|error| Fault::Lost(error.to_string()))?;
            Ok((client, inbox, incoming, longest))
        };
        let (client, inbox, mut incoming, longest) = match connected.await {
            Ok(connected) => connected,
            Err(Fault::Lost(why)) => return drop(tell.send(Event::Down(why)).await),
            Err(Fault::Denied(why)) => return drop(tell.send(Event::Denied(why)).await),
        };
        let _ = tell.send(Event::Up(longest)).await;
        loop {
            tokio::select! {
                message = messages.recv() => {
                    let Some(message) = message else { return };
                    let length = message.len();
                    // What is sent while there is no server would be kept, and come late.
                    if client.connection_state() != async_nats::connection::State::Connected {
                        continue;
                    }
                    if let Err(error) = client.publish_with_reply(subject.clone(), inbox.clone(), message.into()).await {
                        let why = format!("a message of {length} bytes: {error} ({})", client.max_payload());
                        let _ = tell.send(Event::Denied(why)).await;
                    }
                }
                message = next(&mut incoming) => match message {
                    None => {
                        // Why that is, the server has said, or says it now.
                        let _ = tell.send(Event::Down("the server has ended the subscription".to_owned())).await;
                        sleep(Duration::from_millis(500)).await;
                        return;
                    }
                    Some(message) if message.status == Some(StatusCode::NO_RESPONDERS) => {
                        let _ = tell.send(Event::Nobody).await;
                    }
                    Some(message) => {
                        if tell.send(Event::Message(message.payload.into())).await.is_err() {
                            return;
                        }
                    }
                },
            }
        }
    });
    Ok(Carrier { out, events })
}

/// Asks a server which hosts there are, and tells each as soon as it says so.
pub(crate) async fn hosts(server: &NatsServer, found: mpsc::UnboundedSender<String>) -> Result<(), String> {
    let (tell, mut events) = mpsc::channel(CARRIED);
    let text = |fault: Fault| match fault {
        Fault::Lost(why) | Fault::Denied(why) => why,
    };
    let client = server.connect(tell, Some(Duration::ZERO)).await.map_err(text)?;
    let inbox = client.new_inbox();
    let mut incoming = client.subscribe(inbox.clone()).await.map_err(|error| whole(&error))?;
    let subject = format!("lab.v1.all.who.{}", server.user);
    client.publish_with_reply(subject, inbox, Vec::new().into()).await.map_err(|error| whole(&error))?;
    let gathered = timeout(GATHER, async {
        loop {
            tokio::select! {
                message = next(&mut incoming) => {
                    let Some(message) = message else { return Ok(()) };
                    if message.status == Some(StatusCode::NO_RESPONDERS) {
                        return Ok(());
                    }
                    let about: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
                    if let Some(host) = about.get("host").and_then(Value::as_str).filter(|host| is_token(host)) {
                        let _ = found.send(host.to_owned());
                    }
                }
                event = events.recv() => if let Some(Event::Denied(why)) = event {
                    return Err(why);
                },
            }
        }
    });
    gathered.await.unwrap_or(Ok(()))
}

/// Makes a user's key: the secret half is in the new file `path`, which nobody else may read. Returns the public half, for the server's
/// configuration.
///
/// # Errors
/// The file is there already, or cannot be written.
pub fn new_key(path: &Path) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let key = nkeys::KeyPair::new_user();
    let seed = key.seed().map_err(io::Error::other)?;
    files::write_new_private(path, format!("{seed}\n").as_bytes()).map_err(named)?;
    Ok(key.public_key())
}

/// How an agent is reached over NATS.
#[derive(Debug, Clone)]
pub struct Serving {
    /// The server.
    pub server: NatsServer,
    /// The host's name; no other agent of the server has it.
    pub name: String,
    /// The users who may end the leases of others.
    pub admins: Vec<String>,
}

impl Serving {
    /// With this name, or with the machine's.
    ///
    /// # Errors
    /// It cannot be part of a subject.
    pub fn new(server: NatsServer, name: Option<&str>, admins: Vec<String>) -> Result<Self, String> {
        let machine = users::machine();
        let name = name.unwrap_or_else(|| machine.split('.').next().unwrap_or_default()).to_owned();
        for token in admins.iter().chain([&name]) {
            if !is_token(token) {
                return Err(format!("`{token}` is not up to 64 letters, digits, `_` and `-`"));
            }
        }
        Ok(Self { server, name, admins })
    }
}

/// Passes on to the agent of this host what comes over NATS, for as long as it may.
///
/// # Errors
/// The server refuses it, or another agent has this host's name.
pub async fn serve(place: &AgentLocation, serving: &Serving) -> Result<(), String> {
    let Serving { server, name, admins } = serving;
    let text = |fault: Fault| match fault {
        Fault::Lost(why) | Fault::Denied(why) => why,
    };
    let (tell, mut events) = mpsc::channel(CARRIED);
    let client = server.connect(tell, None).await.map_err(text)?;
    let longest = longest(&client).map_err(text)?;
    let subscribed = async {
        let own = client.subscribe(format!("lab.v1.host.{name}.>")).await?;
        let all = client.subscribe("lab.v1.all.>").await?;
        Ok::<_, async_nats::SubscribeError>((own, all))
    };
    let (mut own, mut all) = subscribed.await.map_err(|error| whole(&error))?;
    let own_instance = uuid::Uuid::new_v4().simple().to_string();
    let mut this = Announced {
        instance: own_instance.clone(),
        machine: users::machine(),
        pid: std::process::id(),
        since: crate::clock::unix_seconds(),
        serves: false,
        asks: true,
    };
    let subjects = Subjects::new(name);
    let announce = async |this: &Announced, asks: bool| {
        let about = json!(Announced { asks, ..this.clone() }).to_string();
        let _ = client.publish(subjects.agent.clone(), about.into_bytes().into()).await;
    };
    announce(&this, true).await;
    let (out, mut messages) = mpsc::channel::<Outgoing>(CARRIED);
    let mut arrived = None;
    let twin = sleep(TWIN);
    tokio::pin!(twin);
    loop {
        tokio::select! {
            () = &mut twin, if arrived.is_none() => {
                let (send, received) = mpsc::channel(CARRIED);
                // It ends when this does.
                drop(Host::serve(place, name, "nats", &own_instance, longest, received, out.clone()));
                (arrived, this.serves) = (Some(send), true);
                eprintln!("rigline lab: {name} is reached by {}", server.url());
            }
            event = events.recv() => match event {
                Some(Event::Denied(why)) => return Err(why),
                // Another one of this name may have come meanwhile.
                Some(Event::Up(_)) => announce(&this, true).await,
                Some(Event::Down(why)) => eprintln!("rigline lab: {why}"),
                Some(Event::Message(_) | Event::Nobody) => {}
                None => return Err(format!("{}: the connection has ended", server.url())),
            },
            message = next(&mut all) => {
                let Some(message) = message else { continue };
                if let Some((_, reply)) = Subjects::asked(&message).filter(|_| this.serves) {
                    let about = json!({ "host": name, "instance": own_instance, "machine": this.machine, "rigline": env!("CARGO_PKG_VERSION") });
                    let _ = client.publish(reply, about.to_string().into_bytes().into()).await;
                }
            }
            message = next(&mut own) => {
                let Some(message) = message else { return Err(format!("{}: the connection has ended", server.url())) };
                if *message.subject == *subjects.agent {
                    let Ok(other) = serde_json::from_slice::<Announced>(&message.payload) else { continue };
                    if other.instance == this.instance {
                        continue;
                    }
                    if !this.stays(&other) {
                        return Err(format!(
                            "another agent is {name} at {} already: process {} on {}; give this one another name by --name",
                            server.url(), other.pid, other.machine
                        ));
                    }
                    if other.asks {
                        announce(&this, false).await;
                    }
                } else if let (Some((user, reply)), Some(arrived)) = (subjects.linked(&message), &arrived) {
                    let is_admin = admins.contains(&user);
                    let received = Received { from: reply, user: Some(user), is_admin, bytes: message.payload.into() };
                    // One that finds no room is sent again.
                    let _ = arrived.try_send(received);
                }
            }
            Some((to, message)) = messages.recv() => {
                // What is sent while there is no server would be kept, and come late.
                if client.connection_state() == async_nats::connection::State::Connected {
                    let _ = client.publish(to, message.into()).await;
                }
            }
        }
    }
}

/// The announcement of an agent to others of its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Announced {
    instance: String,
    machine: String,
    pid: u32,
    since: u64,
    /// Whether it serves already.
    serves: bool,
    /// Whether it wants to be told of others.
    asks: bool,
}

impl Announced {
    /// Whether this one keeps the name that both have.
    fn stays(&self, other: &Self) -> bool {
        match (self.serves, other.serves) {
            (true, false) => true,
            (false, true) => false,
            _ => (self.since, &self.instance) < (other.since, &other.instance),
        }
    }
}

/// The subjects that an agent hears.
struct Subjects {
    agent: String,
    link: String,
}

impl Subjects {
    fn new(name: &str) -> Self {
        Self { agent: format!("lab.v1.host.{name}.agent.{name}"), link: format!("lab.v1.host.{name}.link.") }
    }

    /// Returns the user who has asked which hosts there are, and the subject of the answer.
    fn asked(message: &Message) -> Option<(String, String)> {
        Self::user(message, "lab.v1.all.who.")
    }

    /// Returns the user who has sent a message to the agent, and the subject of the answers.
    fn linked(&self, message: &Message) -> Option<(String, String)> {
        Self::user(message, &self.link)
    }

    /// The user of a subject. Answers go to inboxes of that user only, whatever the message names.
    fn user(message: &Message, subject: &str) -> Option<(String, String)> {
        let user = message.subject.strip_prefix(subject).filter(|user| is_token(user))?;
        let reply = message.reply.as_ref().filter(|reply| reply.starts_with(&format!("_INBOX.{user}.")))?;
        Some((user.to_owned(), reply.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_servers_are_read_and_others_are_refused_without_their_passwords() {
        let read = |text: &str| NatsServer::new(text, None, None);
        let server = read("nats://ann@lab:4222").unwrap();
        assert_eq!((server.url(), server.user.as_str(), server.password.as_deref()), ("nats://lab:4222", "ann", None));
        assert_eq!(read("tls://ann:secret@lab/").unwrap().password.as_deref(), Some("secret"));
        for (text, why) in [
            ("lab:4222", "has no scheme"),
            ("http://lab", "is neither nats:// nor tls://"),
            ("nats://", "names no host"),
            ("nats://ann@", "names no host"),
            ("nats://a.b:secret@lab", "whose name is not letters"),
            ("nats://a>@lab", "whose name is not letters"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.contains(why) && !found.contains("secret"), "{text}: {found}");
        }
    }

    #[test]
    fn of_two_agents_of_one_name_the_one_that_serves_keeps_it_and_else_the_older_one() {
        let of = |instance: &str, since: u64, serves: bool| Announced {
            instance: instance.to_owned(),
            machine: "lab".to_owned(),
            pid: 1,
            since,
            serves,
            asks: true,
        };
        for (one, other, stays) in [
            (of("a", 9, true), of("b", 1, false), true),
            (of("a", 1, false), of("b", 9, true), false),
            (of("a", 1, true), of("b", 2, true), true),
            (of("a", 2, false), of("b", 1, false), false),
            (of("a", 1, true), of("b", 1, true), true),
        ] {
            assert_eq!((one.stays(&other), other.stays(&one)), (stays, !stays), "{one:?} {other:?}");
        }
    }

    #[test]
    fn those_who_have_lost_a_server_do_not_come_back_all_at_once() {
        let delays: std::collections::BTreeSet<Duration> = (0..50).map(|_| delay(6)).collect();
        assert!(delays.len() > 10, "{delays:?}");
        assert!(delays.iter().all(|delay| (Duration::from_millis(400)..=Duration::from_millis(1200)).contains(delay)));
        assert_eq!(delay(1), Duration::ZERO);
        assert!(delay(1000) <= Duration::from_millis(1200));
    }
}
