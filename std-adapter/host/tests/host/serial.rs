//! Boards on serial ports: real ptys, and ports and processes in folders that look like the system's.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::common::{go, message, options, this, trial};
use crate::fake::MANIFEST;
use rigline_host::ports::Roots;
use rigline_host::target::{Port, Serial, Target};
use rigline_host::{Host, HostError};

/// A board at the other side of a pty.
struct Board {
    /// The port's path.
    path: PathBuf,
    /// The board's side; taken away, the board is unplugged.
    controller: Arc<Mutex<Option<File>>>,
    /// The lines that the host sent.
    lines: Arc<Mutex<Vec<String>>>,
    _port: OwnedFd,
}

impl Board {
    /// A board whose `behave` gets each line that comes, and its place, and returns what is answered.
    fn new(behave: impl Fn(usize, &str) -> Vec<u8> + Send + 'static) -> Self {
        let pty = rustix_openpty::openpty(None, None).unwrap();
        let path = rustix::pty::ptsname(&pty.controller, Vec::new()).unwrap();
        let board = File::from(pty.controller);
        let mut reader = board.try_clone().unwrap();
        let mut writer = board.try_clone().unwrap();
        let board = Arc::new(Mutex::new(Some(board)));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        thread::spawn(move || {
            let (mut line, mut byte) = (Vec::new(), [0]);
            while reader.read(&mut byte).is_ok_and(|read| read == 1) {
                if byte[0] != b'\n' {
                    line.push(byte[0]);
                    continue;
                }
                let text = String::from_utf8_lossy(&line).into_owned();
                line.clear();
                if text == "unplug" {
                    return;
                }
                seen.lock().unwrap().push(text.clone());
                if !text.is_empty() {
                    let place = seen.lock().unwrap().iter().filter(|line| !line.is_empty()).count();
                    let answer = behave(place, &text);
                    if answer == b"UNPLUG" {
                        return;
                    }
                    let _ = writer.write_all(&answer);
                }
            }
        });
        Self { path: path.to_str().unwrap().into(), controller: board, lines, _port: pty.user }
    }

    /// One that behaves well.
    fn good() -> Self {
        Self::new(|_, line| reply(line))
    }

    fn target(&self) -> Target {
        Target::Serial(Serial::new(Port::Path(self.path.clone())))
    }

