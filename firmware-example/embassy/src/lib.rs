//! What a rigline firmware on [embassy](https://embassy.dev) needs besides the core, for any extension:
//!
//! - [`usb_cdc`]: a USB serial port as `embedded-io-async` streams that do not wedge, lose or repeat bytes;
//! - [`LogsMayBeLost`]: a writer for it that drops whole log lines when nobody reads, so that the firmware goes on;
//! - [`EmbassyClock`]: embassy's time as the core's [`Clock`](rigline::Clock);
//! - `rp2040` (feature of that name, bare metal only): what `usb_cdc` wants of an RP2040, and the board's number.
//!
//! `rigline new NAME --firmware rp2040` writes a firmware that uses all of it. In short:
//!
//! ```ignore
//! let mut port = Port::new(&mut builder, STATE.init_with(State::new), rp2040::Endpoints::first());
//! let mut device = builder.build();
//! let serving = async {
//!     let presence = port.presence();
//!     loop {
//!         let (reader, writer) = port.connected().await;
//!         let mut writer = LogsMayBeLost::new(writer, Duration::from_millis(100));
//!         let (transport, lost) = (Transport::Wire, presence.lost());
//!         let _ = serve(&mut extension, &mut engine, reader, &mut writer, transport, logs, &EmbassyClock, lost).await;
//!     }
//! };
//! join(usb_cdc::run(&mut device, rp2040::Endpoints::first()), serving).await;
//! ```

#![no_std]

mod clock;
mod logs;
#[cfg(all(target_os = "none", feature = "rp2040"))]
pub mod rp2040;
pub mod usb_cdc;

pub use clock::EmbassyClock;
pub use logs::LogsMayBeLost;
