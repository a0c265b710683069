//! The lock that gives a rig to one user at a time, by whatever name the user calls it.
//!
//! A rig has names that do not depend on how a target is written. A server has its resolved
//! addresses, and a USB device its vendor, product and serial number. Each name has a file that is
//! locked while the rig is used. The system unlocks it when the process ends, in whatever way.
//!
//! Runs of evals and of pytest do not share a rig. Other sessions with a server share it, since a
//! server serves several clients. A serial port is never shared.
//!
//! The Python client has the same lock (`_lock.py`), with the same files.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use super::error::HostError;
use super::port_info::PortInfo;
use super::ports::Roots;
use crate::target::{Port, Target};
use rigline_std::mutex::lock;

/// The longest name of a file.
const NAME_LIMIT: usize = 120;

/// The names of a server's addresses, sorted. All addresses of this machine are one, since a server may listen on all of them.
pub(crate) fn of_addresses(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<String> {
    let name = |address: SocketAddr| {
        let ip = address.ip().to_canonical();
        if is_here(ip) { format!("tcp-here-{}", address.port()) } else { format!("tcp-{ip}-{}", address.port()) }
    };
    sorted(addresses.into_iter().map(name).collect())
}

/// The names of the device on a port. The port itself needs none, since the system opens it once; but a device may have several ports.
pub(crate) fn of_port(port: &PortInfo) -> Vec<String> {
    let usb = port.usb.iter().filter(|usb| !usb.serial_number.is_empty());
    usb.map(|usb| format!("usb-{:04x}-{:04x}-{}", usb.vendor_id, usb.product_id, usb.serial_number)).collect()
}

/// Returns names of a rig by which two targets of the same rig are recognized, however they are
/// written. A program has no names, since each session starts its own. The function may wait for
/// the resolution of a host name.
pub fn names(target: &Target, roots: &Roots) -> Vec<String> {
    match target {
        Target::Serial(serial) => {
            let port = match (roots.find(&serial.port), &serial.port) {
                (Ok(port), _) => port,
                (Err(_), Port::Path(path)) => PortInfo { path: path.clone(), usb: None },
                // It is not plugged in: the first session will say so.
                (Err(_), _) => return vec![target.to_string()],
            };
            let path = fs::canonicalize(&port.path).unwrap_or_else(|_| port.path.clone());
            sorted(std::iter::once(format!("port-{}", path.display())).chain(of_port(&port)).collect())
        }
        Target::Tcp(tcp) => match (tcp.host.as_str(), tcp.port).to_socket_addrs() {
            Ok(addresses) => of_addresses(addresses),
            Err(_) => vec![format!("tcp-{}-{}", tcp.host.to_ascii_lowercase(), tcp.port)],
        },
        // Which board it is, its agent knows.
        Target::Rig(_) => vec![target.to_string()],
        Target::Http(_) | Target::Exec(_) | Target::Replay(_) | Target::Sim => Vec::new(),
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether an address is one of this machine's: another one cannot be bound.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified() || UdpSocket::bind((ip, 0)).is_ok()
}

/// A rig that this process uses. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    names: Vec<String>,
    is_alone: bool,
}

/// The locks of this process: a process does not lock itself out.
static HELD: LazyLock<Mutex<HashMap<String, Held>>> = LazyLock::new(Mutex::default);

struct Held {
    file: File,
    alone: usize,
    shared: usize,
}

impl InUse {
    /// Takes the rig of these names: alone, or with others that share it.
    ///
    /// # Errors
    /// [`HostError::Busy`] if another process has it, and [`HostError::Open`] if there can be no lock. `target` is the rig as it was named.
    pub(crate) fn new(names: Vec<String>, is_alone: bool, target: &str, roots: &Roots) -> Result<Self, HostError> {
        let mut taken = Self { names: Vec::new(), is_alone };
        for name in names {
            match take(&name, is_alone) {
                Ok(true) => taken.names.push(name),
                Ok(false) => {
                    let holders = path(&name).map(|path| roots.holders(&path)).unwrap_or_default();
                    return Err(HostError::Busy { port: target.into(), holders });
                }
                Err(source) => return Err(HostError::Open { what: format!("the lock of {target}"), source }),
            }
        }
        Ok(taken)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut held = lock(&HELD);
        for name in &self.names {
            let Some(one) = held.get_mut(name) else { continue };
            let count = if self.is_alone { &mut one.alone } else { &mut one.shared };
            *count = count.saturating_sub(1);
            match (one.alone, one.shared) {
                (0, 0) => drop(held.remove(name)),
                (0, _) if self.is_alone => {
                    let _ = one.file.unlock();
                    let _ = one.file.try_lock_shared();
                }
                _ => {}
            }
        }
    }
}

/// Whether the lock was taken.
fn take(name: &str, is_alone: bool) -> io::Result<bool> {
    let mut held = lock(&HELD);
    if let Some(one) = held.get_mut(name) {
        if is_alone && one.alone == 0 {
            one.file.unlock()?;
            if !is_taken(one.file.try_lock())? {
                one.file.try_lock_shared().map_err(io::Error::from)?;
                return Ok(false);
            }
        }
        *(if is_alone { &mut one.alone } else { &mut one.shared }) += 1;
        return Ok(true);
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    }
    let mut file = options.open(path(name)?)?;
    if !is_taken(if is_alone { file.try_lock() } else { file.try_lock_shared() })? {
        // What a holder starts to talk to its rig, such as `rigline bridge`, uses it for its holder.
        return Ok(is_parents(&mut file));
    }
    // For people, and for the Python client.
    let _ = file.set_len(0).and_then(|()| file.write_all(format!("{} - rigline", std::process::id()).as_bytes()));
    held.insert(name.to_owned(), Held { file, alone: usize::from(is_alone), shared: usize::from(!is_alone) });
    Ok(true)
}

/// Whether the process that has started this one holds a lock.
fn is_parents(file: &mut File) -> bool {
    #[cfg(unix)]
    {
        use std::io::Read as _;

        let mut holder = String::new();
        let has_read = file.take(64).read_to_string(&mut holder).is_ok();
        let holder = holder.split_whitespace().next().and_then(|pid| pid.parse().ok());
        has_read && holder == Some(std::os::unix::process::parent_id())
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        false
    }
}

fn is_taken(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The file of a name. The folder does not depend on variables such as `TMPDIR`, which two processes may have differently.
fn path(name: &str) -> io::Result<PathBuf> {
    let fit = |char: char| if char.is_ascii_alphanumeric() || matches!(char, '.' | '-') { char } else { '_' };
    let name: String = name.chars().take(NAME_LIMIT).map(fit).collect();
    Ok(folder()?.join(format!("{name}.lock")))
}

#[cfg(unix)]
fn folder() -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
    let user = rustix::process::getuid().as_raw();
    let folder = PathBuf::from(format!("/tmp/rigline-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let about = fs::symlink_metadata(&folder)?;
    if !about.is_dir() || about.uid() != user {
        let text = format!("{} is not a folder of this user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(folder)
}

#[cfg(not(unix))]
fn folder() -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join("rigline-user");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::super::ports::UsbInfo;
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<String> {
        of_addresses(texts.iter().map(|text| text.parse::<SocketAddr>().unwrap()))
    }

    #[test]
    fn each_name_of_an_address_gives_the_same_lock() {
        for text in
            ["127.0.0.1:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000", "127.0.1.1:7000", "0.0.0.0:7000", "[::]:7000"]
        {
            assert_eq!(addresses(&[text]), ["tcp-here-7000"], "{text}");
        }
        assert_eq!(addresses(&["[::1]:7000", "127.0.0.1:7000"]), ["tcp-here-7000"]);
        // An address for documentation (RFC 5737) is not this machine's.
        assert_eq!(addresses(&["[::ffff:192.0.2.7]:7000"]), addresses(&["192.0.2.7:7000"]));
        assert_eq!(addresses(&["192.0.2.7:7000"]), ["tcp-192.0.2.7-7000"]);
        assert_ne!(addresses(&["127.0.0.1:7000"]), addresses(&["127.0.0.1:7001"]));
    }

    #[test]
    fn each_port_of_one_usb_device_has_its_name() {
        let port = |path: &str, serial: &str| {
            let usb = UsbInfo { vendor_id: 0x2e8a, product_id: 10, serial_number: serial.into(), ..UsbInfo::default() };
            of_port(&PortInfo { path: path.into(), usb: Some(usb) })
        };
        let both = [port("/no/ttyACM0", "E66"), port("/no/ttyACM1", "E66")];
        assert!(both.iter().all(|names| names.contains(&"usb-2e8a-000a-E66".to_owned())), "{both:?}");
        assert_eq!(port("/no/ttyACM0", ""), [""; 0]);
    }

    #[test]
    fn a_process_does_not_lock_itself_out_and_lets_go_at_the_last_end() {
        let names = || vec![format!("test-{}", std::process::id())];
        let take = |is_alone| InUse::new(names(), is_alone, "tcp:x:1", &Roots::default()).unwrap();
        let (shared, alone) = (take(false), take(true));
        let again = take(true);
        drop((alone, again));
        // It is shared again: others may share it, but none may have it alone.
        let file = File::open(path(&names()[0]).unwrap()).unwrap();
        assert!(file.try_lock().is_err());
        file.try_lock_shared().unwrap();
        file.unlock().unwrap();
        drop(shared);
        file.try_lock().unwrap();
        let refused = InUse::new(names(), false, "tcp:x:1", &Roots::default()).unwrap_err();
        assert!(refused.to_string().starts_with("tcp:x:1 is in use by "), "{refused}");
        fs::remove_file(path(&names()[0]).unwrap()).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn one_board_has_one_lock_whatever_it_is_called() {
        let device = |target: &str| names(&target.parse().unwrap(), &Roots::default());
        let folder = tempfile::tempdir().unwrap();
        let port = folder.path().join("ttyX");
        std::fs::write(&port, "").unwrap();
        std::os::unix::fs::symlink("ttyX", folder.path().join("by-id")).unwrap();
        let [a, b] = ["ttyX", "by-id"].map(|name| device(&format!("serial:{}", folder.path().join(name).display())));
        assert_eq!(a, b);
        assert_eq!(device(&format!("serial:{}?baud=9600", port.display())), a);
        for (one, other, is_same) in [
            ("tcp:localhost:7000", "tcp:127.0.0.1:7000", true),
            ("tcp:LocalHost:7000", "tcp:[::1]:7000", true),
            ("tcp:localhost:7000", "tcp:localhost:7001", false),
            ("tcp:0.0.0.0:7000", "tcp:[::ffff:127.0.0.1]:7000", true),
            ("tcp:no-such-rig.invalid:7000", "tcp:NO-such-rig.invalid:7000?link=cobs", true),
        ] {
            assert_eq!(device(one) == device(other), is_same, "{one} and {other}");
        }
    }
}
