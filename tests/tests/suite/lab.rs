//! The lab with emulated boards: who has them is read in the boards' own logs.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rigline_tests::emulator::Emulator;
use rigline_tests::pty::Pty;
use rigline_tests::session::rigline;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A lab of its own, whose agent ends with it.
pub(super) struct Lab {
    folder: TempDir,
    root: Option<PathBuf>,
}

impl Lab {
    pub(super) fn new(rigs: &str, root: Option<&Path>) -> Self {
        let lab = Self { folder: tempfile::tempdir().unwrap(), root: root.map(Path::to_owned) };
        fs::write(lab.path("rigs.toml"), rigs).unwrap();
        lab
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(rigline());
        command.args(args).env("RIGLINE_LAB_DIR", self.folder.path()).env("FOLDER", self.folder.path());
        command.env("RIGLINE", rigline());
        if let Some(root) = &self.root {
            command.env("RIGLINE_ROOT", root);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn said(&self, args: &[&str]) -> (i32, String) {
        said(&self.command(args).output().unwrap())
    }

    pub(super) fn status(&self) -> Value {
        serde_json::from_slice(&self.command(&["lab", "status", "--json"]).output().unwrap().stdout).unwrap()
    }

    pub(super) fn waiting(&self) -> usize {
        self.status()["queue"].as_array().unwrap().len()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(pid) = self.status()["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

pub(super) fn said(output: &Output) -> (i32, String) {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn ended(child: Child) -> (i32, String) {
    said(&child.wait_with_output().unwrap())
}

#[track_caller]
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let given_up = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < given_up, "not within two minutes: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A serial port in front of a board, whose path stays the same: that of a pty may be another one after the board's side has closed it.
pub(super) struct Port {
    link: PathBuf,
    _pty: Pty,
    _folder: Option<TempDir>,
}

impl Port {
    pub(super) fn of(board: &Emulator) -> Self {
        Self::at(board.usb_port())
    }

    pub(super) fn at(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = Self::named(&folder.path().join("port"), port);
        Self { _folder: Some(folder), ..port }
    }

    /// The port at a path of the test's own. It is gone when the value is dropped, as a board's is that is unplugged.
    pub(super) fn named(link: &Path, port: u16) -> Self {
        Self { link: link.to_owned(), _pty: Pty::linked(link, port).unwrap(), _folder: None }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.link.clone()
    }
}

/// All that a board has said since it was asked last.
pub(super) fn heard(board: &Emulator) -> String {
    let log = board.control(&json!({ "cmd": "packets", "last": 65536, "clear": true }));
    assert_eq!(log["dropped"], 0, "the emulator's log was too short");
    let packets = log["packets"].as_array().unwrap();
    packets.iter().map(|packet| packet["text"].as_str().unwrap()).collect()
}

/// The numbers of samples in a board's answers: holders measure with a number of their own.
pub(super) fn samples(log: &str) -> Vec<u32> {
    let answers = log.split("\"samples\":").skip(1);
    answers
        .filter_map(|rest| rest.trim_start_matches('"').split(|char: char| !char.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

/// How many holders each find the board switched off, switch it on, and measure twice, one after the other.
fn in_turn(holders: u32) {
    let Some(board) = Emulator::start("rig") else { return };
    let port = Port::of(&board);
    let target = format!("serial:{}", port.path().display());
    let lab = Lab::new(&format!("[[rig]]\nname = 'board'\ntarget = '{target}'\ntags = {{ board = 'rp2040' }}\n"), None);
    let call = "$RIGLINE call rig:board --start-timeout 40s";
    let first = format!(
        "touch $FOLDER/started; while [ ! -e $FOLDER/go ]; do sleep 0.05; done; {call} measure channel=3V3 samples=99"
    );
    let first = lab.command(&["lock", "rig:board", "--wait", "2m", "--", "sh", "-c", &first]).spawn().unwrap();
    until("the first one has it", || lab.path("started").exists());
    heard(&board);
    let mut others = Vec::new();
    for number in 0..holders {
        let measure = format!("{call} measure channel=3V3 samples={}", 100 + number);
        let script = format!("{measure} && {call} power rail=3V3 on=true && {measure}");
        let args = ["lock", "rig:board", "--wait", "10m", "--", "sh", "-c", &script];
        others.push(lab.command(&args).spawn().unwrap());
        until("it has its place", || lab.waiting() == others.len());
    }
    fs::write(lab.path("go"), "").unwrap();
    for (code, said) in others.into_iter().chain([first]).map(ended) {
        assert_eq!(code, 0, "{said}");
    }
    let log = heard(&board);
    let expected: Vec<u32> = std::iter::once(99).chain((0..holders).flat_map(|number| [100 + number; 2])).collect();
    assert_eq!(samples(&log), expected, "{log}");
    // Each finds the safe state, and leaves its rail on.
    for number in 0..holders {
        let volts: Vec<bool> = log
            .lines()
            .filter(|line| samples(line) == [100 + number])
            .map(|line| line.contains("3V3 is at 3."))
            .collect();
        assert_eq!(volts, [false, true], "{log}");
    }
    let (code, said) = lab.said(&["lab", "check"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn eight_who_wait_have_the_emulated_board_one_after_the_other_by_its_own_log() {
    in_turn(8);
}

/// A machine whose serial ports are links to ptys.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(machine.0.path().join("sys/class/tty")).unwrap();
        fs::create_dir_all(machine.0.path().join("dev")).unwrap();
        symlink("/proc", machine.0.path().join("proc")).unwrap();
        machine
    }

    fn plug(&self, node: &str, place: &str, serial: &str, port: &Port) {
        let root = self.0.path();
        let device = root.join("sys/devices").join(place);
        let interface = device.join(format!("{place}:1.0"));
        fs::create_dir_all(&interface).unwrap();
        for (name, value) in
            [("idVendor", "16c0"), ("idProduct", "27dd"), ("product", "rigline rig"), ("serial", serial)]
        {
            fs::write(device.join(name), value).unwrap();
        }
        let class = root.join("sys/class/tty").join(node);
        fs::create_dir_all(&class).unwrap();
        symlink(&interface, class.join("device")).unwrap();
        symlink(port.path(), root.join("dev").join(node)).unwrap();
    }

    fn unplug(&self, node: &str) {
        let root = self.0.path();
        fs::remove_dir_all(root.join("sys/class/tty").join(node)).unwrap();
        fs::remove_file(root.join("dev").join(node)).unwrap();
    }
}

#[test]
fn a_board_is_the_same_rig_on_another_port_and_another_board_on_its_port_hears_nothing() {
    // zephyrproject-rtos/zephyr#53252, serialport/node-serialport#329
    let (Some(one), Some(two)) = (Emulator::start("rig"), Emulator::start("rig")) else { return };
    let (port_one, port_two) = (Port::of(&one), Port::of(&two));
    let machine = Machine::new();
    machine.plug("ttyACM0", "1-1", "ONE", &port_one);
    let node = machine.0.path().join("dev/ttyACM0");
    let rigs = format!(
        "[[rig]]\nname = 'one'\ntarget = 'serial:auto/ONE'\n[[rig]]\nname = 'node'\ntarget = 'serial:{}'\n",
        node.display()
    );
    let lab = Lab::new(&rigs, Some(machine.0.path()));
    let measure = |rig: &str, samples: &str| {
        let samples = format!("samples={samples}");
        lab.said(&["call", rig, "measure", "channel=3V3", &samples, "--start-timeout", "40s", "--wait", "1m"])
    };
    for (rig, number) in [("rig:one", "21"), ("rig:node", "22")] {
        let (code, said) = measure(rig, number);
        assert_eq!(code, 0, "{rig}: {said}");
    }
    assert_eq!(samples(&heard(&one)), [21, 22]);
    // Both were the same board, so that nobody has both.
    let inner = "$RIGLINE lock rig:node -- true; echo code $?";
    let (_, said) = lab.said(&["lock", "rig:one", "--wait", "1m", "--", "sh", "-c", inner]);
    assert!(said.contains("code 3"), "{said}");
    until("the board is free", || lab.status()["rigs"].as_array().unwrap().iter().all(|rig| rig["state"] == "free"));
    // Renumbered: another board has its node now.
    machine.unplug("ttyACM0");
    machine.plug("ttyACM0", "1-2", "TWO", &port_two);
    machine.plug("ttyACM1", "1-1", "ONE", &port_one);
    heard(&two);
    heard(&one);
    let before = two.stats()["usb"]["outPackets"].clone();
    let (code, said) = measure("rig:one", "23");
    assert_eq!(code, 0, "{said}");
    let (code, said) = measure("rig:node", "24");
    assert!(code == 3 && said.contains("another board is at") && said.contains("TWO now"), "{code}: {said}");
    assert_eq!(samples(&heard(&one)), [23]);
    assert_eq!((heard(&two).as_str(), &two.stats()["usb"]["outPackets"]), ("", &before));
    // Unplugged, and with the other one still there.
    machine.unplug("ttyACM1");
    let (code, said) = measure("rig:one", "25");
    assert_eq!(code, 3, "{said}");
    assert_eq!((heard(&two).as_str(), &two.stats()["usb"]["outPackets"]), ("", &before));
    // A person says that the other board is meant.
    let (code, said) = lab.said(&["lab", "quarantine", "node", "--clear"]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = measure("rig:node", "26");
    assert_eq!(code, 0, "{said}");
    assert_eq!(samples(&heard(&two)), [26]);
}

/// A board that says nothing, and counts the bytes that it hears.
fn mute() -> (Port, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = Port::at(listener.local_addr().unwrap().port());
    let heard = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut bytes) {
                    count.fetch_add(length, Ordering::Relaxed);
                }
            });
        }
    });
    (port, heard)
}

#[test]
fn boards_that_cannot_be_told_apart_are_ambiguous_and_hear_nothing() {
    // zephyrproject-rtos/zephyr#53252
    let ((one, heard_one), (two, heard_two)) = (mute(), mute());
    let machine = Machine::new();
    machine.plug("ttyACM0", "1-1", "TWIN", &one);
    machine.plug("ttyACM1", "1-2", "TWIN", &two);
    let rigs = "[[rig]]\nname = 'twin'\ntarget = 'serial:auto/TWIN'\n";
    let lab = Lab::new(rigs, Some(machine.0.path()));
    for args in [&["lock", "rig:twin", "--", "true"][..], &["call", "rig:twin", "measure"], &["lab", "scan"]] {
        let (code, said) = lab.said(args);
        assert!(code == 3, "{args:?}: {code}: {said}");
        let is_named = ["1-1", "1-2"].iter().all(|place| said.contains(place)) || said.contains("ambiguous");
        assert!(is_named, "{args:?}: {said}");
    }
    assert_eq!(fs::read_to_string(lab.path("rigs.toml")).unwrap(), rigs);
    assert_eq!((heard_one.load(Ordering::Relaxed), heard_two.load(Ordering::Relaxed)), (0, 0));
    // Unplugged, the other one can be told.
    machine.unplug("ttyACM1");
    let (code, said) = lab.said(&["lab", "scan"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_rig_whose_port_a_hidden_process_has_open_after_a_lease_is_in_quarantine_with_its_number() {
    // zephyrproject-rtos/zephyr#32679
    let (port, _) = mute();
    let rigs = format!("[[rig]]\nname = 'r1'\ntarget = 'serial:{}'\ncheck = false\n", port.path().display());
    let lab = Lab::new(&rigs, None);
    // It has left the family of the command, its environment and its output, and then the command's keeper is killed.
    let hidden = format!("exec 3<>{}; echo $$ > $FOLDER/pid; exec sleep 600", port.path().display());
    let script = format!(
        "setsid env -u RIGLINE_LEASE sh -c '{hidden}' > /dev/null 2>&1 & while [ ! -s $FOLDER/pid ]; do sleep 0.02; done; kill -9 $PPID"
    );
    let (code, said) = lab.said(&["lock", "rig:r1", "--raw", "--", "sh", "-c", &script]);
    assert_eq!(code, 137, "{said}");
    let pid = fs::read_to_string(lab.path("pid")).unwrap().trim().to_owned();
    let state = || lab.status()["rigs"][0]["state"].clone();
    until("it is in quarantine", || state() == "quarantine");
    let (code, said) = lab.said(&["lock", "rig:r1", "--raw", "--", "true"]);
    assert!(code == 3 && said.contains("is open in") && said.contains(&pid), "{code}: {said}");
    // When that process has ended, the rig comes back, and is not flapping for it.
    let process = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    until("it comes back", || lab.said(&["lab", "check"]).0 == 0);
}

/// A finding of [`many`]: a row of a table.
struct Found {
    rigs: usize,
    clients: usize,
    leases: usize,
    kills: usize,
    tries: usize,
    took: Duration,
}

/// `clients` take `leases` of `sims` simulated rigs and of an emulated board, while the agent is killed again and again. Each holder measures, with a
/// number of its own, switches a rail on, and measures again; when the agent is killed in the middle of a call, it asks again. The rigs' own
/// logs of what they heard or said tell whether two holders were at one rig, and each result must be there once.
fn many(sims: usize, board: Option<&Emulator>, clients: usize, leases: usize, kill_every: Duration) -> Found {
    let lab = Lab::new("", None);
    let mut rigs: String = (1..=sims)
        .map(|number| {
            let log = lab.path(&format!("heard-{number}"));
            let (log, program) = (log.display(), rigline());
            format!(
                "[[rig]]\nname = 'sim{number}'\ntarget = \"exec:sh -c 'tee -a {log} | {} rig'\"\ntags = {{ kind = 'any' }}\n",
                program.display()
            )
        })
        .collect();
    let port = board.map(Port::of);
    if let Some(port) = &port {
        let path = port.path();
        rigs += &format!("[[rig]]\nname = 'board'\ntarget = 'serial:{}'\ntags = {{ kind = 'any' }}\n", path.display());
        board.map(heard);
    }
    fs::write(lab.path("rigs.toml"), rigs).unwrap();
    // A board takes up to 1000 samples; one is enough, and the others are the holder's number.
    let script = "again() { until $RIGLINE call rig:$RIGLINE_RIGS \"$@\" --start-timeout 40s > $FOLDER/said-$number 2>> $FOLDER/tries; do sleep 0.1; done; }; \
        number=$0; again measure channel=3V3 samples=$number; again power rail=3V3 on=true; again measure channel=3V3 samples=$number; \
        echo $number $RIGLINE_RIGS >> $FOLDER/results";
    let started = Instant::now();
    let (left, next) = (AtomicUsize::new(clients), AtomicUsize::new(1));
    let (faults, board_log) = (Mutex::new(Vec::new()), Mutex::new(String::new()));
    let mut kills = 0;
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number > leases {
                        break;
                    }
                    let number = number.to_string();
                    let args =
                        ["lock", "rig:kind=any", "--wait", "30m", "--ttl", "30m", "--", "sh", "-c", script, &number];
                    let (code, said) = lab.said(&args);
                    if code != 0 {
                        faults.lock().unwrap().push((number, code, said));
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while left.load(Ordering::Relaxed) > 0 {
                if let Some(board) = board {
                    board_log.lock().unwrap().push_str(&heard(board));
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let mut next_kill = started + kill_every / 2;
        while left.load(Ordering::Relaxed) > 0 {
            thread::sleep(Duration::from_millis(100));
            if Instant::now() >= next_kill {
                next_kill = Instant::now() + kill_every;
                if let Some(pid) = lab.status()["agent"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok())
                    && let Some(pid) = rustix::process::Pid::from_raw(pid)
                {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    kills += 1;
                }
            }
        }
    });
    assert_eq!(*faults.lock().unwrap(), []);
    assert!(kills > 0, "no agent was killed while {leases} leases were taken, which took {:?}", started.elapsed());
    if let Some(board) = board {
        board_log.lock().unwrap().push_str(&heard(board));
    }
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
    for number in 1..=sims {
        let log = fs::read_to_string(lab.path(&format!("heard-{number}"))).unwrap_or_default();
        check(format!("sim{number}"), &log);
    }
    check("board".to_owned(), &board_log.lock().unwrap());
    let results = fs::read_to_string(lab.path("results")).unwrap();
    let results: BTreeMap<u32, String> = results
        .lines()
        .map(|line| line.split_once(' ').map(|(number, rig)| (number.parse().unwrap(), rig.to_owned())).unwrap())
        .collect();
    assert_eq!(results.len(), leases, "a result is lost");
    assert_eq!(fs::read_to_string(lab.path("results")).unwrap().lines().count(), leases, "a result is there twice");
    assert_eq!(results, homes);
    until("all rigs are free and the books are in order", || lab.said(&["lab", "check"]).0 == 0);
    let tries = fs::read_to_string(lab.path("tries")).unwrap_or_default();
    let tries = tries.lines().filter(|line| line.contains("it is not known what the rig has done")).count();
    Found { rigs: sims + usize::from(board.is_some()), clients, leases, kills, tries, took: started.elapsed() }
}

#[test]
fn no_rig_has_two_holders_by_its_own_log_and_no_result_is_lost_while_the_agent_is_killed() {
    many(2, None, 4, 8, Duration::from_secs(2));
}

#[test]
#[ignore = "minutes: .ci/long runs it"]
fn two_hundred_leases_of_ten_simulated_rigs_and_an_emulated_board_while_the_agent_is_killed() {
    let Some(board) = Emulator::start("rig") else { return };
    let mut table = "| rigs | clients | leases | agents killed | calls cut off and asked again | two holders at once | results lost | results twice | time |\n\
        |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for kill_every in [10, 3].map(Duration::from_secs) {
        let Found { rigs, clients, leases, kills, tries, took } = many(10, Some(&board), 20, 200, kill_every);
        let took = took.as_secs_f64();
        table += &format!("| {rigs} | {clients} | {leases} | {kills} | {tries} | 0 | 0 | 0 | {took:.0} s |\n");
    }
    eprintln!("\n{table}");
}
