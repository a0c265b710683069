//! Ends the programs that this process has started when it is killed.
//!
//! A shell beside this process reads from a pipe which process groups there are. However this process ends, the pipe ends
//! too; the shell then asks those groups to end, so that hardware gets to its safe state, and kills what is left a second later.
//! It is there as long as this process is, once a program was started, and it is the only one.
//!
//! A program that was started in the very moment of this process's end is not known to the shell yet: on Linux it finds it by a variable in its
//! environment.
//!
//! On Linux it ends, too, what has left its group, by setsid(2) for example, and did not detach itself: one of its three standard streams
//! is a pipe or a socket. A daemon that has replaced all three, such as adb's server, is meant to stay, and stays. Other systems do not tell
//! who has which variables, so that what has left its group is not found there.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;

use rigline_std::mutex::lock;

const WATCH: &str = r#"
trap '' HUP INT TERM QUIT
mark=$1
groups=
begun=0
while read -r sign group; do
    case $sign in
    '?') begun=$((begun + 1)) ;;
    '!') begun=$((begun - 1)) ;;
    +)
        begun=$((begun - 1))
        groups="$groups $group"
        ;;
    -)
        rest=
        for other in $groups; do
            [ "$other" = "$group" ] || rest="$rest $other"
        done
        groups=$rest
        ;;
    esac
done
if [ $begun -gt 0 ]; then
    for _ in 1 2 3; do
        sleep 0.1 || sleep 1
        for file in $(grep -lsF "$mark" /proc/[0-9]*/environ); do
            read -r stat < "${file%environ}stat" || continue
            set -- ${stat##*) }
            [ "$3" -gt 1 ] && groups="$groups $3"
        done
    done
fi
each() {
    some=1
    for group in $groups; do
        kill -s "$1" -- "-$group" && some=0
    done
    return $some
}
if each TERM; then
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.1 || sleep 1
        each 0 || break
    done
    each KILL
fi
strays=
for file in $(grep -lsF "=$mark" /proc/[0-9]*/environ); do
    stray=${file#/proc/}
    stray=${stray%/environ}
    for stream in 0 1 2; do
        case $(readlink "/proc/$stray/fd/$stream") in
        pipe:* | socket:*)
            kill -s TERM "$stray" && strays="$strays $stray"
            break
            ;;
        esac
    done
done
if [ -n "$strays" ]; then
    sleep 1
    kill -s KILL $strays
fi
"#;

static WATCHER: Mutex<Watcher> = Mutex::new(Watcher { shell: None, groups: BTreeSet::new() });

static MARK: LazyLock<String> =
    LazyLock::new(|| format!("{}-{:x}", std::process::id(), RandomState::new().hash_one(SystemTime::now())));

struct Watcher {
    shell: Option<Child>,
    groups: BTreeSet<u32>,
}

/// The variable by which a program is known as one of this process's.
pub(super) fn mark() -> (&'static str, &'static str) {
    ("RIGLINE_LIFELINE", &MARK)
}

/// A process group that ends when this process is gone.
#[derive(Debug)]
pub(crate) struct Lifeline {
    group: Option<u32>,
}

impl Lifeline {
    /// To be made before the program is started, so that it is watched from its first moment on.
    pub(crate) fn new() -> Self {
        let mut watcher = lock(&WATCHER);
        watcher.start();
        watcher.tell('?', 0);
        drop(watcher);
        Self { group: None }
    }

    /// Takes over a process group, until this is dropped, which is best done before its leader is waited for: until then its number
    /// cannot be another's.
    pub(crate) fn hold(mut self, group: u32) -> Self {
        self.group = Some(group);
        let mut watcher = lock(&WATCHER);
        watcher.groups.insert(group);
        watcher.tell('+', group);
        drop(watcher);
        self
    }
}

impl Drop for Lifeline {
    fn drop(&mut self) {
        let mut watcher = lock(&WATCHER);
        match self.group {
            Some(group) => {
                watcher.groups.remove(&group);
                watcher.tell('-', group);
            }
            // Nothing was started after all.
            None => watcher.tell('!', 0),
        }
    }
}

impl Watcher {
    fn start(&mut self) {
        if self.shell.is_some() {
            return;
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", WATCH, "rigline-lifeline", MARK.as_str()]).process_group(0).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without a shell, programs that get no signal continue to run.
        self.shell = command.spawn().ok();
    }

    fn tell(&mut self, sign: char, group: u32) {
        let said = match &mut self.shell {
            Some(shell) => say(shell, sign, group),
            None => return,
        };
        if said.is_ok() {
            return;
        }
        // It was killed. A new one gets all groups.
        if let Some(mut shell) = self.shell.take() {
            let _ = shell.kill();
            let _ = shell.wait();
        }
        self.start();
        if let Some(shell) = &mut self.shell {
            for group in &self.groups {
                let _ = say(shell, '?', 0).and_then(|()| say(shell, '+', *group));
            }
        }
    }
}

fn say(shell: &mut Child, sign: char, group: u32) -> io::Result<()> {
    let Some(pipe) = &mut shell.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
    pipe.write_all(format!("{sign} {group}\n").as_bytes())
}
