//! The hosts of a lab: this one, and those that `lab.toml`, `--lab` or `RIGLINE_LAB` names.
//!
//! ```toml
//! hosts = ["ssh:lab1", "bench=ssh:rig@10.0.0.7", "nats://ann@lab:4222"]
//! # The user's credentials for NATS servers, or the seed of an NKey; and the authority that has signed the servers' certificates.
//! creds = "ann.nk"
//! ca = "ca.pem"
//! ```
//!
//! A host over SSH has the name of its destination, without the user, or the one in front. Hosts over NATS tell their names themselves.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rigline_host::files;
use rigline_std::mutex::lock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::book::Refusal;
use crate::client::{self, First, Granted, Want};
pub use crate::connection::Remote;
use crate::connection::{AgentError, AgentLocation, Connection, Opening, Reach};
use crate::folders::Folders;
use crate::handshake::PROTOCOL;
use crate::link::Link;
pub use crate::link::settle;
use crate::nats::{self, NatsServer};
use crate::rigs;
use crate::rigs::is_name;
use crate::{ssh, users};

/// The variable that names the hosts, with commas between them, in place of those of `lab.toml`.
pub const HOSTS: &str = "RIGLINE_LAB";
/// The variable with the file of the user's credentials for NATS.
pub const CREDS: &str = "RIGLINE_LAB_CREDS";
/// The variable with the file of the certificates that NATS servers' are signed by.
pub const CA: &str = "RIGLINE_LAB_CA";
/// The name of this host in `rig:HOST/NAME`.
pub const HERE: &str = "localhost";
/// How long hosts have to answer when all of them are asked.
const WITHIN: Duration = Duration::from_millis(850);
/// The same, when a rig is searched.
const SEARCHED: Duration = Duration::from_secs(4);
/// How soon hosts that did not answer are asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// The most hosts that are named.
const MOST: usize = 100;

/// How a host is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Ssh(String),
    Nats(Box<NatsServer>),
}

/// Another host's way, with the link that all its sessions share.
#[derive(Debug)]
struct Linked {
    way: Way,
    link: Mutex<Option<Link>>,
}

impl Reach for Linked {
    fn session<'r>(&'r self, name: &'r str) -> Opening<'r> {
        Box::pin(async move {
            let link = {
                let mut link = lock(&self.link);
                match &*link {
                    Some(link) if !link.is_over() => link.clone(),
                    _ => {
                        let carrier = match &self.way {
                            Way::Ssh(destination) => ssh::start(destination),
                            Way::Nats(server) => nats::start(server, name),
                        };
                        let named = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
                        let carrier = carrier.map_err(|error| AgentError::Lost(named(error)))?;
                        link.insert(Link::new(name, carrier).map_err(|error| AgentError::Lost(named(error)))?).clone()
                    }
                }
            };
            let user = users::name(rustix::process::getuid().as_raw());
            let pid = std::process::id();
            link.open(json!({ "protocol": PROTOCOL, "user": user, "machine": users::machine(), "pid": pid })).await
        })
    }
}

fn remote(name: &str, way: Way) -> Arc<Remote> {
    Arc::new(Remote::new(name, Linked { way, link: Mutex::default() }))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    hosts: Vec<String>,
    #[serde(default)]
    creds: Option<PathBuf>,
    #[serde(default)]
    ca: Option<PathBuf>,
}

/// Reads the list. There is none at first, which is an empty one.
fn read(path: &Path) -> Result<List, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {}", path.display(), error.to_string().trim_end());
    let text = match files::read_text(path, rigs::LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(List::default()),
        read => read.map_err(|error| named(&error))?,
    };
    let mut list: List = toml::from_str(&text).map_err(|error| named(&error))?;
    // Files are named from the folder of the list.
    for file in [&mut list.creds, &mut list.ca].into_iter().flatten() {
        *file = path.parent().unwrap_or(Path::new("")).join(&*file);
    }
    Ok(list)
}

/// The hosts of a lab.
#[derive(Debug, Clone)]
pub struct Hosts {
    here: AgentLocation,
    /// Those over SSH, by their names.
    named: BTreeMap<String, Arc<Remote>>,
    servers: Vec<NatsServer>,
    /// Those over NATS that were used.
    found: Arc<Mutex<BTreeMap<String, Arc<Remote>>>>,
}

