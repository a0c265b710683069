//! Where an extension is: the `TARGET` of every command.
//!
//! | text | extension |
//! |---|---|
//! | `exec:PROGRAM [ARGS]` | a program, split into words as a shell does (quotes and backslashes, nothing else) |
//! | a path or a name | a program without arguments |
//! | `serial:/dev/ttyACM0`, `serial:ttyACM0`, `serial:COM3` | the device on that port |
//! | `serial:by-id/NAME` | the same, by a name that udev assigns (`/dev/serial/by-id`, `by-path`) |
//! | `serial:auto` | the one rigline device that is plugged in, by its USB names |
//! | `serial:auto/SERIAL` | the rigline device with that USB serial number |
//! | `serial:usb/PATH` | the device on that USB port, such as `1-2.3`; `1-2.3:1.2` is one interface of a composite device |
//! | `tcp:HOST:PORT` | a TCP server |
//! | `http://…`, `https://…` | an HTTP server, for the protocols that have one |
//! | `replay:DIR` | a recording that `rigline call --record DIR` or `rigline eval run --record DIR` has made, or a transcript of `rigline monitor --record` |
//! | `rig:NAME`, `rig:KEY=VALUE,…` | a rig of the lab (`rigline lab list`), which has a lease for as long as it is used; the command `rigline` only |
//! | `sim` | the built-in rig: the command `rigline` with the argument `rig`, as a child over pipes |
//!
//! Options follow `?`, separated by `&`: `baud=115200`, `dtr=on|off`, `rts=on|off` (serial), `link=lines|cobs` (serial
//! and TCP), `token-file=FILE` (TCP: the server's token, which is sent as the first line), `pace=fast|recorded`
//! (replay: whether replies take as long as they did).
//!
//! ```
//! use rigline_host::target::{Port, Target};
//!
//! let Target::Serial(serial) = "serial:auto/E66?dtr=off".parse()? else { unreachable!() };
//! assert_eq!(serial.port, Port::SerialNumber("E66".into()));
//! assert_eq!((serial.baud, serial.dtr, serial.rts), (115_200, Some(false), None));
//! # Ok::<(), rigline_host::target::TargetError>(())
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The place of an extension, as commands take it for `TARGET`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A program, which is started as a child process.
    Exec(Exec),
    /// A device on a serial port.
    Serial(Serial),
    /// A TCP server.
    Tcp(Tcp),
    /// An HTTP server, by its address.
    Http(String),
    /// A recording of a session, which is replayed.
    Replay(Replay),
    /// A rig of the lab, by its name or its tags.
    Rig(String),
    /// The built-in rig, which is simulated.
    Sim,
}

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// The path of the program, or a name that is searched in `PATH`.
    pub program: String,
    /// The arguments of the program.
    pub args: Vec<String>,
}

/// A device on a serial port, with the settings of the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serial {
    /// The choice of the port.
    pub port: Port,
    /// The speed in baud. USB devices ignore it.
    pub baud: u32,
    /// Whether the DTR line is asserted [default: yes, since many boards only send while it is].
    pub dtr: Option<bool>,
    /// Whether the RTS line is asserted [default: as the driver leaves it].
    pub rts: Option<bool>,
    /// The form of messages on the wire.
    pub link: Link,
}

/// The choice of a serial port.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Port {
    /// The port with this path.
    Path(PathBuf),
    /// The port of the only rigline device that is plugged in.
    Auto,
    /// The port of the rigline device with this USB serial number.
    SerialNumber(String),
    /// The port of the device at this place in the USB tree, such as `1-2.3`.
    Usb(String),
}

/// The address of a TCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// The name or the address of the host.
    pub host: String,
    /// The port of the server.
    pub port: u16,
    /// The form of messages on the wire.
    pub link: Link,
    /// The file with the token that the server asks for. `None` if it asks for none.
    pub token_file: Option<PathBuf>,
}

