//! The serial ports of this machine, and the devices behind them.
//!
//! On Linux they are read from sysfs. On other systems only their names are known.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::error::HostError;
use super::port_info::Holder;
pub use super::port_info::{PortInfo, UsbInfo};
use crate::target::Port;
use crate::{files, terminal};

/// The folders in which serial ports are searched. [`Roots::of_environment`] is the usual value.
/// Tests use other folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// The folder in place of `/sys`. It describes the USB devices.
    pub sys: PathBuf,
    /// The folder in place of `/dev`. It has the files of the ports.
    pub dev: PathBuf,
    /// The folder in place of `/proc`. Processes that have a port open are searched there.
    pub proc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into(), proc: "/proc".into() }
    }
}

impl Roots {
    /// Returns the folders of the system, or those below the folder that the variable
    /// `RIGLINE_ROOT` names. That variable is for containers and tests. If its folder has no
    /// `proc`, processes are searched in `/proc`.
    pub fn of_environment() -> Self {
        let Some(root) = std::env::var_os("RIGLINE_ROOT").filter(|root| !root.is_empty()).map(PathBuf::from) else {
            return Self::default();
        };
        let proc = Some(root.join("proc")).filter(|proc| proc.is_dir()).unwrap_or_else(|| "/proc".into());
        Self { sys: root.join("sys"), dev: root.join("dev"), proc }
    }

    /// Checks that the folder that `RIGLINE_ROOT` names exists.
    ///
    /// # Errors
    /// The folder does not exist.
    pub fn check(&self) -> Result<(), HostError> {
        match self.sys.parent() {
            Some(root) if *self != Self::default() && !root.is_dir() => Err(HostError::Unsupported(format!(
                "{} is not a folder; the variable RIGLINE_ROOT names it",
                root.display()
            ))),
            _ => Ok(()),
        }
    }

    /// The file that a port's path means. A name without a folder is in `/dev`, or in `/dev/serial`, which has udev's
    /// stable names.
    fn file(&self, path: &Path) -> PathBuf {
        if cfg!(windows) || fs::symlink_metadata(path).is_ok() {
            return path.to_owned();
        }
        let below = path.strip_prefix("/dev").unwrap_or(path);
        let names = [self.dev.join(below), self.dev.join("serial").join(below)];
        names.into_iter().find(|name| fs::symlink_metadata(name).is_ok()).unwrap_or_else(|| path.to_owned())
    }

    /// Returns the serial ports that have hardware behind them, sorted by name.
    pub fn ports(&self) -> Vec<PortInfo> {
        let mut ports: Vec<PortInfo> = if cfg!(target_os = "linux") || *self != Self::default() {
            let names = fs::read_dir(self.sys.join("class/tty")).into_iter().flatten().flatten();
            names.filter_map(|entry| self.port(&entry.path())).collect()
        } else {
            let paths = serial2_tokio::SerialPort::available_ports().unwrap_or_default();
            paths.into_iter().map(|path| PortInfo { path, usb: None }).collect()
        };
        ports.sort_by_key(|port| natural(&port.path));
        ports
    }

    fn port(&self, class: &Path) -> Option<PortInfo> {
        let name = class.file_name()?;
        // Virtual terminals have no device. Serial ports on the board have one even where no chip answers; a UART says by its
        // type that it is not there.
        let device = fs::canonicalize(class.join("device")).ok()?;
        let read = |path: &Path| attribute(path).map(|text| text.trim().to_owned());
        if read(&class.join("type")).is_some_and(|kind| kind == "0") {
            return None;
        }
        let usb = device.ancestors().find(|folder| folder.join("idVendor").exists()).map(|folder| {
            // The folder below the device's is the interface's: 1-2.3:1.2.
            let below = device.strip_prefix(folder).ok().and_then(|below| below.iter().next());
            let interface =
                below.and_then(|name| name.to_str()?.split_once(':')).map(|(_, interface)| interface.to_owned());
            let id =
                |file| read(&folder.join(file)).and_then(|id| u16::from_str_radix(&id, 16).ok()).unwrap_or_default();
            let text = |file| read(&folder.join(file)).unwrap_or_default();
            UsbInfo {
                interface: interface.unwrap_or_default(),
                place: folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
                vendor_id: id("idVendor"),
                product_id: id("idProduct"),
                manufacturer: text("manufacturer"),
                product: text("product"),
                serial_number: text("serial"),
            }
        });
        Some(PortInfo { path: self.dev.join(name), usb })
    }