/// The answer of a host.
#[derive(Debug)]
pub struct HostAnswer {
    /// Its name; none for this one. For a server without an answer the server's address.
    pub host: Option<String>,
    /// The agent, if it is known.
    pub place: Option<AgentLocation>,
    /// The answer.
    pub answer: Result<Value, Refusal>,
}

impl HostAnswer {
    /// The host's name, for people.
    pub fn name(&self) -> &str {
        self.host.as_deref().unwrap_or(HERE)
    }
}

impl Hosts {
    /// The host `here` alone.
    pub fn alone(here: AgentLocation) -> Self {
        Self { here, named: BTreeMap::new(), servers: Vec::new(), found: Arc::default() }
    }

    /// The hosts that the option `--lab` names, or else the variable `RIGLINE_LAB`, or else `lab.toml`.
    ///
    /// # Errors
    /// The list is wrong, in words.
    pub fn of_user(folders: Folders, program: PathBuf, option: Option<&str>) -> Result<Self, String> {
        let file = |name: &str| std::env::var_os(name).filter(|file| !file.is_empty()).map(PathBuf::from);
        let mut list = read(&folders.hosts_file())?;
        let said = match option {
            Some(text) => Some(("--lab", text.to_owned())),
            None => std::env::var(HOSTS).ok().map(|text| (HOSTS, text)),
        };
        let mut whence = folders.hosts_file().display().to_string();
        if let Some((name, text)) = said {
            let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
            list.hosts = hosts.map(str::to_owned).collect();
            name.clone_into(&mut whence);
        }
        list.creds = file(CREDS).or(list.creds);
        list.ca = file(CA).or(list.ca);
        Self::of_list(AgentLocation::here(folders, program), &list).map_err(|why| format!("{whence}: {why}"))
    }

    fn of_list(here: AgentLocation, list: &List) -> Result<Self, String> {
        let mut hosts = Self::alone(here);
        if list.hosts.len() > MOST {
            return Err(format!("{} hosts, and there may be {MOST}", list.hosts.len()));
        }
        for text in &list.hosts {
            if text.contains("://") {
                hosts.servers.push(NatsServer::new(text, list.creds.clone(), list.ca.clone())?);
                continue;
            }
            let (name, address) = match text.split_once('=') {
                Some((name, address)) => (Some(name), address),
                None => (None, text.as_str()),
            };
            let destination = address.strip_prefix("ssh:").filter(|destination| !destination.is_empty());
            let Some(destination) = destination else {
                return Err(format!(
                    "`{text}` is no host; write ssh:HOST, NAME=ssh:USER@HOST or nats://USER@SERVER:4222"
                ));
            };
            let name = name.unwrap_or_else(|| destination.rsplit('@').next().unwrap_or_default());
            if !is_name(name) || name == HERE {
                return Err(format!(
                    "`{text}`: the host's name `{name}` is not letters, digits, `.`, `_` and `-`, or is this host's; write NAME=ssh:…"
                ));
            }
            let remote = remote(name, Way::Ssh(destination.to_owned()));
            if hosts.named.insert(name.to_owned(), remote).is_some() {
                return Err(format!("two hosts have the name {name}; write NAME=ssh:… for one of them"));
            }
        }
        Ok(hosts)
    }

    /// The agent of this host.
    pub fn here(&self) -> &AgentLocation {
        &self.here
    }

    /// Whether there are no other hosts.
    pub fn is_alone(&self) -> bool {
        self.named.is_empty() && self.servers.is_empty()
    }

    fn place(&self, remote: Arc<Remote>) -> AgentLocation {
        AgentLocation { remote: Some(remote), ..self.here.clone() }
    }

    fn of_nats(&self, server: &NatsServer, name: &str) -> AgentLocation {
        let mut found = lock(&self.found);
        let entry = found.entry(format!("{} {name}", server.url()));
        let remote = entry.or_insert_with(|| remote(name, Way::Nats(Box::new(server.clone()))));
        self.place(Arc::clone(remote))
    }