/// A recording of a session, in place of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// The folder of the recording, or a transcript.
    pub path: PathBuf,
    /// Whether replies take as long as in the recording. Otherwise they come at once.
    pub keeps_pace: bool,
}

/// The form of messages on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Link {
    /// Each message is one line of JSON.
    #[default]
    Lines,
    /// Each message is a binary frame with a checksum (COBS). It is for wires that lose or damage
    /// bits.
    Cobs,
}

/// The reason why a text is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The text is empty.
    #[error("the target is empty; try `sim`")]
    Empty,
    /// The part before the colon is no known kind of target, and no file has this name.
    #[error(
        "`{kind}:` is not a kind of target; {}",
        meant.as_ref().map_or_else(
            || "expected exec:PROGRAM, serial:PORT, tcp:HOST:PORT, http://…, replay:DIR, rig:NAME, sim, or the path of a program".to_owned(),
            |meant| format!("did you mean {meant}?"),
        )
    )]
    UnknownKind {
        /// The part before the colon.
        kind: String,
        /// A similar kind that exists.
        meant: Option<String>,
    },
    /// No program follows `exec:`.
    #[error("exec: names no program; write exec:PROGRAM [ARGS]")]
    NoProgram,
    /// A quote is not closed.
    #[error("`{0}`: unclosed quote")]
    Words(String),
    /// No port follows `serial:`, or the serial number or the USB path is empty.
    #[error("`{0}` names no port; write serial:/dev/ttyACM0, serial:auto, serial:auto/SERIAL or serial:usb/PATH")]
    NoPort(String),
    /// The text is the path of a device file, where a program is expected.
    #[error("`{0}` is a device, not a program; write serial:{0}")]
    Device(String),
    /// The address does not have the form HOST:PORT.
    #[error("`{0}` is not an address; write tcp:HOST:PORT with a port from 1 to 65535, such as tcp:localhost:{port} or tcp:[::1]:{port}", port = port_of(.0))]
    Address(String),
    /// No folder follows `replay:`.
    #[error("replay: names no recording; write replay:DIR")]
    NoRecording,
    /// No name and no tags follow `rig:`.
    #[error("rig: names no rig; write rig:NAME or rig:KEY=VALUE")]
    NoRig,
    /// The text has options, but the built-in rig has none.
    #[error("`{0}`: the target sim has no options")]
    NoOptions(String),
    /// The kind of target does not have this option.
    #[error("unknown option `{name}`; expected one of: {known}")]
    UnknownOption {
        /// The name of the option.
        name: String,
        /// The names of the options that the kind of target has.
        known: &'static str,
    },
    /// The option does not accept this value.
    #[error("option {name}: `{value}` is not {expected}")]
    OptionValue {
        /// The name of the option.
        name: String,
        /// The value of the option.
        value: String,
        /// The form that the value must have.
        expected: &'static str,
    },
}

impl Serial {
    /// A device on `port`, with the usual settings: 115,200 baud, DTR asserted, messages as lines.
    pub fn new(port: Port) -> Self {
        Self { port, baud: 115_200, dtr: None, rts: None, link: Link::Lines }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text == "sim" {
            return Ok(Self::Sim);
        }
        if text.starts_with("http://") || text.starts_with("https://") {
            return Ok(Self::Http(text.into()));
        }
        match text.split_once(':') {
            Some(("exec", words)) => exec(words),
            Some(("serial", rest)) => serial(rest),
            Some(("tcp", rest)) => tcp(rest.strip_prefix("//").unwrap_or(rest)),
            Some(("replay", rest)) => replay(rest),
            Some(("rig", "")) => Err(TargetError::NoRig),
            Some(("rig", rest)) => Ok(Self::Rig(rest.to_owned())),
            // A single letter is a Windows drive.
            Some((kind, _)) if (is_kind(kind) || meant_by(text).is_some()) && !Path::new(text).exists() => {
                Err(TargetError::UnknownKind { kind: kind.to_owned(), meant: meant_by(text) })
            }
            _ if text.starts_with("sim?") && !Path::new(text).exists() => Err(TargetError::NoOptions(text.to_owned())),
            _ if text.starts_with("/dev/") => Err(TargetError::Device(text.to_owned())),
            _ => Ok(Self::Exec(Exec { program: text.to_owned(), args: Vec::new() })),
        }
    }
}

