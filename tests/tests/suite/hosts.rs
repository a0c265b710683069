//! Rigs of several hosts over NATS, while the server is killed and an agent stands still: who had them is read in the rigs' own logs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rigline_test_support::skipped;
use rigline_tests::emulator::Emulator;
use rigline_tests::session::rigline;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::lab::{Lab, Port, heard, samples, until};

/// A server whose store is in a folder of its own.
struct Server {
    program: PathBuf,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn new() -> Option<Self> {
        let installed = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../nats/bin/nats-server");
        let named = std::env::var_os("NATS_SERVER").map(PathBuf::from);
        let Some(program) = named.or_else(|| installed.exists().then_some(installed)) else {
            skipped("rigs of several hosts over NATS", "there is no nats-server", "bash .ci/nats.sh");
            return None;
        };
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { program, folder: tempfile::tempdir().unwrap(), port, child: None };
        server.start();
        Some(server)
    }

    fn start(&mut self) {
        let store = self.folder.path().join("store");
        let mut command = Command::new(&self.program);
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-js", "-sd"]).arg(store);
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    fn kill(&mut self, loses_store: bool) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        if loses_store {
            let _ = fs::remove_dir_all(self.folder.path().join("store"));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill(false);
    }
}

struct Host {
    name: String,
    lab: Lab,
    agent: Child,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

/// The plan of [`many`].
struct Plan<'a> {
    hosts: usize,
    sims: usize,
    board: Option<&'a Emulator>,
    clients: usize,
    leases: usize,
    kill_every: Duration,
    /// After which time the first host's agent stands still, and for how long.
    pause: Option<(Duration, Duration)>,
}

/// A finding: a row of a table.
struct Found {
    rigs: usize,
    kills: usize,
    tries: usize,
    took: Duration,
}

/// Starts the hosts with their rigs, whose agents connect to the server at this port.
fn start(plan: &Plan<'_>, port: Option<&Port>, server: u16) -> Vec<Host> {
    let mut hosts: Vec<Host> = Vec::new();
    for number in 1..=plan.hosts {
        let (name, lab) = (format!("lab{number}"), Lab::new("", None));
        let mut rigs: String = (1..=plan.sims)
            .map(|number| {
                let (log, program) = (lab.path(&format!("heard-{number}")), rigline());
                let (log, program) = (log.display(), program.display());
                format!("[[rig]]\nname = 'sim{number}'\ntarget = \"exec:sh -c 'tee -a {log} | {program} rig'\"\ntags = {{ kind = 'any' }}\n")
            })
            .collect();
        if let (Some(port), 1) = (port, number) {
            let path = port.path();
            rigs +=
                &format!("[[rig]]\nname = 'board'\ntarget = 'serial:{}'\ntags = {{ kind = 'any' }}\n", path.display());
        }
        fs::write(lab.path("rigs.toml"), rigs).unwrap();
        let mut agent = lab.command(&["lab", "agent", "--nats", &url(&name, server), "--name", &name]);
        let agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        hosts.push(Host { name, lab, agent });
    }
    hosts
}

/// Holds the rigs' own logs against the results.
fn judge(plan: &Plan<'_>, hosts: &[Host], user: &Lab, board_log: &str) {
    // Who was where, in the rigs' own order.
    let mut homes: BTreeMap<u32, String> = BTreeMap::new();
    let mut check = |rig: String, log: &str| {
        let mut order = samples(log);
        order.dedup();
        for number in order {
            let before = homes.insert(number, rig.clone());
            assert_eq!(before, None, "{number} was at {rig} again after others: {:?}", samples(log));
        }
    };
    for host in hosts {
        for number in 1..=plan.sims {
            let log = fs::read_to_string(host.lab.path(&format!("heard-{number}"))).unwrap_or_default();
            check(format!("{}/sim{number}", host.name), &log);
        }
    }
    check("lab1/board".to_owned(), board_log);
    let text = fs::read_to_string(user.path("results")).unwrap();
    let results = text.lines().map(|line| line.split_once(' ').unwrap());
    let results: BTreeMap<u32, String> =
        results.map(|(number, rig)| (number.parse().unwrap(), rig.to_owned())).collect();
    assert_eq!(results.len(), plan.leases, "a result is lost");
    assert_eq!(text.lines().count(), plan.leases, "a result is there twice");
    assert_eq!(results, homes);
    for host in hosts {
        until("all rigs are free and the books are in order", || host.lab.said(&["lab", "check"]).0 == 0);
    }
}

/// Clients take leases of the rigs of several hosts, while the server is killed again and again, the second time with its store. Each holder
/// measures, with a number of its own, switches a rail on, and measures again; when the way is lost in the middle of a call, it asks again.
/// The rigs' own logs tell whether two holders were at one rig, and each result must be there once.
fn many(plan: &Plan<'_>) -> Option<Found> {
    let mut server = Server::new()?;
    let user = Lab::new("", None);
    let port = plan.board.map(Port::of);
    let hosts = start(plan, port.as_ref(), server.port);
    plan.board.map(heard);
    let port_number = server.port;
    let command = |user_of: &str, args: &[&str]| {
        let mut command = user.command(args);
        command.env("RIGLINE_LAB", url(user_of, port_number));
        command
    };
    let names: Vec<String> = hosts.iter().map(|host| format!("{}/sim1", host.name)).collect();
    until("all hosts are there", || {
        let listed = command("ann", &["lab", "list"]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        names.iter().all(|name| listed.contains(name.as_str()))
    });
    let script = "again() { until $RIGLINE call rig:$RIGLINE_RIGS \"$@\" --start-timeout 40s > $FOLDER/said-$number 2>> $FOLDER/tries; do sleep 0.1; done; }; \
        number=$0; again measure channel=3V3 samples=$number; again power rail=3V3 on=true; again measure channel=3V3 samples=$number; \
        echo $number $RIGLINE_RIGS >> $FOLDER/results";
    let started = Instant::now();
    let (left, next) = (AtomicUsize::new(plan.clients), AtomicUsize::new(1));
    let (faults, board_log) = (Mutex::new(Vec::new()), Mutex::new(String::new()));
    let agent = Pid::from_child(&hosts[0].agent);
    let mut kills = 0;
    thread::scope(|scope| {
        for client in 0..plan.clients {
            let (left, next, faults, user) = (&left, &next, &faults, &user);
            scope.spawn(move || {
                let url = url(&format!("user{client}"), port_number);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > plan.leases {
                        break;
                    }
                    let number = number.to_string();
                    let args =
                        ["lock", "rig:kind=any", "--wait", "30m", "--ttl", "30m", "--", "sh", "-c", script, &number];
                    let output = user.command(&args).env("RIGLINE_LAB", &url).output().unwrap();
                    if !output.status.success() {
                        let text = String::from_utf8_lossy(&output.stderr).into_owned();
                        faults.lock().unwrap().push((number, output.status.code(), text));
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                if let Some(board) = plan.board {
                    board_log.lock().unwrap().push_str(&heard(board));
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let (mut killed, mut pause) = (Instant::now(), plan.pause);
        let mut goes_on = None;
        while left.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(50));
            if killed.elapsed() >= plan.kill_every {
                killed = Instant::now();
                kills += 1;
                server.kill(kills == 2);
                server.start();
            }
            if let Some((_, length)) = pause.take_if(|(after, _)| started.elapsed() >= *after) {
                kill_process(agent, Signal::STOP).unwrap();
                goes_on = Some(Instant::now() + length);
            }
            if goes_on.take_if(|at| Instant::now() >= *at).is_some() {
                kill_process(agent, Signal::CONT).unwrap();
            }
        }
        if goes_on.is_some() {
            kill_process(agent, Signal::CONT).unwrap();
        }
    });
    let took = started.elapsed();
    assert_eq!(*faults.lock().unwrap(), []);
    if let Some(board) = plan.board {
        board_log.lock().unwrap().push_str(&heard(board));
    }
    judge(plan, &hosts, &user, &board_log.lock().unwrap());
    let tries = fs::read_to_string(user.path("tries")).unwrap_or_default().lines().count();
    let rigs = plan.hosts * plan.sims + usize::from(plan.board.is_some());
    Some(Found { rigs, kills, tries, took })
}

fn url(user: &str, port: u16) -> String {
    format!("nats://{user}@127.0.0.1:{port}")
}

#[test]
fn no_rig_of_several_hosts_has_two_holders_and_no_result_is_lost_while_the_server_is_killed() {
    many(&Plan {
        hosts: 2,
        sims: 2,
        board: None,
        clients: 4,
        leases: 8,
        kill_every: Duration::from_secs(3),
        pause: Some((Duration::from_secs(2), Duration::from_secs(4))),
    });
}

#[test]
#[ignore = "minutes: .ci/long runs it"]
fn two_hundred_leases_of_the_rigs_of_three_hosts_while_the_server_is_killed_and_an_agent_stands_still() {
    let Some(board) = Emulator::start("rig") else { return };
    let plan = Plan {
        hosts: 3,
        sims: 5,
        board: Some(&board),
        clients: 20,
        leases: 200,
        kill_every: Duration::from_secs(10),
        pause: Some((Duration::from_secs(25), Duration::from_secs(15))),
    };
    let Some(Found { rigs, kills, tries, took }) = many(&plan) else { return };
    let (hosts, clients, leases, took) = (plan.hosts, plan.clients, plan.leases, took.as_secs_f64());
    eprintln!(
        "\n| hosts | rigs | clients | leases | servers killed | agents paused | lines about calls that were asked again | two holders at once | results lost | results twice | time |"
    );
    eprintln!("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    eprintln!("| {hosts} | {rigs} | {clients} | {leases} | {kills} | 1 | {tries} | 0 | 0 | 0 | {took:.0} s |");
}
