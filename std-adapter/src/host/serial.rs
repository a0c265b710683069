//! Serial ports: opened for us alone, raw before the first byte, and found again when they were unplugged.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serial2_tokio::{SerialPort, Settings};

use super::error::HostError;
use super::ports::{PortInfo, Roots};
use super::wire::{Control, Dial, Dialing, Manners, Wire};
use crate::target::{Port, Serial, Target};

pub(super) struct SerialDialer {
    serial: Serial,
    roots: Roots,
    /// The device that was opened last: it is looked for by its serial number when its port's name has changed.
    known: Mutex<Option<PortInfo>>,
}

impl SerialDialer {
    pub(super) fn new(serial: Serial, roots: Roots) -> Self {
        Self { serial, roots, known: Mutex::new(None) }
    }

    fn find(&self) -> Result<PortInfo, HostError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
        match (ports.iter().find(|port| same(port)), &self.serial.port) {
            (Some(port), _) => Ok(port.clone()),
            // Whoever named a port, and no board, means whatever is there.
            (None, Port::Path(_) | Port::Usb(_)) => self.roots.find(&self.serial.port),
            // Another board than the one that the session began with is not asked.
            (None, _) => Err(HostError::NoDevice {
                wanted: format!("rigline device with the serial number {}", usb.serial_number),
                ports: ports.into_iter().filter(|port| port.usb.is_some()).collect(),
            }),
        }
    }

    fn open(&self) -> Result<Wire, HostError> {
        let info = self.find()?;
        let wire = open(&info.path, &self.serial, &self.roots)?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(info);
        Ok(wire)
    }
}

impl Dial for SerialDialer {
    fn name(&self) -> String {
        Target::Serial(self.serial.clone()).to_string()
    }

    fn dial(&self) -> Dialing<'_> {
        Box::pin(async { self.open() })
    }
}

/// Opens a port exclusively, in raw mode, its old bytes dropped and DTR asserted.
fn open(path: &Path, serial: &Serial, roots: &Roots) -> Result<Wire, HostError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => {
            HostError::Busy { port: path.to_owned(), holders: roots.holders(path) }
        }
        _ => HostError::Open { what: path.display().to_string(), source: error },
    };
    let claim = claim::Claim::new(path).map_err(failed)?;
    let raw = |mut settings: Settings| {
        settings.set_raw();
        settings.set_baud_rate(serial.baud)?;
        Ok(settings)
    };
    let port = SerialPort::open(path, raw).map_err(failed)?;
    claim.exclude().map_err(failed)?;
    // A pty has no modem lines, and some adapters refuse them: that is no reason not to talk.
    let _ = port.set_dtr(serial.dtr.unwrap_or(true));
    if let Some(rts) = serial.rts {
        let _ = port.set_rts(rts);
    }
    let _ = port.discard_buffers();
    let (reader, writer) = (port.try_clone().map_err(failed)?, port.try_clone().map_err(failed)?);
    let control = PortControl { port, dtr: serial.dtr.unwrap_or(true), _claim: claim };
    Ok(Wire { control: Some(Arc::new(control)), ..Wire::new(reader, writer, Manners::SERIAL) })
}

struct PortControl {
    port: SerialPort,
    dtr: bool,
    _claim: claim::Claim,
}

impl Control for PortControl {
    fn set_dtr(&self, on: bool) -> io::Result<()> {
        self.port.set_dtr(on && self.dtr)
    }

    fn discard(&self) -> io::Result<()> {
        self.port.discard_buffers()
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
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;

    use rustix::fs::{FlockOperation, OFlags, flock};
    use rustix::termios::{ioctl_tiocexcl, ioctl_tiocnxcl};

    /// Keeps others from a port: TIOCEXCL stops every further open, but not one by root; the advisory lock stops root's
    /// too, of programs that ask for it.
    pub(super) struct Claim(File);

    impl Claim {
        /// Fails with `ResourceBusy` or `WouldBlock` if somebody else has the port.
        pub(super) fn new(path: &Path) -> io::Result<Self> {
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
            let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(path)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(Self(file))
        }

        pub(super) fn exclude(&self) -> io::Result<()> {
            Ok(ioctl_tiocexcl(&self.0)?)
        }
    }

    impl Drop for Claim {
        fn drop(&mut self) {
            // A pty stays, exclusive, as long as its other side is open.
            let _ = ioctl_tiocnxcl(&self.0);
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

        #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Unix")]
        pub(super) fn exclude(&self) -> io::Result<()> {
            Ok(())
        }
    }
}
