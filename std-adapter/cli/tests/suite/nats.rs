//! Rigs of other hosts over NATS, with the real server.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rigline_test_support::skipped;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::hosts::{Bridge, ON, heard, is_there, run, sims};
use super::lab::{Lab, ended, rigline, said, until};

/// The server's program: the one that `NATS_SERVER` names, the one that `.ci/nats.sh` has installed, or one on the path.
fn program() -> Option<PathBuf> {
    let installed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../nats/bin/nats-server");
    let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
    let found = named.or_else(|| installed.exists().then_some(installed));
    let found = found.or_else(|| is_there("nats-server").then(|| "nats-server".into()));
    if found.is_none() {
        skipped("rigs over NATS", "there is no nats-server", "bash .ci/nats.sh");
    }
    found
}

/// A server, its users, and hosts: labs of their own on this machine.
struct Nats {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    server: Option<Child>,
    user: Lab,
    hosts: BTreeMap<String, (Lab, Child)>,
}

/// A user who may do everything, to listen and to disturb.
const TAP: &str = "tap";

impl Nats {
    fn new() -> Option<Self> {
        Self::with("")
    }

    /// With a user `ann`, hosts `lab1` to `lab3`, and further lines of the server's configuration.
    fn with(more: &str) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut this = Self { program, folder, port, server: None, user: Lab::new(), hosts: BTreeMap::new() };
        let mut users = String::new();
        for user in ["ann", "bob"] {
            let key = this.key(user);
            users += &format!(
                "  {{ nkey: {key}, permissions: {{ publish: [\"lab.v1.host.*.link.{user}\", \"lab.v1.all.who.{user}\"], subscribe: [\"_INBOX.{user}.>\"] }} }}\n"
            );
        }
        for host in ["lab1", "lab2", "lab3"] {
            let key = this.key(host);
            users += &format!(
                "  {{ nkey: {key}, permissions: {{ publish: [\"_INBOX.>\", \"lab.v1.host.{host}.agent.{host}\"], subscribe: [\"lab.v1.host.{host}.>\", \"lab.v1.all.>\"] }} }}\n"
            );
        }
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\n{more}\nauthorization {{ users = [\n{users}  {{ user: {TAP}, password: {TAP} }}\n] }}\n"
        );
        fs::write(this.path("nats.conf"), config).unwrap();
        this.start();
        Some(this)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a key, and returns its public half.
    fn key(&self, name: &str) -> String {
        let file = self.path(&format!("{name}.nk"));
        let (code, key) = self.user.said(&["lab", "key", file.to_str().unwrap()]);
        assert_eq!(code, 0, "{key}");
        key.trim().to_owned()
    }

    fn start(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.path("nats.conf")).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(command.spawn().unwrap());
        let port = self.port;
        until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    fn url(&self, user: &str) -> String {
        format!("nats://{user}@127.0.0.1:{}", self.port)
    }

    fn agent(&self, lab: &Lab, host: &str) -> Command {
        let key = self.path(&format!("{host}.nk"));
        let mut command =
            lab.command(&["lab", "agent", "--nats", &self.url(host), "--creds", key.to_str().unwrap(), "--name", host]);
        command.stdout(Stdio::null());
        command
    }

    /// A host with simulated rigs.
    fn host(&mut self, host: &str, rigs: &[&str]) {
        let lab = Lab::new();
        fs::write(lab.path("rigs.toml"), sims(&lab, rigs, "sim")).unwrap();
        let agent = self.agent(&lab, host).stderr(Stdio::null()).spawn().unwrap();
        self.hosts.insert(host.to_owned(), (lab, agent));
        until("its agent is there", || self.said(&["lab", "list"]).1.contains(&format!("{host}/{}", rigs[0])));
    }

    fn lab(&self, host: &str) -> &Lab {
        &self.hosts[host].0
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of("ann", args)
    }

    fn command_of(&self, user: &str, args: &[&str]) -> Command {
        let mut command = self.user.command(args);
        command.env("RIGLINE_LAB", self.url(user)).env("RIGLINE_LAB_CREDS", self.path(&format!("{user}.nk")));
        command
    }

    fn said(&self, args: &[&str]) -> (i32, String) {
        said(&self.command(args).output().unwrap())
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
        for (_, agent) in self.hosts.values_mut() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
    }
}