    /// Returns the one port that matches `wanted`. Nothing is written to any port.
    pub fn find(&self, wanted: &Port) -> Result<PortInfo, HostError> {
        self.check()?;
        let ports = self.ports();
        let (fitting, name): (Vec<PortInfo>, String) = match wanted {
            Port::Path(path) => {
                let path = self.file(path);
                let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                let is_same =
                    |port: &PortInfo| port.path == path || fs::canonicalize(&port.path).is_ok_and(|port| port == real);
                let usb = ports.into_iter().find(is_same).and_then(|port| port.usb);
                return Ok(PortInfo { path, usb });
            }
            Port::Auto => (ports.iter().filter(|port| port.is_rigline()).cloned().collect(), "rigline device".into()),
            Port::SerialNumber(number) => {
                let fits = |port: &&PortInfo| {
                    port.is_rigline() && port.usb.as_ref().is_some_and(|usb| usb.serial_number == *number)
                };
                (
                    ports.iter().filter(fits).cloned().collect(),
                    format!("rigline device with the serial number {number}"),
                )
            }
            Port::Usb(place) => {
                let fits = |port: &&PortInfo| {
                    port.usb.as_ref().is_some_and(|usb| {
                        usb.place == *place
                            || place.split_once(':') == Some((usb.place.as_str(), usb.interface.as_str()))
                    })
                };
                (ports.iter().filter(fits).cloned().collect(), format!("serial device at the USB port {place}"))
            }
        };
        let mut fitting = fitting.into_iter();
        match (fitting.next(), fitting.next()) {
            (Some(port), None) => Ok(port),
            (Some(first), Some(second)) => {
                Err(HostError::SeveralDevices { ports: [first, second].into_iter().chain(fitting).collect() })
            }
            (None, _) => Err(HostError::NoDevice {
                wanted: name,
                ports: ports.into_iter().filter(|port| port.usb.is_some()).collect(),
            }),
        }
    }

    /// Returns the processes that may take bytes from the device at `path`: its
    /// [`holders`](Self::holders), without those that act as the device, such as a simulation at
    /// the other side of a pseudo terminal.
    pub fn rivals(&self, path: &Path) -> Vec<Holder> {
        let number = fs::canonicalize(path).ok().and_then(|path| {
            let number = path.strip_prefix("/dev/pts").ok()?.to_str()?.parse::<u32>().ok()?;
            Some(number.to_string())
        });
        let mut rivals = self.holders(path);
        if let Some(number) = number {
            rivals.retain(|holder| !self.is_other_side(holder.pid, &number));
        }
        rivals
    }

    /// Whether a process has the other side of the pty with this number (proc(5), `fdinfo`: `tty-index`).
    fn is_other_side(&self, pid: u32, number: &str) -> bool {
        let process = self.proc.join(pid.to_string());
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let mut sides = files.filter(|file| fs::read_link(file.path()).is_ok_and(|to| to.ends_with("ptmx")));
        sides.any(|file| {
            let info = attribute(&process.join("fdinfo").join(file.file_name())).unwrap_or_default();
            info.lines().any(|line| line.strip_prefix("tty-index:").is_some_and(|index| index.trim() == number))
        })
    }

    /// Returns the processes that have the file at `path` open, as far as this user can see them.
    /// This process is not listed.
    pub fn holders(&self, path: &Path) -> Vec<Holder> {
        let Ok(path) = fs::canonicalize(path) else { return Vec::new() };
        let processes = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let mut holders: Vec<Holder> = processes
            .filter_map(|process| {
                let pid: u32 = process.file_name().to_str()?.parse().ok()?;
                let mut files = fs::read_dir(process.path().join("fd")).ok()?.flatten();
                if pid == std::process::id() || !files.any(|file| fs::read_link(file.path()).is_ok_and(|to| to == path))
                {
                    return None;
                }
                let command = attribute(&process.path().join("cmdline")).unwrap_or_default();
                let command = command.trim_end_matches('\0').replace('\0', " ");
                let name = || attribute(&process.path().join("comm")).unwrap_or_default().trim().to_owned();
                let command = if command.is_empty() { name() } else { command };
                // Anybody may call a process anything.
                Some(Holder { pid, command: terminal::one_line(&terminal::cut(&command, SHOWN)).into() })
            })
            .collect();
        holders.sort_by_key(|holder| holder.pid);
        holders
    }
}

/// The most that is read of a file that describes a device or a process, in bytes.
const LONGEST: u64 = 4096;

/// The beginning of a file of sysfs or procfs. The folder in their place may have anything: only a
/// regular file is read, so that a FIFO or a device keeps nobody waiting.
fn attribute(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    files::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// How many characters of a process's command line are shown.
const SHOWN: usize = 200;

/// Sorts `ttyACM10` behind `ttyACM9`.
fn natural(path: &Path) -> (String, u64) {
    let name = path.to_string_lossy();
    let word = name.trim_end_matches(|char: char| char.is_ascii_digit());
    (word.to_owned(), name[word.len()..].parse().unwrap_or_default())
}
