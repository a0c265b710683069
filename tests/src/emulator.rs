//! An RP2040 image in the emulator of `tests/emulator`, as a child process.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, Once, OnceLock};
use std::time::Duration;
use std::{env, fmt};

use serde_json::{Value, json};

/// How long anything may take before a test gives up on it. Emulated time is real time at best, and slower on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A running emulator. Dropping it ends the process and what it started.
pub struct Emulator {
    child: Child,
    ready: Value,
    control: Mutex<BufReader<TcpStream>>,
}

impl Emulator {
    /// Runs the image called `name` until the host side has enumerated it.
    ///
    /// Where something that the emulator needs is missing, says what is skipped and gives `None`. With
    /// `RIGLINE_REQUIRE_EMULATOR` in the environment that is a failure, so that CI skips nothing unseen.
    ///
    /// # Panics
    /// When the image does not enumerate.
    pub fn start(name: &str) -> Option<Self> {
        Self::start_with(name, &[])
    }

    /// The same, but idle time is skipped: what waits is over at once, and a pause of the host's is a long time for the board.
    pub fn start_fast(name: &str) -> Option<Self> {
        Self::start_with(name, &["--fast"])
    }

    /// Runs the image at this path for a person: it tells on standard error about resets and faults. `options` are those of
    /// `emulator.mjs`.
    ///
    /// # Errors
    /// Something that the emulator needs is missing, or the image does not enumerate.
    pub fn of(image: &Path, options: &[String]) -> Result<Self, String> {
        is_image(image)?;
        Self::spawn(&node()?, image, options)
    }

    fn start_with(name: &str, options: &[&str]) -> Option<Self> {
        let (node, image) = match requirements(name) {
            Ok(found) => found,
            Err(Missing { why, remedy }) => {
                assert!(env::var_os("RIGLINE_REQUIRE_EMULATOR").is_none(), "{why}: {remedy}");
                // Once a program: dozens of tests skip for the same reason.
                SKIPPED.call_once(|| rigline_test_support::skipped("the tests of the emulated board", &why, &remedy));
                return None;
            }
        };
        let options: Vec<String> = [&["--quiet"], options].concat().into_iter().map(str::to_owned).collect();
        match Self::spawn(&node, &image, &options) {
            Ok(emulator) => Some(emulator),
            Err(reason) => panic!("{reason}"),
        }
    }

    fn spawn(node: &Path, image: &Path, options: &[String]) -> Result<Self, String> {
        let mut command = Command::new(node);
        command.arg(directory().join("emulator.mjs")).arg(image).arg("--until-eof").args(options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", node.display()))?;
        let mut line = String::new();
        let read = BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line);
        let ready: Value = match read.ok().and_then(|_| serde_json::from_str(&line).ok()) {
            Some(ready) => ready,
            None => return Err(format!("{} did not enumerate: {:?}", image.display(), child.wait())),
        };
        let control = Mutex::new(BufReader::new(connect(&ready["control_port"])));
        Ok(Self { child, ready, control })
    }

    /// The USB identity that the host read: `vendor_id`, `product_id`, `manufacturer`, `product`, `serial_number`,
    /// `control_protocol`.
    pub fn identity(&self) -> &Value {
        &self.ready["usb"]
    }

    /// Opens the USB serial port, which raises DTR. It has one user at a time; dropping the stream closes it.
    pub fn usb(&self) -> TcpStream {
        connect(&self.ready["usb_port"])
    }

    /// The TCP port of the USB serial port, for tests that open it themselves.
    ///
    /// # Panics
    /// When the emulator does not tell.
    pub fn usb_port(&self) -> u16 {
        port(&self.ready["usb_port"])
    }

    /// UART0.
    pub fn uart(&self) -> TcpStream {
        connect(&self.ready["uart_port"])
    }

    /// The TCP port that UART0 is on, for programs of their own.
    ///
    /// # Panics
    /// Never: the emulator has told it.
    pub fn uart_port(&self) -> u16 {
        port(&self.ready["uart_port"])
    }

    /// The TCP port that takes commands, for programs of their own.
    ///
    /// # Panics
    /// Never: the emulator has told it.
    pub fn control_port(&self) -> u16 {
        port(&self.ready["control_port"])
    }

    /// Waits until the emulator ends; whether it ended well.
    pub fn wait(&mut self) -> bool {
        // Its standard input stays open: it ends with this program.
        let stdin = self.child.stdin.take();
        let status = self.child.wait();
        drop(stdin);
        status.is_ok_and(|status| status.success())
    }

    /// Sends a command to the control port and returns its answer; `tests/emulator/README.md` lists them.
    ///
    /// # Panics
    /// When the emulator refuses the command.
    #[track_caller]
    pub fn control(&self, command: &Value) -> Value {
        let mut control = self.control.lock().expect("no test failed with the control port");
        let mut line = String::new();
        let sent = writeln!(control.get_mut(), "{command}").and_then(|()| control.read_line(&mut line));
        sent.expect("the control port answers");
        let reply: Value = serde_json::from_str(&line).expect("the control port speaks JSON");
        assert_eq!(reply["ok"], json!(true), "{command}: {reply}");
        reply
    }

    /// The counters: cycles, stack depth, packets and so on.
    #[track_caller]
    pub fn stats(&self) -> Value {
        self.control(&json!({"cmd": "stats"}))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        #[cfg(unix)]
        {
            use rustix::process::{Pid, Signal, kill_process_group};
            if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl fmt::Debug for Emulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulator").field("ready", &self.ready).finish_non_exhaustive()
    }
}

/// Reads up to the next newline, a byte at a time so that nothing after it is lost; the newline is in the result.
///
/// # Panics
/// When it does not come in [`PATIENCE`].
#[track_caller]
pub fn read_line(stream: &mut TcpStream) -> Vec<u8> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.last() != Some(&b'\n') {
        match stream.read(&mut byte) {
            Ok(1) => line.push(byte[0]),
            end => panic!("{end:?} after {:?}", String::from_utf8_lossy(&line)),
        }
    }
    line
}