#[test]
fn rigs_over_nats_are_listed_leased_and_called_by_those_who_may() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1", "a2"]);
    lab.host("lab2", &["b1"]);
    // On a busy machine one may not answer in time.
    until("both are listed", || {
        let (code, said) = lab.said(&["lab", "list", "--json"]);
        code == 0 && said.contains("lab1/a2") && said.contains("lab2/b1")
    });
    for rig in ["rig:lab1/a1", "rig:b1", "rig:kind=sim"] {
        let (code, said) = lab.said(&["call", rig, "measure", "channel=3V3", "--json", "--wait", "20s"]);
        assert!(code == 0 && said.contains("volts"), "{rig}: {code}: {said}");
    }
    // Whose lease it is, the server's permissions say; it is no other user's.
    let hold = "touch $FOLDER/started; while [ ! -e $FOLDER/go ]; do sleep 0.02; done; echo $RIGLINE_LEASE";
    let holder = lab.command(&["lock", "rig:lab1/a1", "--wait", "20s", "--", "sh", "-c", hold]).spawn().unwrap();
    lab.user.wait_for("started");
    let status = lab.lab("lab1").status();
    let lease = &status["rigs"][0]["lease"];
    assert!(lease["holder"].as_str().unwrap().starts_with("ann on "), "{lease}");
    let bob = |args: &[&str]| super::lab::said(&lab.command_of("bob", args).output().unwrap());
    let (code, said) = bob(&["lab", "break", "lab1/a1", "--reason", "mine"]);
    assert!(code == 3 && said.contains("only administrators"), "{code}: {said}");
    let (code, said) = bob(&["lab", "quarantine", "lab1/a1", "--reason", "mine"]);
    assert!(code == 3 && said.contains("only administrators"), "{code}: {said}");
    let mut joins = lab.command_of("bob", &["call", "rig:lab1/a1", "measure", "channel=3V3"]);
    joins.env("RIGLINE_LEASE", format!("lab1/{}", lease["id"].as_str().unwrap()));
    let (code, said) = super::lab::said(&joins.output().unwrap());
    assert!(code == 3 && said.contains("the lease is ann on "), "{code}: {said}");
    let (code, said) = bob(&["call", "rig:lab1/a1", "measure", "channel=3V3"]);
    assert!(code == 3 && said.contains("ann on ") && said.contains(" has a1 for "), "{code}: {said}");
    fs::write(lab.user.path("go"), "").unwrap();
    assert_eq!(ended(holder).0, 0);
    for host in ["lab1", "lab2"] {
        until("all are free", || {
            lab.lab(host).status()["rigs"].as_array().unwrap().iter().all(|rig| rig["state"] == "free")
        });
        lab.lab(host).is_in_order();
    }
}

#[test]
fn the_rigs_of_a_living_host_are_listed_in_a_second_beside_three_dead_ones() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let ssh = lab.path("ssh");
    fs::write(&ssh, "#!/bin/sh\nexec sleep 60\n").unwrap();
    // The best of a few times counts, since other tests run meanwhile.
    let mut found = Vec::new();
    for _ in 0..8 {
        let mut command = lab.command(&["lab", "list"]);
        command.env("RIGLINE_SSH", format!("sh {}", ssh.display()));
        command.env("RIGLINE_LAB", format!("{},ssh:dead1,ssh:dead2,ssh:dead3", lab.url("ann")));
        let plain = Instant::now();
        lab.user.run(&["--version"]);
        let plain = plain.elapsed();
        let started = Instant::now();
        let (code, text) = said(&command.output().unwrap());
        // Beside a command that has nothing to do.
        let took = started.elapsed().saturating_sub(plain);
        assert!(code == 0 && text.contains("dead2: no answer within"), "{code}: {text}");
        if text.contains("lab1/a1") && took < Duration::from_secs(1) {
            return;
        }
        found.push((took, text));
    }
    panic!("not within a second: {found:?}");
}

