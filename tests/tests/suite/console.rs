//! The console of the board under test, on the emulated RP2040: its UART1 meets the scripted board of `dut-console.mjs`.

use std::io::Write as _;
use std::net::TcpStream;

use rigline_rig::dut::{BANNER, Garbage, HELP, LOADER, flood_byte};
use rigline_tests::emulator::{Emulator, read_line};
use serde_json::{Value, json};

struct Bench {
    emulator: Emulator,
    port: TcpStream,
    id: u32,
}

impl Bench {
    fn start() -> Option<Self> {
        let emulator = Emulator::start_fast("rig")?;
        let port = emulator.usb();
        Some(Self { emulator, port, id: 0 })
    }

    /// A board that is up and waits for a command.
    fn up() -> Option<Self> {
        let mut bench = Self::start()?;
        bench.call("power", &json!({"rail": "3V3", "on": true}));
        bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
        Some(bench)
    }

    fn reply(&mut self, operation: &str, args: &Value) -> Value {
        self.id += 1;
        let params = json!({"operation": operation, "args": args, "context": {"timeout": "0s"}});
        let line = json!({"jsonrpc": "2.0", "id": self.id, "method": "execute", "params": params});
        self.port.write_all(format!("{line}\n").as_bytes()).unwrap();
        loop {
            let line: Value = serde_json::from_slice(&read_line(&mut self.port)).unwrap();
            if line.get("method").is_none() {
                return line;
            }
        }
    }

    /// The outputs of a call that succeeds.
    #[track_caller]
    fn call(&mut self, operation: &str, args: &Value) -> Value {
        let reply = self.reply(operation, args);
        assert_eq!(reply["result"]["success"], true, "{operation} {args}: {reply}");
        reply["result"]["outputs"].clone()
    }

    /// The board's answer to a command, up to its prompt.
    #[track_caller]
    fn run(&mut self, command: &str) -> String {
        self.call("uart-write", &json!({"data": format!("{command}\r")}));
        let outputs = self.call("uart-expect", &json!({"text": "\r\n> "}));
        outputs["before"].as_str().unwrap().strip_prefix(command).unwrap().trim_start_matches("\r\n").to_owned()
    }

    fn sleep(&self, ms: u32) {
        self.emulator.control(&json!({"cmd": "sleep", "ms": ms}));
    }
}

#[track_caller]
fn number(outputs: &Value, name: &str) -> u64 {
    outputs[name].as_str().unwrap().parse().unwrap()
}