/// The target that may have been meant by a text that is none, or that names a program that there is not.
pub(crate) fn meant_by(text: &str) -> Option<String> {
    if let Some((kind, rest)) = text.split_once(':') {
        let lower = kind.to_ascii_lowercase();
        let known = nearest(&lower, &["exec", "serial", "tcp", "http", "https", "replay"]);
        let meant = known.map(|known| format!("{known}:{rest}")).filter(|meant| meant.parse::<Target>().is_ok());
        if meant.is_some() {
            return meant;
        }
        if nearest(&lower, &["sim"]).is_some() {
            return Some("sim".to_owned());
        }
        let address = format!("tcp:{text}");
        return address.parse::<Target>().is_ok().then_some(address);
    }
    let name = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let begins = |start: &str| {
        name.len() > start.len() && name.get(..start.len()).is_some_and(|it| it.eq_ignore_ascii_case(start))
    };
    if begins("com") && name.bytes().skip(3).all(|byte| byte.is_ascii_digit()) {
        return Some(format!("serial:{}", name.to_ascii_uppercase()));
    }
    if ["ttyACM", "ttyUSB", "ttyS", "ttyAMA", "tty.usb", "cu."].into_iter().any(begins) {
        return Some(format!("serial:/dev/{name}"));
    }
    if text.eq_ignore_ascii_case("auto") || nearest(&text.to_ascii_lowercase(), &["serial"]).is_some() {
        return Some("serial:auto".to_owned());
    }
    nearest(&text.to_ascii_lowercase(), &["sim"]).map(str::to_owned)
}

/// The word that is this one, or is one letter away from it; two, if it is a long one.
fn nearest<'w>(text: &str, words: &[&'w str]) -> Option<&'w str> {
    words.iter().copied().find(|word| strsim::osa_distance(text, word) <= word.len() / 3)
}

/// The number of a port, if a text is one.
fn port_of(text: &str) -> u16 {
    text.trim_matches(':').parse().ok().filter(|port| *port > 0).unwrap_or(7000)
}

fn is_kind(text: &str) -> bool {
    text.len() > 1 && text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.'))
}

fn exec(text: &str) -> Result<Target, TargetError> {
    let mut words = shell_words::split(text).map_err(|_| TargetError::Words(text.to_owned()))?.into_iter();
    match words.next() {
        Some(program) if !program.is_empty() => Ok(Target::Exec(Exec { program, args: words.collect() })),
        _ => Err(TargetError::NoProgram),
    }
}

fn serial(text: &str) -> Result<Target, TargetError> {
    let (port, options) = text.split_once('?').unwrap_or((text, ""));
    let port = match port.split_once('/') {
        _ if port == "auto" => Port::Auto,
        Some(("auto", number)) if !number.is_empty() => Port::SerialNumber(number.to_owned()),
        Some(("usb", path)) if !path.is_empty() => Port::Usb(path.to_owned()),
        Some(("auto" | "usb", _)) => return Err(TargetError::NoPort(text.to_owned())),
        _ if port.is_empty() => return Err(TargetError::NoPort(text.to_owned())),
        _ => Port::Path(port.into()),
    };
    let mut serial = Serial::new(port);
    for (name, value) in each_option(options) {
        match name {
            "baud" => {
                let baud = value.parse().ok().filter(|baud| *baud > 0);
                serial.baud = baud.ok_or_else(|| not_a_value(name, value, "a speed such as 115200"))?;
            }
            "dtr" => serial.dtr = Some(switch(name, value)?),
            "rts" => serial.rts = Some(switch(name, value)?),
            "link" => serial.link = link(value)?,
            _ => return Err(TargetError::UnknownOption { name: name.to_owned(), known: "baud, dtr, rts, link" }),
        }
    }
    Ok(Target::Serial(serial))
}