#[test]
fn nobody_runs_a_program_on_another_host_by_nats() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use rigline_lab::client::{Connection, AgentError};
        let file = lab.user.path("lab.toml");
        fs::write(file, format!("hosts = [{:?}]\ncreds = {:?}\n", lab.url("ann"), lab.path("ann.nk"))).unwrap();
        let folders = rigline_lab::folders::Folders::all_in(lab.user.path(""));
        let hosts = rigline_lab::hosts::Hosts::of_user(folders, "/bin/false".into(), None).unwrap();
        let place = hosts.named("lab1").await.unwrap();
        let mut agent = Connection::open(&place).await.unwrap();
        let target = format!("exec:/usr/bin/touch {}", lab.path("ran").display());
        let ask = json!({ "request": "r", "rigs": [target], "count": 1, "wait": null, "since": 0, "ttl": 1000, "idle": 0, "is_raw": false, "purpose": "" });
        for (method, params) in [
            ("lock", ask),
            ("check", json!({ "rig": target })),
            ("status", json!({ "rig": target })),
            ("select", json!({ "selector": target })),
            // Who is at the other end was said by the one who knows it.
            ("hello", json!({ "protocol": rigline_lab::agent::PROTOCOL, "far": { "user": "root", "machine": "m", "pid": 1, "via": "nats", "is_vouched": false, "is_admin": true } })),
        ] {
            let refused = agent.ask(method, params).await;
            let Err(AgentError::Refused(refusal)) = refused else { panic!("{method}: {refused:?}") };
            assert!(refusal.why.contains("users over NATS") || refusal.why.contains("is said already"), "{method}: {refusal:?}");
        }
    });
    assert!(!lab.path("ran").exists());
}

#[test]
fn what_is_sent_while_the_server_is_down_is_never_run_late() {
    // nats-io/nats.rs#182
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let mut bridge = Bridge::new(lab.command(&["bridge", "rig:lab1/a1"]));
    bridge.execute(2, "measure", r#"{"channel":"3V3"}"#);
    assert!(bridge.reply(Duration::from_secs(20)).contains("\"result\""));
    lab.kill();
    bridge.execute(3, "power", ON);
    // Longer than what is sent is of use.
    thread::sleep(Duration::from_secs(6));
    lab.start();
    let line = bridge.reply(Duration::from_secs(30));
    assert!(line.contains("error"), "{line}");
    bridge.end();
    // A command that begins meanwhile gives up, and nothing of it is left.
    lab.kill();
    let started = Instant::now();
    let call = ["call", "rig:lab1/a1", "power", "rail=3V3", "on=true", "--timeout", "1s", "--start-timeout", "1s"];
    let (code, said) = lab.said(&call);
    assert!(code == 124 || code == 3, "{code}: {said}");
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    lab.start();
    until("the host is there again", || lab.said(&["lab", "list"]).1.contains("lab1/a1"));
    until("it is free", || lab.lab("lab1").state("a1") == "free");
    let heard = heard(lab.lab("lab1"), "a1");
    assert!(!heard.contains("\"power\""), "{heard}");
    let (code, said) = lab.said(&["call", "rig:lab1/a1", "measure", "channel=3V3", "--wait", "20s"]);
    assert!(code == 0 && said.contains("volts"), "{code}: {said}");
}

#[test]
fn a_call_that_the_server_is_killed_in_ends_once_and_the_lease_goes_on() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let mut bridge = Bridge::new(lab.command(&["bridge", "rig:lab1/a1"]));
    for number in 0..3 {
        lab.kill();
        bridge.execute(10 + number, "power", ON);
        thread::sleep(Duration::from_millis(300));
        lab.start();
        let line = bridge.reply(Duration::from_secs(20));
        assert!(line.contains("\"result\""), "{line}");
    }
    assert_eq!(lab.lab("lab1").state("a1"), "leased");
    bridge.end();
    let heard = heard(lab.lab("lab1"), "a1");
    assert_eq!(heard.matches("\"power\"").count(), 3, "{heard}");
}

/// A connection of a user who may do everything at the server.
async fn tap(lab: &Nats) -> async_nats::Client {
    let options = async_nats::ConnectOptions::with_user_and_password(TAP.into(), TAP.into());
    options.connect(format!("127.0.0.1:{}", lab.port)).await.unwrap()
}

async fn next(subscriber: &mut async_nats::Subscriber) -> Option<async_nats::Message> {
    use futures_core::Stream as _;
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *subscriber).poll_next(cx)).await
}