fn bytes(outputs: &Value) -> Vec<u8> {
    let digits = outputs["data"].as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn the_board_under_test_boots_answers_hangs_and_is_reset() {
    let Some(mut bench) = Bench::start() else { return };
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    let ready = bench.call("uart-expect", &json!({"pattern": "dut #.#.# ready"}));
    assert_eq!(ready["before"], format!("{BANNER}rails ok\r\n"));
    bench.call("uart-expect", &json!({"text": "> "}));
    assert_eq!(bench.run("ver"), "dut 1.2.0");
    assert_eq!(bench.run("help"), HELP);
    assert_eq!(bench.run("fly"), "unknown command: fly");
    bench.call("uart-write", &json!({"data": "hang\rver\r"}));
    let silent = bench.reply("uart-expect", &json!({"text": "1.2.0", "within_ms": 500}));
    let error = silent["result"]["error"].as_str().unwrap();
    assert!(error.starts_with("`1.2.0` did not come in 50"), "{silent}");
    assert!(error.ends_with(r"ms: 6 bytes came, the last of which are `hang\r\n`"), "{silent}");
    bench.call("press", &json!({"button": "RESET"}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
    // The boot pin is low while the board starts.
    bench.call("power", &json!({"rail": "3V3", "on": false}));
    assert_eq!(bench.emulator.control(&json!({"cmd": "gpio", "pin": 22}))["high"], true, "BOOT is released");
}

#[test]
fn a_board_whose_boot_pin_is_low_stays_in_its_boot_loader() {
    let Some(mut bench) = Bench::up() else { return };
    bench.call("press", &json!({"button": "RESET", "holding": "BOOT"}));
    bench.sleep(500);
    assert_eq!(bench.call("uart-read", &json!({}))["data"], LOADER);
    assert_eq!(bench.call("gpio-read", &json!({"pin": "LED"}))["high"], "false");
    bench.call("press", &json!({"button": "RESET"}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
}

#[test]
fn a_break_other_speeds_and_bytes_that_are_no_text_reach_both_ends() {
    let Some(mut bench) = Bench::up() else { return };
    bench.call("uart-break", &json!({"ms": 20}));
    assert_eq!(bench.call("uart-expect", &json!({"text": "> "}))["before"], "break\r\n");
    bench.call("uart-write", &json!({"data": "break\r"}));
    bench.call("uart-expect", &json!({"text": "\r\n> "}));
    assert_eq!(bench.call("uart-read", &json!({}))["breaks"], "1");

    bench.call("uart-write", &json!({"data": "garbage 1000\r"}));
    let mark = number(&bench.call("uart-expect", &json!({"text": "\r\n"})), "mark");
    bench.sleep(200);
    let came = bytes(&bench.call("uart-read", &json!({"since": mark, "encoding": "hex"})));
    assert_eq!(came, Garbage::START.take(1000).chain(*b"> ").collect::<Vec<_>>());

    // A board of another speed is not understood, and neither is it without being counted.
    bench.call("uart-write", &json!({"data": "", "speed": 57_600}));
    let before = bench.call("uart-read", &json!({"discard": true}));
    bench.call("press", &json!({"button": "RESET"}));
    bench.sleep(500);
    let after = bench.call("uart-read", &json!({"encoding": "hex"}));
    let came = number(&after, "received") - number(&before, "received");
    assert_eq!(number(&after, "framing_errors"), came);
    assert_eq!(bytes(&after)[..2], [!b'\r', !b'\n']);
    bench.call("uart-write", &json!({"data": "", "speed": 115_200, "framing": "8E1"}));
    bench.call("press", &json!({"button": "RESET"}));
    bench.sleep(500);
    assert_eq!(number(&bench.call("uart-read", &json!({})), "parity_errors"), came);
    // The safe state has the usual speed and framing.
    bench.call("all-off", &json!({}));
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
}

#[test]
fn a_megabyte_at_3_megabaud_loses_no_byte_that_is_not_counted() {
    const COUNT: u64 = 1 << 20;
    let Some(mut bench) = Bench::up() else { return };
    bench.call("uart-write", &json!({"data": "baud 3000000\r"}));
    bench.call("uart-expect", &json!({"text": "\r\n> "}));
    bench.call("uart-write", &json!({"data": format!("flood {COUNT}\r"), "speed": 3_000_000}));
    let mark = number(&bench.call("uart-expect", &json!({"text": "\r\n"})), "mark");
    let (mut at, mut read, mut missed) = (mark, 0, 0);
    while at < mark + COUNT {
        let outputs = bench.call("uart-read", &json!({"encoding": "hex", "within_ms": 100}));
        let (data, lost, behind) = (bytes(&outputs), number(&outputs, "missed"), number(&outputs, "mark"));
        let start = behind - data.len() as u64;
        assert_eq!(start, at + lost, "no byte is lost uncounted");
        for (place, byte) in (start - mark..COUNT).zip(&data) {
            assert_eq!(*byte, flood_byte(u32::try_from(place).unwrap()), "byte {place}");
            read += 1;
        }
        missed += lost.min(mark + COUNT - at);
        at = behind;
    }
    assert_eq!(read + missed, COUNT);
    assert!(read > COUNT / 20, "{read}");
    let counters = bench.call("uart-read", &json!({"within_ms": 100}));
    for name in ["framing_errors", "parity_errors", "overruns", "breaks"] {
        assert_eq!(counters[name], "0", "{name}");
    }
    assert_eq!(number(&counters, "dropped"), missed);
    assert_eq!(bench.emulator.stats()["console_overruns"], 0, "the interrupt took each byte in time");
    bench.call("uart-write", &json!({"data": "ver\r"}));
    bench.call("uart-expect", &json!({"text": "dut 1.2.0\r\n> "}));
}