fn tcp(text: &str) -> Result<Target, TargetError> {
    let (address, options) = text.split_once('?').unwrap_or((text, ""));
    let no_address = || TargetError::Address(address.to_owned());
    let (host, port) = address.rsplit_once(':').ok_or_else(no_address)?;
    let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(no_address)?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // An IPv6 address needs brackets, or else its last part is taken for the port.
    if host.is_empty() || (inner.is_none() && host.contains(':')) {
        return Err(no_address());
    }
    let mut tcp = Tcp { host: inner.unwrap_or(host).to_owned(), port, link: Link::Lines, token_file: None };
    for (name, value) in each_option(options) {
        match name {
            "link" => tcp.link = link(value)?,
            "token-file" if !value.is_empty() => tcp.token_file = Some(value.into()),
            "token-file" => return Err(not_a_value(name, value, "the name of a file")),
            _ => return Err(TargetError::UnknownOption { name: name.to_owned(), known: "link, token-file" }),
        }
    }
    Ok(Target::Tcp(tcp))
}

fn replay(text: &str) -> Result<Target, TargetError> {
    // A folder's name may itself contain a question mark.
    let (path, options) = match text.rsplit_once('?') {
        Some((path, options)) if options.contains('=') && !options.contains(['/', '\\']) => (path, options),
        _ => (text, ""),
    };
    if path.is_empty() {
        return Err(TargetError::NoRecording);
    }
    let mut replay = Replay { path: path.into(), keeps_pace: false };
    for (name, value) in each_option(options) {
        match (name, value) {
            ("pace", "fast") => replay.keeps_pace = false,
            ("pace", "recorded") => replay.keeps_pace = true,
            ("pace", _) => return Err(not_a_value(name, value, "fast or recorded")),
            _ => return Err(TargetError::UnknownOption { name: name.to_owned(), known: "pace" }),
        }
    }
    Ok(Target::Replay(replay))
}

fn each_option(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('&').filter(|option| !option.is_empty()).map(|option| option.split_once('=').unwrap_or((option, "")))
}

fn switch(name: &str, value: &str) -> Result<bool, TargetError> {
    match value {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(not_a_value(name, value, "on or off")),
    }
}

fn link(value: &str) -> Result<Link, TargetError> {
    match value {
        "lines" => Ok(Link::Lines),
        "cobs" => Ok(Link::Cobs),
        _ => Err(not_a_value("link", value, "lines or cobs")),
    }
}

fn not_a_value(name: &str, value: &str, expected: &'static str) -> TargetError {
    TargetError::OptionValue { name: name.to_owned(), value: value.to_owned(), expected }
}

/// The options of a target's text, as [`each_option`] reads them.
fn write_options(f: &mut fmt::Formatter<'_>, options: impl IntoIterator<Item = Option<String>>) -> fmt::Result {
    for (place, option) in options.into_iter().flatten().enumerate() {
        write!(f, "{}{option}", if place == 0 { '?' } else { '&' })?;
    }
    Ok(())
}

