//! The operation `spi-transfer`.

use rigline::{Context, Failure, Outcome, Outputs, Params};

use super::hex::{Bytes, Hex};
use super::{Names, Rig, bad_argument, find, unreachable};
use crate::board::Board;
use crate::instruments::SpiSettings;
use crate::pinmap;

#[derive(Debug, Params)]
pub(crate) struct SpiTransfer<'a> {
    /// The bus
    #[param(one_of = pinmap::SPI_BUSES)]
    bus: &'a str,
    /// The bytes to write, in hexadecimal, such as `9f 00 00 00`: at most 256; as many are read
    #[param(min_length = 2, max_length = 1024)]
    write: &'a str,
    /// The highest frequency of the clock, in hertz
    #[param(minimum = 100000, maximum = 20000000, default = 1000000)]
    hertz: u32,
    /// The mode: 2 and 3 are with CPOL 1, and 1 and 3 with CPHA 1
    #[param(maximum = 3, default = 0)]
    mode: u8,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "for the schema")]
#[allow(deprecated, reason = "of what has no description: their names are plain, and a board's flash is small")]
pub(crate) struct Transferred<'a> {
    data: &'a str,
}

pub(crate) async fn transfer<B: Board>(
    rig: &mut Rig<B>,
    args: SpiTransfer<'_>,
    cx: &mut Context<'_>,
) -> Result<Outcome, Failure> {
    let bus = find("bus", args.bus, Names::Plain(rig.board.instruments().spi), cx)?;
    let mut bytes = Bytes::of_argument("write", args.write, cx)?;
    if bytes.as_slice().is_empty() {
        return Err(bad_argument(
            cx,
            "args.write: there is nothing to transfer: expected bytes, such as `9f 00 00 00`",
        ));
    }
    let settings = SpiSettings { hertz: args.hertz, idle_high: args.mode & 2 != 0, second_edge: args.mode & 1 != 0 };
    let transfer = rig.board.spi(bus, settings, bytes.as_mut_slice()).await;
    transfer.map_err(|fault| unreachable("bus", args.bus, fault, cx))?;
    cx.output("data", &Hex(bytes.as_slice()))?;
    cx.done(format_args!("transferred {} bytes on {}", bytes.as_slice().len(), args.bus))
}
