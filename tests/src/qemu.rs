//! An image of `firmware-example/boards` in QEMU, as a child process.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::emulator::PATIENCE;

/// A board that QEMU runs.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The name of its image.
    pub image: &'static str,
    target: &'static str,
    program: &'static str,
    /// The first one that QEMU knows.
    machines: &'static [&'static str],
    options: &'static [&'static str],
}

/// The boards, each with a kind of processor of its own.
pub const MODELS: [Model; 3] = [
    Model {
        image: "qemu-stm32f405",
        target: "thumbv7em-none-eabi",
        program: "qemu-system-arm",
        machines: &["olimex-stm32-h405", "netduinoplus2"],
        options: &[],
    },
    Model {
        image: "qemu-an505",
        target: "thumbv8m.main-none-eabi",
        program: "qemu-system-arm",
        machines: &["mps2-an505"],
        options: &[],
    },
    Model {
        image: "qemu-riscv32",
        target: "riscv32imac-unknown-none-elf",
        program: "qemu-system-riscv32",
        machines: &["virt"],
        options: &["-bios", "none", "-m", "16M"],
    },
];

/// A running board. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Board {
    child: Child,
    port: u16,
}

impl Board {
    /// Runs the board until its UART answers.
    ///
    /// Where QEMU or the image is missing, says what is skipped and gives `None`. With `RIGLINE_REQUIRE_BOARDS` in the
    /// environment that is a failure, so that CI skips nothing unseen.
    ///
    /// # Panics
    /// When the board does not answer.
    pub fn start(model: &Model) -> Option<Self> {
        let (image, machine) = match requirements(model) {
            Ok(found) => found,
            Err((why, remedy)) => {
                assert!(env::var_os("RIGLINE_REQUIRE_BOARDS").is_none(), "{why}: {remedy}");
                rigline_test_support::skipped("the tests of the boards in QEMU", &why, &remedy);
                return None;
            }
        };
        // It ends by itself, too, if this process is killed.
        let mut command = Command::new("timeout");
        command.args(["1800", model.program, "-M", machine, "-kernel"]).arg(image).args(model.options);
        command.args([
            "-nodefaults",
            "-nic",
            "none",
            "-display",
            "none",
            "-serial",
            "tcp:127.0.0.1:0,server=on,wait=off",
        ]);
        command.args(["-monitor", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // It warns about hardware that it always emulates.
        command.stderr(Stdio::null()).process_group(0);
        let child = command.spawn().expect("there is `timeout`");
        let mut board = Self { child, port: 0 };
        board.port = board.chosen_port();
        board.wait_until_it_answers();
        Some(board)
    }

    /// The TCP port that its UART is on. It has one user at a time. The board does not notice when one goes and another comes.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The UART.
    ///
    /// # Panics
    /// When QEMU does not listen.
    pub fn uart(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("QEMU listens");
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
            .expect("a socket takes options");
        stream
    }

    /// The port that QEMU has chosen, by its monitor.
    fn chosen_port(&mut self) -> u16 {
        writeln!(self.child.stdin.as_mut().expect("stdin is piped"), "info chardev").expect("QEMU reads");
        for line in BufReader::new(self.child.stdout.take().expect("stdout is piped")).lines() {
            let line = line.expect("QEMU writes text");
            if let Some((_, rest)) = line.split_once("tcp:127.0.0.1:") {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                return digits.parse().expect("QEMU tells its port");
            }
        }
        panic!("QEMU has ended: {:?}; .ci/boards.sh has its options", self.child.wait())
    }

    /// Bytes that are sent before the UART is on are lost, as on a real chip.
    fn wait_until_it_answers(&self) {
        let mut uart = self.uart();
        uart.set_read_timeout(Some(Duration::from_millis(200))).expect("the limit is not zero");
        let begun = Instant::now();
        let mut answers = 0;
        let mut asked = 0;
        while answers == 0 {
            assert!(begun.elapsed() < 2 * PATIENCE, "the board does not answer");
            uart.write_all(b"\n{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"none\"}\n").expect("QEMU reads");
            asked += 1;
            let mut bytes = [0; 4096];
            answers = uart.read(&mut bytes).unwrap_or(0);
        }
        // What answers to the other questions may still come.
        let mut bytes = [0; 4096];
        while asked > 1 && uart.read(&mut bytes).is_ok_and(|count| count > 0) {}
        // An answer of which the first part came is over by then.
        thread::sleep(Duration::from_millis(50));
        while uart.read(&mut bytes).is_ok_and(|count| count > 0) {}
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The image and the machine, or what is missing and how to bring it.
fn requirements(model: &Model) -> Result<(PathBuf, &'static str), (String, String)> {
    let Model { image, target, program, .. } = model;
    let known = Command::new(program).args(["-M", "help"]).stderr(Stdio::null()).output();
    let known = known.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let is_known = |machine: &&&str| known.lines().any(|line| line.split(' ').next() == Some(**machine));
    let Some(machine) = model.machines.iter().find(is_known) else {
        let package = if program.ends_with("arm") { "qemu-system-arm" } else { "qemu-system-misc" };
        return Err((format!("there is no {program}"), format!("apt-get install {package}")));
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let built = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let path = built.join(target).join("firmware").join(image);
    if path.is_file() {
        Ok((path, machine))
    } else {
        Err((format!("there is no image {image}"), format!(".ci/boards.sh build {image}")))
    }
}