impl fmt::Display for Target {
    /// As [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(exec) => write!(f, "exec:{exec}"),
            Self::Serial(serial) => {
                match &serial.port {
                    Port::Path(path) => write!(f, "serial:{}", path.display())?,
                    Port::Auto => f.write_str("serial:auto")?,
                    Port::SerialNumber(number) => write!(f, "serial:auto/{number}")?,
                    Port::Usb(path) => write!(f, "serial:usb/{path}")?,
                }
                let on_off = |on| if on { "on" } else { "off" };
                let usual = Serial::new(Port::Auto);
                let options = [
                    (serial.baud != usual.baud).then(|| format!("baud={}", serial.baud)),
                    serial.dtr.map(|dtr| format!("dtr={}", on_off(dtr))),
                    serial.rts.map(|rts| format!("rts={}", on_off(rts))),
                    (serial.link == Link::Cobs).then(|| "link=cobs".to_owned()),
                ];
                write_options(f, options)
            }
            Self::Tcp(tcp) => {
                if tcp.host.contains(':') {
                    write!(f, "tcp:[{}]:{}", tcp.host, tcp.port)?;
                } else {
                    write!(f, "tcp:{}:{}", tcp.host, tcp.port)?;
                }
                let options = [
                    (tcp.link == Link::Cobs).then(|| "link=cobs".to_owned()),
                    tcp.token_file.as_ref().map(|file| format!("token-file={}", file.display())),
                ];
                write_options(f, options)
            }
            Self::Http(url) => f.write_str(url),
            Self::Replay(replay) => {
                let pace = if replay.keeps_pace { "?pace=recorded" } else { "" };
                write!(f, "replay:{}{pace}", replay.path.display())
            }
            Self::Rig(rig) => write!(f, "rig:{rig}"),
            Self::Sim => f.write_str("sim"),
        }
    }
}

