//! `cargo emulator`: an emulated board to talk to, with serial ports.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    unix::run().unwrap_or_else(|reason| {
        eprintln!("emulator: {reason}");
        ExitCode::FAILURE
    })
}

#[cfg(not(unix))]
fn main() -> ExitCode {
    eprintln!("emulator: ptys need Unix; node tests/emulator/emulator.mjs IMAGE provides TCP ports");
    ExitCode::FAILURE
}

#[cfg(unix)]
mod unix {
    use std::io::{self, BufRead, BufReader, Write};
    use std::net::TcpStream;
    use std::process::{self, ExitCode};
    use std::time::Duration;
    use std::{env, thread};

    use rigline_tests::emulator::{Emulator, prepare};
    use rigline_tests::link;
    use rigline_tests::pty::Pty;
    use serde_json::Value;

    const USAGE: &str = "\
Runs an RP2040 image in the emulator, and gives each of its wires a serial port (a pty) and a TCP port. Ctrl-C ends it.

usage: cargo emulator [IMAGE] [OPTIONS]

IMAGE is the path of an image, or the name of one of the firmware's images, which is built if it is missing [default: rig]
  --usb-port N, --uart-port N, --control-port N   TCP ports of 127.0.0.1 [default: any]
  --dtr connect|manual   DTR follows the connection, or only the control port sets it [default: connect]
  --fast                 skip idle time
  --quiet                print nothing about resets and faults
  --until-eof            end at the end of standard input, also when the program that holds it is killed";

    const FLAGS: &[&str] = &["--fast", "--quiet"];
    const UNTIL_EOF: &str = "--until-eof";
    const WITH_VALUE: &[&str] = &["--usb-port", "--uart-port", "--control-port", "--dtr"];

    /// How long an image has to say what it can do. Emulated time is slower than real time on a busy computer.
    const ANSWER: Duration = Duration::from_secs(5);

    pub(crate) fn run() -> Result<ExitCode, String> {
        let mut arguments: Vec<String> = env::args().skip(1).collect();
        if arguments.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
            println!("{USAGE}");
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(at) = arguments.iter().position(|argument| argument == UNTIL_EOF) {
            arguments.remove(at);
            // The emulator of this process ends with it, since it has a pipe of this process as its own standard input.
            thread::spawn(|| {
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                process::exit(0);
            });
        }
        let (image, options) = match sort(arguments) {
            Ok(sorted) => sorted,
            Err(reason) => {
                eprintln!("emulator: {reason}\n\n{USAGE}");
                return Ok(ExitCode::from(2));
            }
        };
        let image = prepare(image.as_deref().unwrap_or("rig"))?;
        let mut emulator = Emulator::of(&image, &options)?;
        let offer = call_to_offer(emulator.usb());
        let on_the_link = link::is_spoken_on(emulator.uart(), ANSWER);
        let pty = |port| Pty::in_front_of(port).map_err(|error| format!("no pty: {error}"));
        let (usb, uart) = (pty(emulator.usb_port())?, pty(emulator.uart_port())?);
        let framing = if on_the_link { "  the binary link" } else { "" };
        println!("USB      {}  tcp:127.0.0.1:{}", usb.path(), emulator.usb_port());
        println!("UART0    {}  tcp:127.0.0.1:{}{framing}", uart.path(), emulator.uart_port());
        println!("control  127.0.0.1:{}  see tests/emulator/README.md", emulator.control_port());
        match offer {
            Some(call) => {
                println!("for one: cargo run -q -- {} serial:{} {}", call.verb(), usb.path(), call.operation());
            }
            None => println!("This image does not answer gevals' initialize."),
        }
        if on_the_link {
            println!("     or: cargo run -q -- describe serial:{}?link=cobs", uart.path());
        }
        Ok(if emulator.wait() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The image, if one is named, and the options for the emulator.
    fn sort(arguments: Vec<String>) -> Result<(Option<String>, Vec<String>), String> {
        let (mut image, mut options) = (None, Vec::new());
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let name = argument.split('=').next().unwrap_or_default();
            if !argument.starts_with('-') {
                if let Some(first) = image.replace(argument.clone()) {
                    return Err(format!("expected one image, not both {first} and {argument}"));
                }
            } else if FLAGS.contains(&argument.as_str()) {
                options.push(argument);
            } else if WITH_VALUE.contains(&name) {
                let value = if name == argument { arguments.next() } else { None };
                if name == argument && value.is_none() {
                    return Err(format!("{argument} needs a value"));
                }
                options.push(argument);
                options.extend(value);
            } else {
                return Err(format!("unknown option {argument}"));
            }
        }
        Ok((image, options))
    }

    /// A call that this image can answer.
    pub(crate) enum Offer {
        Call(String),
        Describe,
    }

    impl Offer {
        fn verb(&self) -> &str {
            if matches!(self, Self::Call(_)) { "call" } else { "describe" }
        }

        fn operation(&self) -> &str {
            if let Self::Call(name) = self { name } else { "" }
        }
    }

    /// A call by the image's own manifest: one that needs no arguments, a self-test first. `None`: it does not answer.
    fn call_to_offer(mut port: TcpStream) -> Option<Offer> {
        port.set_read_timeout(Some(ANSWER)).ok()?;
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
        let shutdown = r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#;
        write!(port, "{initialize}\n{shutdown}\n").ok()?;
        let mut lines = BufReader::new(port).lines();
        let mut reply = || lines.next()?.ok().and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let manifest = std::iter::from_fn(&mut reply).find(|reply| reply["id"] == 1)?;
        let operations = manifest["result"]["operations"].as_object()?.clone();
        let _ = std::iter::from_fn(&mut reply).find(|reply| reply["id"] == 2);
        let needs_nothing = |operation: &Value| operation["params"]["required"].as_array().is_none_or(Vec::is_empty);
        let callable: Vec<&String> =
            operations.iter().filter(|(_, operation)| needs_nothing(operation)).map(|(name, _)| name).collect();
        let preferred = |name: &str| callable.iter().any(|other| *other == name).then(|| name.to_owned());
        let chosen = preferred("self-test").or_else(|| preferred("identify"));
        Some(chosen.or_else(|| callable.first().map(|name| (*name).clone())).map_or(Offer::Describe, Offer::Call))
    }
}