    /// The host of this name.
    ///
    /// # Errors
    /// There is none, or the server that may know it does not answer.
    pub async fn named(&self, name: &str) -> Result<AgentLocation, Refusal> {
        if name == HERE {
            return Ok(self.here.clone());
        }
        if let Some(remote) = self.named.get(name) {
            return Ok(self.place(Arc::clone(remote)));
        }
        match self.servers.as_slice() {
            // It is asked itself.
            [server] => Ok(self.of_nats(server, name)),
            servers => {
                let mut asking = JoinSet::new();
                for server in servers.iter().cloned() {
                    asking.spawn(async move {
                        let (tell, mut found) = mpsc::unbounded_channel();
                        let asked = timeout(WITHIN, nats::hosts(&server, tell)).await;
                        let mut names = Vec::new();
                        while let Ok(name) = found.try_recv() {
                            names.push(name);
                        }
                        (server, names, asked.is_ok_and(|asked| asked.is_ok()))
                    });
                }
                let (mut names, mut silent) = (vec![HERE.to_owned()], Vec::new());
                names.extend(self.named.keys().cloned());
                for (server, found, has_answered) in asking.join_all().await {
                    if found.iter().any(|found| found == name) {
                        return Ok(self.of_nats(&server, name));
                    }
                    names.extend(found);
                    if !has_answered {
                        silent.push(server.url().to_owned());
                    }
                }
                if !silent.is_empty() {
                    let why = format!("the host {name} is not found, and {} does not answer", silent.join(" and "));
                    return Err(Refusal::refused(why));
                }
                Err(Refusal::usage(format!(
                    "there is no host {name} in lab.toml, --lab or {HOSTS}; there are: {}",
                    names.join(", ")
                )))
            }
        }
    }