impl fmt::Display for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = std::iter::once(&self.program).chain(&self.args);
        f.write_str(&shell_words::join(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(program: &str, args: &[&str]) -> Target {
        Target::Exec(Exec { program: program.into(), args: args.iter().map(|&arg| arg.into()).collect() })
    }

    fn serial(port: Port) -> Target {
        Target::Serial(Serial::new(port))
    }

    #[test]
    fn targets() {
        let tcp = |host: &str, port, link| Target::Tcp(Tcp { host: host.into(), port, link, token_file: None });
        let table = [
            ("sim", Target::Sim),
            ("exec:ext", exec("ext", &[])),
            ("exec:sh -c 'a \"b\" & wait' x\\ y", exec("sh", &["-c", "a \"b\" & wait", "x y"])),
            ("./my ext", exec("./my ext", &[])),
            ("ext-kubernetes", exec("ext-kubernetes", &[])),
            ("C:\\ext.exe", exec("C:\\ext.exe", &[])),
            ("serial:/dev/ttyACM0", serial(Port::Path("/dev/ttyACM0".into()))),
            ("serial:COM3", serial(Port::Path("COM3".into()))),
            ("serial:auto", serial(Port::Auto)),
            ("serial:auto/E66/1", serial(Port::SerialNumber("E66/1".into()))),
            ("serial:usb/1-2.3", serial(Port::Usb("1-2.3".into()))),
            (
                "serial:auto?baud=9600&dtr=off&rts=on&link=cobs",
                Target::Serial(Serial {
                    port: Port::Auto,
                    baud: 9600,
                    dtr: Some(false),
                    rts: Some(true),
                    link: Link::Cobs,
                }),
            ),
            ("tcp:localhost:7000", tcp("localhost", 7000, Link::Lines)),
            ("tcp://10.0.0.1:1?link=cobs", tcp("10.0.0.1", 1, Link::Cobs)),
            (
                "tcp:rig:7000?token-file=/etc/rig/token",
                Target::Tcp(Tcp {
                    host: "rig".into(),
                    port: 7000,
                    link: Link::Lines,
                    token_file: Some("/etc/rig/token".into()),
                }),
            ),
            ("tcp:[::1]:7000", tcp("::1", 7000, Link::Lines)),
            ("http://localhost/x", Target::Http("http://localhost/x".into())),
            ("replay:runs/1", Target::Replay(Replay { path: "runs/1".into(), keeps_pace: false })),
            ("rig:pico1", Target::Rig("pico1".into())),
            ("rig:board=pico,place=desk", Target::Rig("board=pico,place=desk".into())),
            ("replay:what?", Target::Replay(Replay { path: "what?".into(), keeps_pace: false })),
            ("replay:/r/1?pace=recorded", Target::Replay(Replay { path: "/r/1".into(), keeps_pace: true })),
        ];
        for (text, target) in table {
            assert_eq!(text.parse(), Ok(target.clone()), "{text}");
            assert_eq!(target.to_string().parse(), Ok(target), "{text}");
        }
    }

    #[test]
    fn a_misspelt_target_gets_a_suggestion() {
        for (text, meant) in [
            ("Sim", Some("sim")),
            ("SIM", Some("sim")),
            ("simm", Some("sim")),
            ("ttyACM0", Some("serial:/dev/ttyACM0")),
            ("dev/ttyUSB1", Some("serial:/dev/ttyUSB1")),
            ("cu.usbmodem1", Some("serial:/dev/cu.usbmodem1")),
            ("com3", Some("serial:COM3")),
            ("compile", None),
            ("serial", Some("serial:auto")),
            ("auto", Some("serial:auto")),
            ("weather", None),
            ("é", None),
        ] {
            assert_eq!(meant_by(text).as_deref(), meant, "{text}");
        }
    }

    #[test]
    fn texts_that_are_none_say_why() {
        let table = [
            ("", "the target is empty; try `sim`"),
            ("  ", "the target is empty; try `sim`"),
            ("seriel:auto", "`seriel:` is not a kind of target; did you mean serial:auto?"),
            ("Serial:auto", "did you mean serial:auto?"),
            ("TCP:localhost:7", "did you mean tcp:localhost:7?"),
            ("127.0.0.1:7000", "did you mean tcp:127.0.0.1:7000?"),
            ("localhost:7000", "did you mean tcp:localhost:7000?"),
            ("[::1]:7000", "did you mean tcp:[::1]:7000?"),
            ("my-rig.lan:7000", "did you mean tcp:my-rig.lan:7000?"),
            ("sim:", "did you mean sim?"),
            ("tpc:sim", "`tpc:` is not a kind of target; expected exec:PROGRAM, serial:PORT, tcp:HOST:PORT"),
            ("sim?seed=1", "`sim?seed=1`: the target sim has no options"),
            ("ws://localhost", "expected exec:PROGRAM"),
            ("tcp:7000", "such as tcp:localhost:7000 or"),
            ("exec:", "exec: names no program"),
            ("exec:''", "exec: names no program"),
            ("exec:sh -c 'x", "unclosed quote"),
            ("serial:", "names no port"),
            ("serial:auto/", "names no port"),
            ("serial:usb/", "names no port"),
            ("serial:?baud=1", "names no port"),
            ("/dev/ttyACM0", "write serial:/dev/ttyACM0"),
            ("serial:auto?baud=fast", "option baud: `fast` is not a speed such as 115200"),
            ("serial:auto?baud=0", "is not a speed"),
            ("serial:auto?dtr", "option dtr: `` is not on or off"),
            ("serial:auto?speed=1", "unknown option `speed`; expected one of: baud, dtr, rts, link"),
            ("serial:auto?link=tar", "option link: `tar` is not lines or cobs"),
            ("replay:", "replay: names no recording"),
            ("replay:?pace=fast", "replay: names no recording"),
            ("replay:x?pace=slow", "option pace: `slow` is not fast or recorded"),
            ("replay:x?speed=2", "unknown option `speed`; expected one of: pace"),
            ("rig:", "rig: names no rig; write rig:NAME or rig:KEY=VALUE"),
            ("replya:x", "did you mean replay:x?"),
            ("tcp:localhost", "is not an address"),
            ("tcp:localhost:", "is not an address"),
            ("tcp:localhost:99999", "is not an address; write tcp:HOST:PORT with a port from 1 to 65535"),
            ("tcp:localhost:0", "is not an address"),
            ("tcp::7000", "is not an address"),
            ("tcp:::1:7000", "is not an address"),
            ("tcp:localhost:7?baud=1", "unknown option `baud`; expected one of: link, token-file"),
        ];
        for (text, error) in table {
            let found = text.parse::<Target>().unwrap_err().to_string();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
