//! The operations of I2C buses: `i2c-scan` and `i2c-transfer`.

use core::fmt;

use rigline::{Context, Failure, Outcome, Outputs, Params};
use serde::{Serialize, Serializer};

use super::hex::{Bytes, Hex};
use super::{Names, Rig, bad_argument, find, unreachable};
use crate::board::Board;
use crate::instruments::BusFault;
use crate::pinmap;

#[derive(Debug, Params)]
pub(crate) struct I2cScan<'a> {
    /// The bus
    #[param(one_of = pinmap::I2C_BUSES)]
    bus: &'a str,
}

#[derive(Debug, Params)]
pub(crate) struct I2cTransfer<'a> {
    /// The bus
    #[param(one_of = pinmap::I2C_BUSES)]
    bus: &'a str,
    /// The address of the device, of 7 bits: 0x08 to 0x77
    #[param(minimum = 8, maximum = 119)]
    address: u8,
    /// The bytes to write first, in hexadecimal, such as `00 1f`: at most 256
    #[param(default = "", max_length = 1024)]
    write: &'a str,
    /// How many bytes to read then
    #[param(maximum = 256, default = 0)]
    read: u16,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct Scanned<'a> {
    #[output(schema = r#"{"type":"array","items":{"type":"integer"}}"#)]
    addresses: &'a [u8],
}

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct Transferred<'a> {
    data: &'a str,
}

pub(crate) async fn scan<B: Board>(
    rig: &mut Rig<B>,
    args: I2cScan<'_>,
    cx: &mut Context<'_>,
) -> Result<Outcome, Failure> {
    let bus = find("bus", args.bus, Names::Plain(rig.board.instruments().i2c), cx)?;
    let mut found = Addresses(0);
    for address in Addresses::ALL {
        // A controller cannot address a device without a transfer. A byte that is read changes less
        // than one that is written.
        match rig.board.i2c(bus, address, &[], &mut [0]).await {
            Ok(()) => found.0 |= 1 << address,
            Err(BusFault::NoDevice) => {}
            Err(fault) => return refused(args.bus, address, fault, cx),
        }
    }
    cx.output("addresses", &found)?;
    if found.0 == 0 {
        return cx.done(format_args!("no device answers on {}", args.bus));
    }
    cx.done(format_args!("{} answer on {}: {found}", found.0.count_ones(), args.bus))
}

pub(crate) async fn transfer<B: Board>(
    rig: &mut Rig<B>,
    args: I2cTransfer<'_>,
    cx: &mut Context<'_>,
) -> Result<Outcome, Failure> {
    let bus = find("bus", args.bus, Names::Plain(rig.board.instruments().i2c), cx)?;
    let write = Bytes::of_argument("write", args.write, cx)?;
    let mut read = Bytes::zeros(args.read);
    if write.as_slice().is_empty() && args.read == 0 {
        return Err(bad_argument(
            cx,
            "args.read: there is nothing to transfer: expected bytes to write, or a number of bytes to read",
        ));
    }
    if let Err(fault) = rig.board.i2c(bus, args.address, write.as_slice(), read.as_mut_slice()).await {
        return refused(args.bus, args.address, fault, cx);
    }
    cx.output("data", &Hex(read.as_slice()))?;
    cx.done(format_args!(
        "wrote {} bytes to {:#04x} on {} and read {}",
        write.as_slice().len(),
        args.address,
        args.bus,
        args.read
    ))
}

/// A fault of the board under test is a result of the call. One of the rig's own hardware is not.
fn refused(bus: &str, address: u8, fault: BusFault, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
    match fault {
        BusFault::Rig(fault) => Err(unreachable("bus", bus, fault, cx)),
        BusFault::NoDevice | BusFault::Refused => cx.failed(format_args!("{bus}, address {address:#04x}: {fault}")),
        _ => cx.failed(format_args!("{bus}: {fault}")),
    }
}

/// Addresses, a bit each.
#[derive(Clone, Copy)]
struct Addresses(u128);

impl Addresses {
    /// Those that are not reserved (NXP UM10204, 3.1.12).
    const ALL: core::ops::RangeInclusive<u8> = 0x08..=0x77;

    fn iter(self) -> impl Iterator<Item = u8> {
        Self::ALL.filter(move |address| self.0 >> address & 1 == 1)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for address in self.iter() {
            write!(f, "{separator}{address:#04x}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Serialize for Addresses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