    fn write(&self, bytes: &[u8]) {
        self.controller.lock().unwrap().as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

fn id(line: &str) -> String {
    line.split("\"id\":").nth(1).unwrap_or_default().chars().take_while(char::is_ascii_digit).collect()
}

fn reply(line: &str) -> Vec<u8> {
    if !line.contains("\"method\"") {
        return Vec::new();
    }
    let result = if line.contains("\"initialize\"") {
        MANIFEST
    } else if line.contains("\"execute\"") {
        r#"{"success":true,"message":"m"}"#
    } else {
        "{}"
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}\r\n", id(line)).into_bytes()
}

#[allow(clippy::too_many_lines, reason = "a list of tests")]
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("serial: a whole session", || async {
            let board = Board::good();
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            assert_eq!(host.describe().name, "fake");
            assert_eq!(message(go(&host).await), "m");
            assert!(host.shutdown().await.unwrap().is_clean());
            // A line boundary goes first.
            assert_eq!(board.lines()[0], "");
        }),
        // tbird20d/grabserial#55, sensiml/open-gateway#30.
        trial("fragments before the first line", || async {
            let board = Board::new(|place, line| {
                let before: &[u8] = if place == 1 { b"d\":\"info\",\"message\":\"x\"}}\n\0\xff\xfe~~\n" } else { b"" };
                [before, &reply(line)].concat()
            });
            let (options, seen) = options();
            let host = Host::connect(&board.target(), options).await.unwrap();
            assert_eq!(message(go(&host).await), "m");
            assert!(seen.has("skipped: d\":\"info\""));
        }),
        // dni/lnurl-vault#120, meshcore-dev/meshcore.js#27.
        trial("a board that boots", || async {
            let boot = Instant::now();
            let board = Board::new(
                move |_, line| {
                    if boot.elapsed() < Duration::from_millis(2500) { Vec::new() } else { reply(line) }
                },
            );
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            assert_eq!(message(go(&host).await), "m");
            let ids: Vec<String> =
                board.lines().iter().filter(|line| line.contains("initialize")).map(|line| id(line)).collect();
            assert_eq!(ids.len(), 4, "{ids:?}");
            assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        }),
        // dni/lnurl-vault#120, meshcore-dev/meshcore.js#27.
        trial("each initialize is answered, late", || async {
            let first = Arc::new(Mutex::new(String::new()));
            let board = Board::new(move |place, line| match place {
                1 => {
                    line.clone_into(&mut first.lock().unwrap());
                    b"boot ok\r\n".to_vec()
                }
                2 => [reply(&first.lock().unwrap()), reply(line)].concat(),
                _ => reply(line),
            });
            let (options, seen) = options();
            let host = Host::connect(&board.target(), options).await.unwrap();
            assert_eq!(message(go(&host).await), "m");
            assert!(seen.has("skipped: boot ok"));
        }),
        trial("errors about what was there before do not end the start", || async {
            let error = b"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"p\"}}\n";
            let board = Board::new(move |place, line| if place == 1 { error.to_vec() } else { reply(line) });
            Host::connect(&board.target(), options().0).await.unwrap();
        }),
        trial("a board that understands nothing is told so", || async {
            let error = b"{\"error\":{\"code\":-32700,\"message\":\"parse\"}}\n";
            let board = Board::new(move |_, _| error.to_vec());
            let (mut options, _) = options();
            options.start_timeout = Duration::from_millis(1500);
            let error = Host::connect(&board.target(), options).await.unwrap_err().to_string();
            assert!(error.contains("names no request: parse (-32700)"), "{error}");
        }),
        // esp-rs/espmonitor#12, boardswarm/boardswarm#8.
        trial("unplugged in a call", || async {
            let board = Board::new(|_, line| if line.contains("execute") { b"UNPLUG".to_vec() } else { reply(line) });
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            let held = Arc::clone(&board.controller);
            let started = Instant::now();
            let (called, ()) = tokio::join!(go(&host), async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                held.lock().unwrap().take();
            });
            let error = message(called);
            assert!(error.starts_with("error: fake: device disconnected"), "{error}");
            assert!(started.elapsed() < Duration::from_secs(1));
            assert!(message(go(&host).await).contains("device disconnected"));
            assert!(host.shutdown().await.is_err());
        }),
        // jamesmunns/ergot#189, arduino/serial-monitor#32.
        trial("the last session's replies", || async {
            let board = Board::good();
            board.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"name\":\"old\"}}\n");
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            assert_eq!(host.describe().name, "fake");
            drop(host);
            let sessions = [board.target(), board.target()];
            for target in sessions {
                drop(Host::connect(&target, options().0).await.unwrap());
            }
            let mut ids: Vec<String> =
                board.lines().iter().filter(|line| line.contains("initialize")).map(|line| id(line)).collect();
            ids.dedup();
            assert_eq!(ids.len(), 3);
            assert!(ids.iter().all(|id| id.len() > 3), "{ids:?}");
        }),
        // rustne-kretser/noline#12, kohler/peteramati#16.
        trial("the tty is raw", || async {
            let text = format!("{}\\u007f\u{7f}é🚀", "x".repeat(10_000));
            let answer = format!("{{\"success\":true,\"message\":\"{text}\"}}");
            let board = Board::new(move |_, line| {
                if line.contains("execute") {
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{answer}}}\r\n", id(line)).into_bytes()
                } else {
                    reply(line)
                }
            });
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            let found = message(go(&host).await);
            assert!(found.ends_with("x\u{7f}\u{7f}é🚀") && found.len() > 10_000, "{}", found.len());
            let long = "y\u{3}\u{4}\u{11}\u{13}".repeat(3000);
            let args = serde_json::json!({ "x": long, "raw": "\u{7f}" });
            host.call("go", &args, rigline_host::CallContext::default()).await.unwrap();
            let lines = board.lines();
            let sent = lines.last().unwrap();
            assert!(sent.contains(&serde_json::to_string(&long).unwrap()) && sent.contains('\u{7f}'));
        }),
        trial("a busy port tells who has it, and is waited for", || async {
            let board = Board::good();
            let script = format!("hold {}\nsay held\nsleep 1200\nrelease\nforever", board.path.display());
            let mut holder = Command::new(this()).args(["fake", &script]).stdout(Stdio::piped()).spawn().unwrap();
            holder.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
            let (mut options, _) = options();
            let Err(HostError::Busy { holders, .. }) = Host::connect(&board.target(), options.clone()).await else {
                panic!("the port is not busy");
            };
            assert_eq!(holders[0].pid, holder.id());
            assert!(holders[0].command.contains("fake hold"), "{holders:?}");
            options.wait = Duration::from_secs(5);
            let host = Host::connect(&board.target(), options).await.unwrap();
            assert_eq!(message(go(&host).await), "m");
            holder.kill().unwrap();
            holder.wait().unwrap();
        }),
        trial("a port is for one host alone, and free after it", || async {
            let board = Board::good();
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            let second = Host::connect(&board.target(), options().0).await.unwrap_err().to_string();
            assert!(second.contains("is in use"), "{second}");
            drop(host);
            tokio::task::yield_now().await;
            Host::connect(&board.target(), options().0).await.unwrap();
        }),
        trial("a port that is not there", || async {
            for (path, expected) in
                [("/dev/no-such-port", "cannot be opened: No such file"), ("/etc/passwd", "cannot be opened")]
            {
                let target = Target::Serial(Serial::new(Port::Path(path.into())));
                let error = Host::connect(&target, options().0).await.unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
        }),
        trial("cancelling a board's call begins a new session", || async {
            let board = Board::new(|place, line| if place == 2 { Vec::new() } else { reply(line) });
            let host = Host::connect(&board.target(), options().0).await.unwrap();
            let (called, cancelled) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                host.cancel().await
            });
            cancelled.unwrap();
            assert_eq!(message(called), "error: the call of fake was cancelled");
            assert_eq!(message(go(&host).await), "m");
        }),
        trial("a board is found again by its serial number", || async {
            let system = System::new();
            let first = Board::new(|_, line| if line.contains("execute") { b"UNPLUG".to_vec() } else { reply(line) });
            system.plug("ttyACM0", "1-1", "rigline", "rig", "A1", &first.path);
            let (mut options, _) = options();
            options.roots = system.roots.clone();
            options.reconnect = true;
            let host = Host::connect(&"serial:auto".parse().unwrap(), options).await.unwrap();
            let held = Arc::clone(&first.controller);
            let (called, ()) = tokio::join!(go(&host), async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                held.lock().unwrap().take();
            });
            assert!(message(called).contains("device disconnected"));
            system.unplug("ttyACM0");
            let again = Board::good();
            system.plug("ttyACM0", "1-2", "rigline", "rig", "B2", "/dev/null");
            let (found, ()) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                system.plug("ttyACM1", "1-1", "rigline", "rig", "A1", &again.path);
            });
            assert_eq!(message(found), "m");
        }),
        trial("of a composite device the port that was meant is found again", || async {
            let system = System::new();
            let first = Board::new(|_, line| if line.contains("execute") { b"UNPLUG".to_vec() } else { reply(line) });
            let plug = |name: &str, interface: &str, path: &Path| {
                system.plug_interface(name, ("1-1", interface), "Black Sphere", "Probe", "A1", path);
            };
            plug("ttyACM0", "1.0", Path::new("/dev/null"));
            plug("ttyACM1", "1.2", &first.path);
            let (mut options, _) = options();
            options.roots = system.roots.clone();
            options.reconnect = true;
            let second = format!("serial:{}", system.roots.dev.join("ttyACM1").display());
            let host = Host::connect(&second.parse().unwrap(), options).await.unwrap();
            let held = Arc::clone(&first.controller);
            let (called, ()) = tokio::join!(go(&host), async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                held.lock().unwrap().take();
            });
            let called = message(called);
            assert!(called.contains("device disconnected"), "{called}");
            system.unplug("ttyACM0");
            system.unplug("ttyACM1");
            let again = Board::good();
            // With other names, one after the other.
            plug("ttyACM2", "1.0", Path::new("/dev/null"));
            let (found, ()) = tokio::join!(go(&host), async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                plug("ttyACM3", "1.2", &again.path);
            });
            assert_eq!(message(found), "m");
            let found = |text: &str| system.roots.find(&Port::Usb(text.into())).map(|port| port.path);
            assert_eq!(found("1-1:1.2").unwrap(), system.roots.dev.join("ttyACM3"));
            assert!(found("1-1").unwrap_err().to_string().contains("several"));
            assert!(found("1-1:1.4").is_err());
        }),
    ];
    trials.push(Trial::test("ports of a system", ports));
    trials
}