    /// The host in `HOST/ID`, as leases are named, and the id.
    ///
    /// # Errors
    /// As [`named`](Self::named).
    pub async fn of_lease<'l>(&self, lease: &'l str) -> Result<(AgentLocation, &'l str), Refusal> {
        match lease.split_once('/') {
            Some((host, id)) => Ok((self.named(host).await?, id)),
            None => Ok((self.here.clone(), lease)),
        }
    }

    /// Asks all hosts, or the one that is named, and returns what each says, or that it does not answer.
    pub async fn ask_all(&self, host: Option<&str>, method: &'static str, params: &Value) -> Vec<HostAnswer> {
        let mut answers = self.asking(host, method, params, WITHIN);
        let mut all = Vec::new();
        while let Some(answer) = answers.recv().await {
            all.push(answer);
        }
        all.sort_by(|one, other| one.host.cmp(&other.host));
        all
    }

    fn asking(
        &self,
        host: Option<&str>,
        method: &'static str,
        params: &Value,
        within: Duration,
    ) -> mpsc::UnboundedReceiver<HostAnswer> {
        let (tell, answers) = mpsc::unbounded_channel();
        let given_up = Instant::now() + within;
        if let Some(host) = host {
            let (this, host, params) = (self.clone(), host.to_owned(), params.clone());
            tokio::spawn(async move {
                match this.named(&host).await {
                    Ok(place) => ask(place, tell, method, params, None).await,
                    Err(why) => drop(tell.send(HostAnswer { host: Some(host), place: None, answer: Err(why) })),
                }
            });
            return answers;
        }
        // This host's agent may have to be started.
        let limit = (!self.is_alone()).then_some(given_up + WITHIN);
        tokio::spawn(ask(self.here.clone(), tell.clone(), method, params.clone(), limit));
        for remote in self.named.values() {
            tokio::spawn(ask(self.place(Arc::clone(remote)), tell.clone(), method, params.clone(), Some(given_up)));
        }
        for server in &self.servers {
            let (this, server) = (self.clone(), server.clone());
            let (tell, params) = (tell.clone(), params.clone());
            tokio::spawn(async move {
                let (found_one, mut found) = mpsc::unbounded_channel();
                let asked = tokio::spawn({
                    let server = server.clone();
                    async move { timeout_at(given_up, nats::hosts(&server, found_one)).await }
                });
                let mut known = std::collections::BTreeSet::new();
                while let Some(name) = found.recv().await {
                    if known.insert(name.clone()) {
                        let place = this.of_nats(&server, &name);
                        tokio::spawn(ask(place, tell.clone(), method, params.clone(), Some(given_up)));
                    }
                }
                let why = match asked.await {
                    Ok(Ok(Ok(()))) => return,
                    Ok(Ok(Err(why))) => why,
                    Ok(Err(_)) | Err(_) => format!("{} does not answer", server.url()),
                };
                let host = Some(server.url().to_owned());
                let _ = tell.send(HostAnswer { host, place: None, answer: Err(Refusal::refused(why)) });
            });
        }
        answers
    }

    /// The hosts with rigs that are meant, and which rigs those are. It does not wait for all hosts if enough is known.
    async fn matching(&self, selector: &str, count: usize) -> Result<Vec<Matching>, Refusal> {
        let is_name = !selector.contains('=');
        let mut answers = self.asking(None, "select", &json!({ "selector": selector }), SEARCHED);
        let (mut matching, mut refused, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_here = false;
        while let Some(HostAnswer { host, place, answer }) = answers.recv().await {
            has_here |= host.is_none();
            match (answer, place) {
                (Ok(found), Some(place)) => matching.push(Matching::of(place, &found)),
                (Err(Refusal { code: 2, why }), _) => refused.push((host, why)),
                (Err(Refusal { why, .. }), _) => silent.push(why),
                (Ok(_), None) => {}
            }
            // A name of this host's is this host's. Of several hosts with rigs that are free one does.
            let is_enough = |found: &Matching| match is_name {
                true => found.place.remote.is_none(),
                false => found.rigs.iter().filter(|(_, is_free)| *is_free).count() >= count,
            };
            if has_here
                && count == 1
                && let Some(place) = matching.iter().position(is_enough)
            {
                return Ok(vec![matching.swap_remove(place)]);
            }
        }
        matching.sort_by(|one, other| one.place.host().cmp(&other.place.host()));
        let of: Vec<&str> = matching.iter().map(|found| found.place.host().unwrap_or(HERE)).collect();
        if is_name && let [_, _, ..] = of.as_slice() {
            let rig = selector.strip_prefix("rig:").unwrap_or(selector);
            let places: Vec<String> = of.iter().map(|host| format!("rig:{host}/{rig}")).collect();
            return Err(Refusal::usage(format!(
                "several hosts have a rig of this name; write {}",
                places.join(" or ")
            )));
        }
        if matching.is_empty() {
            return Err(nothing(selector, &refused, &silent));
        }
        Ok(matching)
    }

    /// As [`matching`](Self::matching). Hosts that do not answer are asked again, for as long as is waited.
    async fn matching_in_time(&self, selector: &str, want: &Want) -> Result<Vec<Matching>, Refusal> {
        let given_up = want.wait.map(|wait| Instant::now() + wait);
        loop {
            match self.matching(selector, want.count).await {
                Err(Refusal { code: 3, .. }) if given_up.is_some_and(|given_up| Instant::now() < given_up) => {
                    sleep(AGAIN).await;
                }
                Err(Refusal { code: 3, why }) if given_up.is_some() => return Err(Refusal { code: 124, why }),
                found => return found,
            }
        }
    }

    /// Gets a lease of the first of the wanted rigs that is free, on whatever host it is. `tell` gets the place in the queues.
    ///
    /// # Errors
    /// It is refused, the wait is over, or no host has such rigs.
    pub async fn acquire(
        &self,
        want: &Want,
        mut tell: impl FnMut(u64, &str),
    ) -> Result<(AgentLocation, Connection, Granted), Refusal> {
        let text = want.rigs.first().map(String::as_str).unwrap_or_default();
        let (host, selector) = split(text);
        let want = Want { rigs: vec![selector.clone()], ..want.clone() };
        let places: Vec<AgentLocation> = match host {
            Some(host) => vec![self.named(host).await?],
            None if self.is_alone() || !selector.starts_with("rig:") => vec![self.here.clone()],
            None => {
                let matching = self.matching_in_time(&selector, &want).await?;
                if want.count > 1 && !matching.iter().any(|found| found.rigs.len() >= want.count) {
                    let each = matching
                        .iter()
                        .map(|found| format!("{} on {}", found.rigs.len(), found.place.host().unwrap_or(HERE)));
                    return Err(Refusal::usage(format!(
                        "{} rigs are wanted, and one host must have all of them, since it grants them together; there are {}",
                        want.count,
                        each.collect::<Vec<_>>().join(", ")
                    )));
                }
                let enough = matching.into_iter().filter(|found| found.rigs.len() >= want.count);
                enough.map(|found| found.place).collect()
            }
        };
        if want.is_raw && places.iter().any(|place| place.remote.is_some()) {
            return Err(Refusal::usage(
                "--raw: the command opens the port itself, and the rig may be on another host; write rig:localhost/NAME",
            ));
        }
        if let [place] = places.as_slice() {
            let (connection, granted) = client::acquire(place, &want, tell).await?;
            return Ok((place.clone(), connection, granted));
        }
        let first = Arc::new(First::default());
        let (told, mut telling) = mpsc::unbounded_channel();
        let mut asking = JoinSet::new();
        for place in places {
            let (want, first, told) = (want.clone(), Arc::clone(&first), told.clone());
            asking.spawn(async move {
                let name = place.host().unwrap_or(HERE).to_owned();
                let tell = |place: u64, why: &str| drop(told.send((place, format!("on {name}: {why}"))));
                let (connection, granted) = client::acquire_first(&place, &want, &first, tell).await?;
                Ok::<_, Refusal>((place, connection, granted))
            });
        }
        drop(told);
        let mut refused: Vec<Refusal> = Vec::new();
        loop {
            tokio::select! {
                Some((place, why)) = telling.recv() => tell(place, &why),
                done = asking.join_next() => match done {
                    Some(Ok(Ok(granted))) => return Ok(granted),
                    Some(Ok(Err(refusal))) => refused.push(refusal),
                    Some(Err(error)) => refused.push(Refusal::refused(error.to_string())),
                    None => break,
                },
            }
        }
        // That the wait is over says most.
        let code = if refused.iter().any(|refusal| refusal.code == 124) { 124 } else { 3 };
        let whys: Vec<String> = refused.into_iter().map(|refusal| refusal.why).collect();
        Err(Refusal { code, why: whys.join("; ") })
    }

    /// How many of `count` rigs are taken from which hosts, in the order of the hosts' names: all who take several rigs in this order wait for each
    /// other, and never for themselves.
    ///
    /// # Errors
    /// There are not so many.
    pub(crate) async fn spread(&self, selector: &str, count: usize) -> Result<Vec<(AgentLocation, usize)>, Refusal> {
        let mut matching = self.matching(selector, count.max(2)).await?;
        let all: usize = matching.iter().map(|found| found.rigs.len()).sum();
        if all < count {
            return Err(Refusal::usage(format!("{count} rigs are wanted, and {all} match on the hosts that answer")));
        }
        let mut left = count;
        let mut taken: Vec<usize> = matching
            .iter()
            .map(|found| {
                let free = found.rigs.iter().filter(|(_, is_free)| *is_free).count().min(left);
                left -= free;
                free
            })
            .collect();
        for (found, taken) in matching.iter().zip(&mut taken) {
            let more = (found.rigs.len() - *taken).min(left);
            left -= more;
            *taken += more;
        }
        let places = matching.drain(..).map(|found| found.place).zip(taken);
        Ok(places.filter(|(_, count)| *count > 0).collect())
    }
}

