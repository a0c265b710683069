//! `cargo emulator`: an emulated board to talk to, with a serial port of its own.
//!
//!     cargo emulator [IMAGE] [OPTIONS OF emulator.mjs]
//!
//! IMAGE is the path of an image, or the name of one of the firmware's, `rig` if unsaid; what is missing is built. Ctrl-C ends it.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    match unix::run() {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("emulator: {reason}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("emulator: ptys are Unix's; node tests/emulator/emulator.mjs IMAGE gives TCP ports");
    ExitCode::FAILURE
}

#[cfg(unix)]
mod unix {
    use std::env;
    use std::path::PathBuf;
    use std::process::ExitCode;

    use rigline_tests::emulator::{Emulator, firmware_directory, prepare};
    use rigline_tests::pty::Pty;

    pub(crate) fn run() -> Result<ExitCode, String> {
        let mut arguments: Vec<String> = env::args().skip(1).collect();
        let image = match arguments.first() {
            Some(first) if !first.starts_with('-') => arguments.remove(0),
            _ => "rig".to_owned(),
        };
        let image = if image.contains('/') {
            PathBuf::from(image)
        } else {
            prepare(&image)?;
            firmware_directory().join(image)
        };
        let mut emulator = Emulator::of(&image, &arguments)?;
        let pty = |port| Pty::in_front_of(port).map_err(|error| format!("no pty: {error}"));
        let (usb, uart) = (pty(emulator.usb_port())?, pty(emulator.uart_port())?);
        println!("USB      {}  tcp:127.0.0.1:{}", usb.path(), emulator.usb_port());
        println!("UART0    {}  tcp:127.0.0.1:{}  the binary link", uart.path(), emulator.uart_port());
        println!("control  127.0.0.1:{}  see tests/emulator/README.md", emulator.control_port());
        println!("for one: cargo run -q -- call serial:{} self-test", usb.path());
        println!("     or: cargo run -q -- describe serial:{}?link=cobs", uart.path());
        Ok(if emulator.wait() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