#[test]
fn a_message_that_comes_twice_is_run_once() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let repeated = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&repeated);
    let (client, mut all) = runtime.block_on(async {
        let client = tap(&lab).await;
        let all = client.subscribe("lab.v1.host.lab1.link.ann").await.unwrap();
        client.flush().await.unwrap();
        (client, all)
    });
    runtime.spawn(async move {
        let mut known = std::collections::BTreeSet::new();
        while let Some(message) = next(&mut all).await {
            // Each once more, and not what this has sent itself.
            if known.insert(message.payload.to_vec()) {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                client.publish_with_reply(message.subject, message.reply.unwrap(), message.payload).await.unwrap();
            }
        }
    });
    let mut bridge = Bridge::new(lab.command(&["bridge", "rig:lab1/a1"]));
    for number in 0..10 {
        bridge.execute(10 + number, "power", ON);
        let line = bridge.reply(Duration::from_secs(20));
        assert!(line.contains("\"result\""), "{line}");
    }
    bridge.end();
    assert!(repeated.load(std::sync::atomic::Ordering::Relaxed) > 20);
    let heard = heard(lab.lab("lab1"), "a1");
    assert_eq!(heard.matches("\"power\"").count(), 10, "{heard}");
    let log = lab.lab("lab1").run(&["lab", "log", "a1", "--json"]);
    assert_eq!(String::from_utf8_lossy(&log.stdout).matches("\"granted\"").count(), 1, "{log:?}");
}

/// Runs a command, which must end half a second after one that has nothing to do. Returns its exit code and its output.
/// The best of a few times counts, since other tests run meanwhile.
fn told_at_once(mut command: Command, idle: &mut Command) -> (i32, String) {
    let mut took = Vec::new();
    for _ in 0..5 {
        let plain = Instant::now();
        idle.output().unwrap();
        let plain = plain.elapsed();
        let started = Instant::now();
        let output = command.output().unwrap();
        let more = started.elapsed().saturating_sub(plain);
        if more < Duration::from_millis(500) {
            return said(&output);
        }
        took.push((more, said(&output)));
    }
    panic!("not within half a second: {took:?}");
}

#[test]
fn what_the_server_refuses_is_told_at_once() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let idle = || lab.user.command(&["--version"]);
    let measure = ["call", "rig:lab1/a1", "measure", "channel=3V3"];
    // Another user's name: bob's key may not publish what is ann's.
    let mut command = lab.command(&measure);
    command.env("RIGLINE_LAB_CREDS", lab.path("bob.nk"));
    let (code, said) = told_at_once(command, &mut idle());
    assert!(
        code == 3 && said.contains("the server refuses it to the user ann") && said.contains("Permissions Violation"),
        "{code}: {said}"
    );
    // A key that the server does not know.
    let stranger = lab.path("stranger.nk");
    assert_eq!(lab.user.said(&["lab", "key", stranger.to_str().unwrap()]).0, 0);
    let mut command = lab.command(&measure);
    command.env("RIGLINE_LAB_CREDS", &stranger);
    let (code, said) = told_at_once(command, &mut idle());
    assert!(code == 3 && said.contains("the server refuses the user ann"), "{code}: {said}");
    // A file that is none.
    let mut command = lab.command(&measure);
    command.env("RIGLINE_LAB_CREDS", lab.path("nats.conf"));
    let (code, said) = told_at_once(command, &mut idle());
    assert!(code == 3 && said.contains("nats.conf: it is neither credentials of NATS nor the seed"), "{code}: {said}");
    // An agent with another host's name.
    let other = Lab::new();
    let key = lab.path("lab2.nk");
    let command = other.command(&[
        "lab",
        "agent",
        "--nats",
        &lab.url("lab2"),
        "--creds",
        key.to_str().unwrap(),
        "--name",
        "lab3",
    ]);
    let (code, said) = told_at_once(command, &mut idle());
    assert!(code == 3 && said.contains("Permissions Violation"), "{code}: {said}");
}

#[test]
fn a_second_agent_of_a_name_is_refused_at_once_and_the_first_one_goes_on() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let twin = Lab::new();
    let (code, said) = told_at_once(lab.agent(&twin, "lab1"), &mut lab.user.command(&["--version"]));
    assert!(code == 3 && said.contains("another agent is lab1 at nats://127.0.0.1:"), "{code}: {said}");
    let (code, said) = lab.said(&["call", "rig:lab1/a1", "measure", "channel=3V3", "--wait", "20s"]);
    assert!(code == 0 && said.contains("volts"), "{code}: {said}");
}