/// Asserts that nothing comes for a quarter of a second.
///
/// # Panics
/// When something does.
#[track_caller]
pub fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(250))).expect("the limit is not zero");
    let mut bytes = [0; 256];
    match stream.read(&mut bytes) {
        Ok(length) => panic!("unexpected {:?}", String::from_utf8_lossy(&bytes[..length])),
        Err(error) => assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)),
    }
    stream.set_read_timeout(Some(PATIENCE)).expect("the limit is not zero");
}

fn port(port: &Value) -> u16 {
    port.as_u64().and_then(|port| u16::try_from(port).ok()).expect("the emulator tells its ports")
}

fn connect(to: &Value) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port(to))).expect("the emulator listens");
    stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).expect("a socket takes options");
    stream
}

static SKIPPED: Once = Once::new();

/// The firmware's images, each with the alias of cargo that builds it.
pub const IMAGES: &[(&str, &str)] = &[
    ("rig", "firmware"),
    ("rig-bench", "firmware-bench"),
    ("rig-blocking", "firmware-blocking"),
    ("engine", "firmware-bench"),
    ("echo", "firmware-bench"),
    ("echo-bare", "firmware-bench"),
    ("probe", "firmware-bench"),
    ("cycles", "firmware-bench"),
];

/// The image that a user means: one of [`IMAGES`] by its name, built if it is missing, or a path. Installs the emulator's npm
/// package if it is missing. What is wrong with the name is said before anything is built.
///
/// # Errors
/// There is no such image, Node is missing, or something cannot be installed or built.
pub fn prepare(name: &str) -> Result<PathBuf, String> {
    let alias = IMAGES.iter().find(|(image, _)| *image == name).map(|(_, alias)| *alias);
    let image = match alias {
        Some(_) => firmware_directory().join(name),
        None => {
            let path = PathBuf::from(name);
            if !name.contains('/') && !path.exists() {
                let names: Vec<&str> = IMAGES.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "unknown image {name}: expected the path of an image, or one of {}",
                    names.join(", ")
                ));
            }
            is_image(&path)?;
            path
        }
    };
    node()?;
    install_package()?;
    if let Some(alias) = alias.filter(|_| !image.is_file()) {
        eprintln!("emulator: cargo {alias}");
        let built = Command::new("cargo").arg(alias).current_dir(root()).status();
        if !built.is_ok_and(|status| status.success()) {
            return Err(format!("cargo {alias} failed"));
        }
    }
    Ok(image)
}

fn is_image(path: &Path) -> Result<(), String> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(format!("{} is a folder, not an image", path.display())),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("no image {}: {error}", path.display())),
    }
}

/// Installs the emulator's npm package, unless it is there. Of several programs one does it, and the others wait.
fn install_package() -> Result<(), String> {
    if has_package() {
        return Ok(());
    }
    let list = File::open(directory().join("package.json")).and_then(|list| list.lock().map(|()| list));
    let _locked = list.map_err(|error| format!("tests/emulator/package.json: {error}"))?;
    if has_package() {
        return Ok(());
    }
    let _ = writeln!(std::io::stderr(), "emulator: npm ci in tests/emulator, once");
    let npm = env::var_os("RIGLINE_NPM").unwrap_or_else(|| "npm".into());
    let mut command = Command::new(npm);
    command.args(["ci", "--no-audit", "--no-fund", "--silent"]).current_dir(directory());
    let installed = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match installed {
        Ok(status) if status.success() && has_package() => Ok(()),
        Ok(status) => Err(format!("npm ci in tests/emulator failed: {status}")),
        Err(error) => Err(format!("the emulator needs npm to install its package in tests/emulator: {error}")),
    }
}

fn node() -> Result<PathBuf, String> {
    let node = PathBuf::from(env::var_os("RIGLINE_NODE").unwrap_or_else(|| "node".into()));
    if Command::new(&node).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Ok(node);
    }
    Err("the emulator needs Node.js 18 or newer".into())
}

fn has_package() -> bool {
    directory().join("node_modules/rp2040js").is_dir()
}

struct Missing {
    why: String,
    remedy: String,
}

/// Node and the image, or what is missing.
fn requirements(name: &str) -> Result<(PathBuf, PathBuf), Missing> {
    let missing = |why: String, remedy: &str| Missing { why, remedy: remedy.to_owned() };
    let node = node().map_err(|why| missing(why, "install Node.js, for example apt-get install nodejs npm"))?;
    let image = firmware_directory().join(name);
    if !image.is_file() {
        let why = "there is no image of the firmware".to_owned();
        return Err(missing(why, "cargo firmware-bench"));
    }
    static INSTALLED: OnceLock<Result<(), String>> = OnceLock::new();
    INSTALLED.get_or_init(install_package).clone().map_err(|why| missing(why, "cd tests/emulator && npm ci"))?;
    Ok((node, image))
}

/// Where the firmware's images are: `RIGLINE_FIRMWARE_DIR`, or the place where `cargo firmware` puts them.
pub fn firmware_directory() -> PathBuf {
    if let Some(directory) = env::var_os("RIGLINE_FIRMWARE_DIR") {
        return directory.into();
    }
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("thumbv6m-none-eabi/firmware")
}

fn directory() -> PathBuf {
    root().join("tests/emulator")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