/// Folders that look like `/sys` and `/dev`.
struct System {
    _folder: tempfile::TempDir,
    roots: Roots,
}

impl System {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        let roots = Roots { sys: path("sys"), dev: path("dev"), proc: "/proc".into() };
        fs::create_dir_all(roots.sys.join("class/tty")).unwrap();
        fs::create_dir_all(&roots.dev).unwrap();
        Self { _folder: folder, roots }
    }

    /// As the kernel lays it out: the class entry's `device` is an interface of the USB device.
    fn plug(&self, name: &str, place: &str, manufacturer: &str, product: &str, serial: &str, path: impl AsRef<Path>) {
        self.plug_interface(name, (place, "1.0"), manufacturer, product, serial, path);
    }

    /// A port of a composite device.
    fn plug_interface(
        &self,
        name: &str,
        (place, interface): (&str, &str),
        manufacturer: &str,
        product: &str,
        serial: &str,
        path: impl AsRef<Path>,
    ) {
        let device = self.roots.sys.join("devices/pci0/usb1").join(place);
        let interface = device.join(format!("{place}:{interface}"));
        fs::create_dir_all(&interface).unwrap();
        for (file, text) in [
            ("idVendor", "16c0"),
            ("idProduct", "27dd"),
            ("manufacturer", manufacturer),
            ("product", product),
            ("serial", serial),
        ] {
            fs::write(device.join(file), format!("{text}\n")).unwrap();
        }
        let class = self.roots.sys.join("class/tty").join(name);
        fs::create_dir_all(&class).unwrap();
        symlink(&interface, class.join("device")).unwrap();
        symlink(path, self.roots.dev.join(name)).unwrap();
    }

    fn unplug(&self, name: &str) {
        fs::remove_dir_all(self.roots.sys.join("class/tty").join(name)).unwrap();
        fs::remove_file(self.roots.dev.join(name)).unwrap();
    }
}

