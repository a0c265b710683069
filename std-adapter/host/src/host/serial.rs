//! Serial ports: opened for us alone, raw before the first byte, and found again when they were unplugged.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serial2_tokio::{SerialPort, Settings};

use super::error::HostError;
use super::port_info::Holder;
use super::port_info::PortInfo;
use super::ports::Roots;
use super::rig_lock::{self, InUse};
use super::transport::{Connect, Connecting, Control, RawConnection, TransportTraits};
use crate::target::{Port, Serial, Target};
use rigline_std::mutex::lock;

pub(super) struct SerialDialer {
    serial: Serial,
    roots: Roots,
    /// The device that was opened last. It is found by its serial number if its port's name has changed.
    known: Mutex<Option<PortInfo>>,
    /// The device is this session's, also while it is unplugged, and with each of its ports.
    in_use: Mutex<Option<InUse>>,
}

impl SerialDialer {
    pub(super) fn new(serial: Serial, roots: Roots) -> Self {
        Self { serial, roots, known: Mutex::new(None), in_use: Mutex::new(None) }
    }

    fn find(&self) -> Result<PortInfo, HostError> {
        let known = lock(&self.known).clone();
        let Some(usb) = known.and_then(|port| port.usb).filter(|usb| !usb.serial_number.is_empty()) else {
            return self.roots.find(&self.serial.port);
        };
        let same = |port: &PortInfo| {
            port.usb.as_ref().is_some_and(|found| {
                (found.vendor_id, found.product_id, &found.serial_number)
                    == (usb.vendor_id, usb.product_id, &usb.serial_number)
            })
        };
        let ports = self.roots.ports();
        // A composite device has several ports, of which one is meant.
        let is_interface = |port: &&PortInfo| port.usb.as_ref().is_some_and(|found| found.interface == usb.interface);
        let mut of_device = ports.iter().filter(|port| same(port));
        let found = of_device.clone().find(is_interface).or_else(|| match (of_device.next(), of_device.next()) {
            // While a device is plugged in, its ports appear one after the other: the first may not be the one that was named.
            (Some(only), None) if matches!(self.serial.port, Port::Auto | Port::SerialNumber(_)) => Some(only),
            _ => None,
        });
        match (found, &self.serial.port) {
            (Some(port), _) => Ok(port.clone()),
            // A port that is named without a board means any board on it.
            (None, Port::Path(_) | Port::Usb(_)) => self.roots.find(&self.serial.port),
            // Another board than the one that the session began with is not asked.
            (None, _) => Err(HostError::NoDevice {
                wanted: format!("rigline device with the serial number {}", usb.serial_number),
                ports: ports.into_iter().filter(|port| port.usb.is_some()).collect(),
            }),
        }
    }

    fn open(&self) -> Result<RawConnection, HostError> {
        let info = self.find()?;
        if lock(&self.in_use).is_none() {
            let in_use = InUse::new(rig_lock::of_port(&info), true, &info.path.to_string_lossy(), &self.roots)?;
            *lock(&self.in_use) = Some(in_use);
        }
        let wire = open(&info.path, &self.serial, &self.roots)?;
        *lock(&self.known) = Some(info);
        Ok(wire)
    }
}

impl Connect for SerialDialer {
    fn name(&self) -> String {
        Target::Serial(self.serial.clone()).to_string()
    }

    fn dial(&self) -> Connecting<'_> {
        Box::pin(async { self.open() })
    }
}

/// Opens a port exclusively, in raw mode, its old bytes dropped and DTR asserted.
fn open(path: &Path, serial: &Serial, roots: &Roots) -> Result<RawConnection, HostError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => {
            HostError::Busy { port: path.to_owned(), holders: roots.holders(path) }
        }
        _ => HostError::Open { what: path.display().to_string(), source: claim::explained(path, error) },
    };
    let raw = |mut settings: Settings| {
        settings.set_raw();
        settings.set_baud_rate(serial.baud)?;
        Ok(settings)
    };
    let open = || {
        let claim = claim::Claim::new(path)?;
        let port = SerialPort::open(path, raw)?;
        Ok((claim, port))
    };
    let opened = claim::unprivileged(open).or_else(|error: io::Error| match error.kind() {
        // A pty stays exclusive when the process that made it so was killed, for as long as its other side is open. Root may
        // open it when no process has it open any more.
        io::ErrorKind::ResourceBusy if roots.holders(path).is_empty() => open(),
        _ => Err(error),
    });
    let (claim, port) = opened.map_err(failed)?;
    let claim = claim.exclude();
    // A pty has no modem lines, and some adapters refuse them. The port is usable nevertheless.
    let _ = port.set_dtr(serial.dtr.unwrap_or(true));
    if let Some(rts) = serial.rts {
        let _ = port.set_rts(rts);
    }
    let _ = port.discard_buffers();
    let (reader, writer) = (port.try_clone().map_err(failed)?, port.try_clone().map_err(failed)?);
    let (path, roots) = (path.to_owned(), roots.clone());
    let control = PortControl { port, dtr: serial.dtr.unwrap_or(true), path, roots, _claim: claim };
    Ok(RawConnection {
        control: Some(Arc::new(control)),
        ..RawConnection::new(reader, writer, TransportTraits::SERIAL)
    })
}

struct PortControl {
    port: SerialPort,
    dtr: bool,
    path: PathBuf,
    roots: Roots,
    _claim: claim::Claim,
}