/// Asks one host, and tells what it answers.
async fn ask(
    place: AgentLocation,
    tell: mpsc::UnboundedSender<HostAnswer>,
    method: &'static str,
    params: Value,
    given_up: Option<Instant>,
) {
    let began = Instant::now();
    let asked = async {
        let mut agent = Connection::open(&place).await?;
        agent.ask(method, params).await
    };
    let answer = match given_up {
        Some(given_up) => timeout_at(given_up, asked).await.map_err(|_| silent(&place, began)),
        None => Ok(asked.await),
    };
    let answer = answer.and_then(|answer| answer.map_err(Refusal::from));
    let _ = tell.send(HostAnswer { host: place.host().map(str::to_owned), place: Some(place), answer });
}

/// A host with rigs that are meant.
struct Matching {
    place: AgentLocation,
    /// Their names, and whether they are free.
    rigs: Vec<(String, bool)>,
}

impl Matching {
    fn of(place: AgentLocation, found: &Value) -> Self {
        let rigs = found.get("rigs").and_then(Value::as_array).into_iter().flatten();
        let rigs = rigs.map(|rig| {
            let name = rig.get("name").and_then(Value::as_str).unwrap_or_default();
            (name.to_owned(), rig.get("state").and_then(Value::as_str) == Some("free"))
        });
        Self { rigs: rigs.collect(), place }
    }
}