#[test]
fn another_version_at_the_other_end_is_named_at_once() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    // A command of another version gets a refusal, whose layout no version changes.
    let answer = runtime.block_on(async {
        let client = tap(&lab).await;
        let mut inbox = client.subscribe("_INBOX.ann.x").await.unwrap();
        let message = [&[9, 0][..], &[7; 16], b"whatever"].concat();
        client.publish_with_reply("lab.v1.host.lab1.link.ann", "_INBOX.ann.x", message.into()).await.unwrap();
        tokio::time::timeout(Duration::from_millis(500), next(&mut inbox)).await.unwrap().unwrap().payload
    });
    assert_eq!((&answer[1], &answer[2..18]), (&5, &[7; 16][..]));
    let refusal: Value = serde_json::from_slice(&answer[18..]).unwrap();
    assert!(refusal["why"].as_str().unwrap().contains("those of the command are of version 9"), "{refusal}");
    // A host of another version answers with messages of its own.
    let mut old = runtime.block_on(async {
        let client = tap(&lab).await;
        let subscriber = client.subscribe("lab.v1.host.old.link.ann").await.unwrap();
        client.flush().await.unwrap();
        (client, subscriber)
    });
    runtime.spawn(async move {
        while let Some(message) = next(&mut old.1).await {
            let answer = [&[2, 1][..], &message.payload[2..18], b"other"].concat();
            old.0.publish(message.reply.unwrap(), answer.into()).await.unwrap();
        }
    });
    let command = lab.command(&["call", "rig:old/a1", "measure", "channel=3V3"]);
    let (code, said) = told_at_once(command, &mut lab.user.command(&["--version"]));
    assert!(
        code == 3 && said.contains("old: it is of another version of rigline, whose messages are of version 2"),
        "{code}: {said}"
    );
}

#[test]
fn long_messages_pass_a_server_with_a_small_limit_in_parts_and_a_smaller_limit_is_told() {
    let Some(mut lab) = Nats::with("max_payload: 2048") else { return };
    lab.host("lab1", &["a1"]);
    // The manifest is longer than that.
    let (code, said) = lab.said(&["describe", "rig:lab1/a1", "--json"]);
    assert!(code == 0 && said.len() > 4096 && said.contains("measure"), "{code}: {said}");
    let Some(lab) = Nats::with("max_payload: 512") else { return };
    let (code, said) = lab.said(&["call", "rig:lab1/a1", "measure"]);
    assert!(code == 3 && said.contains("max_payload is 512 bytes, and rigline needs 1024"), "{code}: {said}");
}