fn ports() -> Result<(), libtest_mimic::Failed> {
    let system = System::new();
    let none = system.roots.find(&Port::Auto).unwrap_err().to_string();
    assert_eq!(none, "no rigline device is plugged in");
    // A console, and a chip that is not there.
    fs::create_dir_all(system.roots.sys.join("class/tty/tty0"))?;
    let absent = system.roots.sys.join("class/tty/ttyS0");
    fs::create_dir_all(system.roots.sys.join("devices/platform/serial8250"))?;
    fs::create_dir_all(&absent)?;
    symlink(system.roots.sys.join("devices/platform/serial8250"), absent.join("device"))?;
    fs::write(absent.join("type"), "0\n")?;
    system.plug("ttyUSB0", "1-3", "FTDI", "FT232R", "", "/dev/null");
    let none = system.roots.find(&Port::Auto).unwrap_err().to_string();
    assert!(
        none.starts_with("no rigline device is plugged in; there are:\n  ")
            && none.ends_with("16c0:27dd FTDI FT232R  usb 1-3")
    );
    system.plug("ttyACM10", "1-1", "rigline", "rig", "A1", "/dev/null");
    let found = system.roots.find(&Port::Auto)?;
    assert_eq!((found.path, found.usb.unwrap().serial_number), (system.roots.dev.join("ttyACM10"), "A1".into()));
    system.plug("ttyACM9", "1-2.1", "Me", "My Rigline board", "B2", "/dev/null");
    let names: Vec<_> =
        system.roots.ports().into_iter().map(|port| port.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["ttyACM9", "ttyACM10", "ttyUSB0"]);
    let both = system.roots.find(&Port::Auto).unwrap_err().to_string();
    assert!(
        both.contains("several rigline devices") && both.contains("serial A1") && both.contains("serial B2"),
        "{both}"
    );
    let path =
        |port: &Port| system.roots.find(port).map(|port| port.path.file_name().unwrap().to_string_lossy().into_owned());
    assert_eq!(path(&Port::SerialNumber("B2".into()))?, "ttyACM9");
    assert_eq!(path(&Port::Usb("1-3".into()))?, "ttyUSB0");
    assert!(path(&Port::SerialNumber("C3".into())).is_err() && path(&Port::Usb("9-9".into())).is_err());
    Ok(())
}