fn silent(place: &AgentLocation, began: Instant) -> Refusal {
    let waited = began.elapsed().as_secs_f64();
    Refusal::refused(format!("{}: no answer within {waited:.1} s", place.host().unwrap_or(HERE)))
}

/// Why no host has such a rig.
fn nothing(selector: &str, refused: &[(Option<String>, String)], silent: &[String]) -> Refusal {
    let mut whys: Vec<String> =
        refused.iter().map(|(host, why)| format!("{}: {why}", host.as_deref().unwrap_or(HERE))).collect();
    if silent.is_empty() {
        return Refusal::usage(format!("{selector} is on no host. {}", whys.join("; ")));
    }
    // It may be on one of those.
    whys.extend(silent.iter().cloned());
    Refusal::refused(format!("{selector} is on no host that answers. {}", whys.join("; ")))
}

/// The host of `rig:HOST/REST`, and the same without it.
pub fn split(selector: &str) -> (Option<&str>, String) {
    match selector.strip_prefix("rig:").and_then(|rig| rig.split_once('/')) {
        Some((host, rest)) if is_name(host) => (Some(host), format!("rig:{rest}")),
        _ => (None, selector.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn hosts(list: &[&str]) -> Result<Hosts, String> {
        let place = AgentLocation::here(Folders::all_in("/nowhere".into()), "/bin/false".into());
        let hosts = list.iter().map(|text| (*text).to_owned()).collect();
        Hosts::of_list(place, &List { hosts, creds: None, ca: None })
    }

    #[test]
    fn hosts_have_the_names_of_their_destinations_and_wrong_ones_are_named() {
        let known = hosts(&["ssh:lab1", "ssh:rig@lab2.example.org", "bench=ssh:me@10.0.0.7", "nats://ann@lab:4222"]);
        let known = known.unwrap();
        assert_eq!(known.named.keys().collect::<Vec<_>>(), ["bench", "lab1", "lab2.example.org"]);
        assert_eq!(known.servers.len(), 1);
        for (list, why) in [
            (vec!["lab1"], "`lab1` is no host"),
            (vec!["ssh:"], "`ssh:` is no host"),
            (vec!["ssh:lab1", "ssh:me@lab1"], "two hosts have the name lab1"),
            (vec!["a b=ssh:x"], "the host's name `a b`"),
            (vec!["localhost=ssh:x"], "or is this host's"),
            (vec!["http://lab"], "is neither nats:// nor tls://"),
        ] {
            let found = hosts(&list).unwrap_err();
            assert!(found.contains(why), "{list:?}: {found}");
        }
        let many: Vec<String> = (0..=MOST).map(|number| format!("ssh:lab{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(hosts(&many).unwrap_err().contains("101 hosts, and there may be 100"));
    }

    #[test]
    fn a_wrong_list_of_hosts_is_refused_with_its_name_and_its_files_are_in_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lab.toml");
        assert_eq!(read(&file).unwrap().hosts, [""; 0]);
        fs::write(&file, "hosts = ['ssh:lab1']\ncreds = 'ann.nk'\n").unwrap();
        assert_eq!(read(&file).unwrap().creds.unwrap(), folder.path().join("ann.nk"));
        for (text, why) in
            [("host = []", "unknown field `host`"), ("hosts = [1]", "invalid type"), ("hosts = [", "TOML")]
        {
            fs::write(&file, text).unwrap();
            let found = read(&file).unwrap_err();
            assert!(found.starts_with(&file.display().to_string()) && found.contains(why), "{text}: {found}");
        }
    }

    #[test]
    fn a_selector_may_name_its_host() {
        for (text, host, rest) in [
            ("rig:lab1/pico", Some("lab1"), "rig:pico"),
            ("rig:lab1/board=pico,place=a", Some("lab1"), "rig:board=pico,place=a"),
            ("rig:pico", None, "rig:pico"),
            ("rig:path=/dev/x", None, "rig:path=/dev/x"),
            ("serial:/dev/ttyACM0", None, "serial:/dev/ttyACM0"),
        ] {
            assert_eq!(split(text), (host, rest.to_owned()), "{text}");
        }
    }
}