#[test]
#[allow(clippy::too_many_lines, reason = "the certificates are made by a program with many options")]
fn the_configuration_of_the_guide_is_accepted_by_the_server_and_serves_a_lab_by_tls() {
    let Some(program) = program() else { return };
    if !is_there("openssl") {
        skipped("NATS over TLS", "openssl is not installed", "apt-get install openssl");
        return;
    }
    let guide = include_str!("../../../lab/src/guide/hosts.md");
    let config = guide.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(config.contains("authorization"), "{config}");
    let mut lab = Nats::new().unwrap();
    lab.kill();
    let folder = lab.folder.path().to_owned();
    let at = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    // An authority, and what it has signed for the server.
    let subject = ["-subj", "/CN=lab"];
    run(
        "openssl",
        &[
            &[
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-keyout",
                &at("ca-key.pem"),
                "-out",
                &at("ca.pem"),
                "-addext",
                "basicConstraints=critical,CA:TRUE",
            ][..],
            &subject,
        ]
        .concat(),
    );
    run(
        "openssl",
        &[
            &[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-keyout",
                &at("server-key.pem"),
                "-out",
                &at("server.csr"),
            ][..],
            &subject,
        ]
        .concat(),
    );
    fs::write(lab.path("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    run(
        "openssl",
        &[
            "x509",
            "-req",
            "-in",
            &at("server.csr"),
            "-CA",
            &at("ca.pem"),
            "-CAkey",
            &at("ca-key.pem"),
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            &at("ext"),
            "-out",
            &at("server.pem"),
        ],
    );
    // The keys of the guide are places for one's own.
    let mut config = config.replace("0.0.0.0:4222", &format!("127.0.0.1:{}", lab.port));
    for name in ["ann", "lab1"] {
        let key = lab.key(&format!("own-{name}"));
        let place = format!("KEY-OF-{}", name.to_uppercase());
        assert!(config.contains(&place), "{config}");
        config = config.replace(&place, &key);
    }
    for file in ["server.pem", "server-key.pem"] {
        config = config.replace(&format!("\"{file}\""), &format!("{:?}", at(file)));
    }
    fs::write(lab.path("nats.conf"), config).unwrap();
    run(program.to_str().unwrap(), &["-t", "-c", &at("nats.conf")]);
    lab.start();
    let host = Lab::new();
    fs::write(host.path("rigs.toml"), sims(&host, &["a1"], "sim")).unwrap();
    let url = |user: &str| format!("tls://{user}@localhost:{}", lab.port);
    let (ca, key) = (at("ca.pem"), at("own-lab1.nk"));
    let args = ["lab", "agent", "--nats", &url("lab1"), "--creds", &key, "--ca", &ca, "--name", "lab1"];
    let mut agent = host.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let call = |ca: &str| {
        let mut command = lab.user.command(&["call", "rig:lab1/a1", "measure", "channel=3V3", "--wait", "20s"]);
        command.env("RIGLINE_LAB", url("ann")).env("RIGLINE_LAB_CREDS", at("own-ann.nk")).env("RIGLINE_LAB_CA", ca);
        said(&command.output().unwrap())
    };
    let mut found = (0, String::new());
    until("it is called", || {
        found = call(&ca);
        found.0 == 0
    });
    assert!(found.1.contains("volts"), "{found:?}");
    // A server that another authority has signed is not trusted.
    fs::rename(lab.path("ca.pem"), lab.path("old.pem")).unwrap();
    run(
        "openssl",
        &[
            &[
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-keyout",
                &at("ca-key.pem"),
                "-out",
                &at("ca.pem"),
            ][..],
            &subject,
        ]
        .concat(),
    );
    let (code, said) = call(&at("ca.pem"));
    assert!(code == 3 && said.to_lowercase().contains("certificate"), "{code}: {said}");
    let _ = agent.kill();
    let _ = agent.wait();
}

#[test]
#[ignore = "a measurement: .ci/long runs it"]
fn what_nats_adds_to_a_call() {
    let Some(mut lab) = Nats::new() else { return };
    lab.host("lab1", &["a1"]);
    let near = Lab::new();
    fs::write(near.path("rigs.toml"), sims(&near, &["a1"], "sim")).unwrap();
    let direct = format!("exec:sh -c 'tee -a {} | {} rig'", near.path("log").display(), rigline().display());
    let measure = |command: Command| {
        let mut bridge = Bridge::new(command);
        let mut times: Vec<Duration> = (0..1000)
            .map(|_| {
                let started = Instant::now();
                bridge.execute(2, "measure", r#"{"channel":"3V3","samples":1}"#);
                let line = bridge.reply(Duration::from_secs(20));
                assert!(line.contains("\"result\""), "{line}");
                started.elapsed()
            })
            .collect();
        bridge.end();
        times.sort();
        times[times.len() / 2]
    };
    // In turns, so that what else the machine does is the same for all.
    let mut all: [Vec<Duration>; 3] = Default::default();
    for _ in 0..3 {
        all[0].push(measure(near.command(&["bridge", &direct])));
        all[1].push(measure(near.command(&["bridge", "rig:a1"])));
        all[2].push(measure(lab.command(&["bridge", "rig:lab1/a1"])));
    }
    let [direct, agent, nats] = all.map(|mut times| {
        times.sort();
        times[1]
    });
    let added = nats.saturating_sub(direct);
    let ratio = nats.as_secs_f64() / direct.as_secs_f64();
    eprintln!("\n| a call, median | through this host's agent | through NATS | added by NATS | ratio |");
    eprintln!("|---:|---:|---:|---:|---:|");
    eprintln!("| {direct:.0?} | {agent:.0?} | {nats:.0?} | {added:.0?} | {ratio:.2} |");
    if std::env::var_os("RIGLINE_BINARY").is_some() || !cfg!(debug_assertions) {
        assert!(added < Duration::from_millis(1), "{added:?} more for a call");
    }
}