impl Control for PortControl {
    fn set_dtr(&self, on: bool) -> io::Result<()> {
        self.port.set_dtr(on && self.dtr)
    }

    fn discard(&self) -> io::Result<()> {
        self.port.discard_buffers()
    }

    fn others(&self) -> Vec<Holder> {
        self.roots.rivals(&self.path)
    }
}

impl Drop for PortControl {
    fn drop(&mut self) {
        // Bytes that the device does not take any more would hold up the close, for half a minute on Linux.
        let _ = self.port.discard_buffers();
    }
}

#[cfg(unix)]
mod claim {
    use std::fs::{self, File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    use std::path::Path;

    use rustix::fs::{FlockOperation, OFlags, flock};
    use rustix::termios::{ioctl_tiocexcl, ioctl_tiocnxcl};

    /// Prevents other programs from opening a port. TIOCEXCL refuses every further open except by root. The advisory
    /// lock also stops root, in programs that check it.
    pub(super) struct Claim {
        file: File,
        is_exclusive: bool,
    }

    impl Claim {
        /// Fails with `ResourceBusy` or `WouldBlock` if another process has the port.
        pub(super) fn new(path: &Path) -> io::Result<Self> {
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Self { file, is_exclusive: false })
        }

        /// Where the driver has no such mode, the lock has to do.
        pub(super) fn exclude(mut self) -> Self {
            self.is_exclusive = ioctl_tiocexcl(&self.file).is_ok();
            self
        }
    }

    impl Drop for Claim {
        fn drop(&mut self) {
            // A pty stays, exclusive, as long as its other side is open. What this one has not set is not its to clear.
            if self.is_exclusive {
                let _ = ioctl_tiocnxcl(&self.file);
            }
        }
    }

    /// Opens without the privileges of root: for root only, the system opens a port that
    /// another process has set exclusive (tty_ioctl(4), `TIOCEXCL`).
    pub(super) fn unprivileged<T>(open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        #[cfg(target_os = "linux")]
        let _restored = rights::without();
        open()
    }

    #[cfg(target_os = "linux")]
    mod rights {
        use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

        /// Restores the rights of this thread when it is dropped.
        pub(super) struct Restored(CapabilitySets);

        /// Removes the right that exempts root from TIOCEXCL, from this thread only.
        pub(super) fn without() -> Option<Restored> {
            let before = capabilities(None).ok()?;
            if !before.effective.contains(CapabilitySet::SYS_ADMIN) {
                return None;
            }
            let effective = before.effective - CapabilitySet::SYS_ADMIN;
            set_capabilities(None, CapabilitySets { effective, ..before }).ok()?;
            Some(Restored(before))
        }

        impl Drop for Restored {
            fn drop(&mut self) {
                let _ = set_capabilities(None, self.0);
            }
        }
    }

    /// An error about a port, with what can be done about it.
    pub(super) fn explained(path: &Path, error: io::Error) -> io::Error {
        let more = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                fs::metadata(path).ok().map(|port| permission(path, port.mode(), port.gid()))
            }
            _ if path.is_dir() => Some("it is a folder".to_owned()),
            // ENOTTY has no kind that is stable.
            _ if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => {
                Some("it is not a serial port".to_owned())
            }
            _ => None,
        };
        match more {
            Some(more) => io::Error::new(error.kind(), format!("{error}; {more}")),
            None => error,
        }
    }

    /// Explains how a user gets access to a port with this mode and group.
    fn permission(path: &Path, mode: u32, group: u32) -> String {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let name = groups.lines().find_map(|line| {
            let mut words = line.split(':');
            let name = words.next()?;
            (words.nth(1)? == group.to_string()).then(|| name.to_owned())
        });
        let name = name.unwrap_or_else(|| group.to_string());
        if mode & 0o060 == 0o060 && group != 0 {
            return format!("it is for the group {name}: `sudo usermod -aG {name} $USER`, then log in again");
        }
        let device = path.file_name().unwrap_or_default().to_string_lossy();
        format!(
            "no group may use it; a udev rule can grant access: SUBSYSTEM==\"tty\", KERNEL==\"{device}\", GROUP=\"dialout\", MODE=\"0660\""
        )
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_missing_permission_names_the_way_out() {
            let group = permission(Path::new("/dev/ttyACM0"), 0o020_660, 20);
            // Debian's number of dialout; elsewhere it has another name, or none.
            assert!(group.starts_with("it is for the group ") && group.contains("usermod -aG"), "{group}");
            for (mode, group) in [(0o020_600, 20), (0o020_620, 5), (0o020_660, 0)] {
                let rule = permission(Path::new("/dev/ttyACM0"), mode, group);
                assert!(rule.contains("KERNEL==\"ttyACM0\"") && rule.contains("udev rule"), "{rule}");
            }
        }
    }
}

#[cfg(not(unix))]
mod claim {
    use std::io;
    use std::path::Path;

    /// Windows opens serial ports exclusively.
    pub(super) struct Claim;

    impl Claim {
        #[allow(clippy::unnecessary_wraps, reason = "as on Unix")]
        pub(super) fn new(_: &Path) -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) fn exclude(self) -> Self {
            self
        }
    }

    pub(super) fn unprivileged<T>(open: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        open()
    }

    pub(super) fn explained(_: &Path, error: io::Error) -> io::Error {
        error
    }
}
