//! The console of the board under test, on the simulated board.

use crate::common::{FakeClock, LIMITS, SimRig, call, call_within, execute, serve_lines, serve_within, sim};
use rigline_rig::board::Board as _;
use rigline_rig::console::{Encoding, FRAMINGS, RING, Spelt};
use rigline_rig::dut::{BANNER, Garbage, HELP, LOADER, READY, flood_byte};
use rigline_rig::rig::Rig;
use rigline_rig::sim::{Defect, SimBoard};
use serde_json::{Value, json};

struct Bench {
    rig: SimRig,
    clock: FakeClock,
}

impl Bench {
    fn new() -> Self {
        let (rig, clock) = sim(1);
        Self { rig, clock }
    }

    /// A board that is up and waits for a command.
    fn up() -> Self {
        let mut bench = Self::new();
        bench.call("power", &json!({"rail": "3V3", "on": true}));
        bench.call("uart-expect", &json!({"text": "> "}));
        bench
    }

    /// The outputs of a call that succeeds, with its message.
    #[track_caller]
    fn call(&mut self, operation: &str, args: &Value) -> Value {
        let reply = self.reply(operation, args);
        assert_eq!(reply["result"]["success"], true, "{operation} {args}: {reply}");
        let mut outputs = reply["result"]["outputs"].clone();
        outputs["message"] = reply["result"]["message"].clone();
        outputs
    }

    /// The reply of a call.
    fn reply(&mut self, operation: &str, args: &Value) -> Value {
        call(&mut self.rig, &self.clock, operation, &args.to_string()).pop().unwrap()
    }

    /// The board's answer to a command, up to its prompt.
    #[track_caller]
    fn run(&mut self, command: &str) -> String {
        self.call("uart-write", &json!({"data": format!("{command}\r")}));
        let outputs = self.call("uart-expect", &json!({"text": "\r\n> "}));
        let before = outputs["before"].as_str().unwrap();
        before.strip_prefix(command).unwrap().trim_start_matches("\r\n").to_owned()
    }
}

fn number(outputs: &Value, name: &str) -> u64 {
    outputs[name].as_str().unwrap().parse().unwrap()
}

fn bytes(outputs: &Value) -> Vec<u8> {
    let encoding = Encoding::of(outputs["encoding"].as_str().unwrap());
    Spelt::new(outputs["data"].as_str().unwrap(), encoding).map(|spelt| spelt.unwrap().byte).collect()
}

#[test]
fn a_board_boots_prints_and_answers() {
    let mut bench = Bench::new();
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    let ready = bench.call("uart-expect", &json!({"pattern": "dut #.#.# ready"}));
    assert_eq!(ready["match"], "dut 1.2.0 ready");
    assert_eq!(ready["before"], format!("{BANNER}{}", READY.split_once("dut").unwrap().0));
    assert_eq!(number(&ready, "before_bytes"), ready["before"].as_str().unwrap().len() as u64);
    assert_eq!(number(&ready, "missed"), 0);
    let prompt = bench.call("uart-expect", &json!({"text": "> "}));
    assert_eq!((&prompt["before"], &prompt["match"]), (&json!("\r\n"), &json!("> ")));
    assert_eq!(bench.run("ver"), "dut 1.2.0");
    assert_eq!(bench.run("help"), HELP);
    assert_eq!(bench.run("echo a \\\\ b"), "a \\\\ b");
    assert_eq!(bench.run("fly"), "unknown command: fly");
    assert_eq!(bench.run("baud 12"), "error: baud 12");
    let again = bench.run("");
    assert_eq!(again, "");
    // A command of the board's own, and its button, start it again.
    for restart in ["reset\r", ""] {
        bench.call("uart-write", &json!({"data": restart}));
        if restart.is_empty() {
            bench.call("press", &json!({"button": "RESET"}));
        }
        let ready = bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
        assert!(ready["before"].as_str().unwrap().contains(BANNER), "{ready}");
    }
}

#[test]
fn a_board_whose_boot_pin_is_held_stays_in_its_boot_loader() {
    let mut bench = Bench::new();
    bench.rig.board_mut().set_button(2, true).unwrap();
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    bench.clock.advance_ms(1000);
    assert_eq!(bench.call("uart-read", &json!({}))["data"], LOADER);
    assert_eq!(bench.call("gpio-read", &json!({"pin": "LED"}))["high"], "false");
    bench.rig.board_mut().set_button(2, false).unwrap();
    bench.call("press", &json!({"button": "RESET"}));
    bench.call("uart-expect", &json!({"text": "> "}));
    // The same by one operation.
    let begun = bench.clock.now_ms();
    bench.call("press", &json!({"button": "RESET", "holding": "BOOT"}));
    assert_eq!(bench.clock.now_ms() - begun, 150);
    assert!(!bench.rig.board().is_pressed(0) && !bench.rig.board().is_pressed(2));
    bench.clock.advance_ms(1000);
    assert_eq!(bench.call("uart-read", &json!({}))["data"], LOADER);
    // A press that is cut off lets both go.
    let cut = r#"{"button":"RESET","holding":"BOOT","ms":10000}"#;
    call_within(&mut bench.rig, &bench.clock, "press", cut, "1s");
    assert!(!bench.rig.board().is_pressed(0) && !bench.rig.board().is_pressed(2));
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    bench.call("uart-expect", &json!({"text": "> "}));
}

#[test]
fn a_text_that_does_not_come_is_an_error_that_says_what_came() {
    let mut bench = Bench::new();
    let silent = bench.reply("uart-expect", &json!({"text": "> ", "within_ms": 200}));
    assert_eq!(silent["result"]["error"], "`> ` did not come in 200 ms: nothing came");
    bench.rig.board_mut().inject(Some(Defect::NoBoot));
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    let hung = bench.reply("uart-expect", &json!({"text": "login:", "within_ms": 1000}));
    assert_eq!(
        hung["result"]["error"],
        r"`login:` did not come in 1000 ms: 43 bytes came, the last of which are `\r\ndut boot loader 1.0\r\nimage ok, starting\r\n`"
    );
    assert_eq!(hung["result"]["success"], false);
    let outputs = &hung["result"]["outputs"];
    assert_eq!(outputs["before"], BANNER);
    assert_eq!(outputs.get("match"), None);
    // It is still there for the next one.
    let found = bench.call("uart-expect", &json!({"text": "starting"}));
    assert_eq!(found["waited_ms"], "0");
}

#[test]
fn a_board_that_hangs_answers_nothing_until_it_is_reset() {
    let mut bench = Bench::up();
    bench.call("uart-write", &json!({"data": "hang\rver\r"}));
    let reply = bench.reply("uart-expect", &json!({"text": "dut 1.2.0", "within_ms": 2000}));
    assert_eq!(reply["result"]["outputs"]["before"], "hang\r\n");
    bench.call("press", &json!({"button": "RESET"}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
    assert_eq!(bench.run("ver"), "dut 1.2.0");
}

/// Reads what the board sends from `mark` on, every so often, and holds each byte to what it should be.
/// Returns how many bytes were read, and how many were lost and counted.
#[track_caller]
fn read_all(bench: &mut Bench, mark: u64, count: u64, every_ms: u64, expected: impl Fn(u64) -> u8) -> (u64, u64) {
    let (mut at, mut read, mut missed) = (mark, 0, 0);
    while at < mark + count {
        bench.clock.advance_ms(every_ms);
        let outputs = bench.call("uart-read", &json!({"encoding": "hex"}));
        let lost = number(&outputs, "missed");
        let (data, behind) = (bytes(&outputs), number(&outputs, "mark"));
        let start = behind - data.len() as u64;
        assert_eq!(start, at + lost, "no byte is lost uncounted");
        for (place, byte) in (start..).zip(&data).take_while(|(place, _)| *place < mark + count) {
            assert_eq!(*byte, expected(place - mark), "byte {}", place - mark);
            read += 1;
        }
        missed += lost.min(mark + count - at);
        at = behind;
        assert_eq!(number(&outputs, "received"), behind + number(&outputs, "waiting"));
    }
    (read, missed)
}

/// A board that floods at 3 Mbaud, and the mark where its flood begins.
fn flooding(count: u64) -> (Bench, u64) {
    let mut bench = Bench::up();
    bench.call("uart-write", &json!({"data": "baud 3000000\r"}));
    bench.call("uart-expect", &json!({"text": "\r\n> "}));
    bench.call("uart-write", &json!({"data": format!("flood {count}\r"), "speed": 3_000_000}));
    let begun = bench.call("uart-expect", &json!({"text": "\r\n"}));
    let mark = number(&begun, "mark");
    (bench, mark)
}

#[test]
fn a_megabyte_at_3_megabaud_loses_no_byte_that_is_not_counted() {
    const COUNT: u64 = 1 << 20;
    // A reader that keeps up, and one that looks only every 50 ms, when 15,000 bytes have come.
    for (every_ms, loses) in [(3, false), (50, true)] {
        let (mut bench, mark) = flooding(COUNT);
        let (read, missed) =
            read_all(&mut bench, mark, COUNT, every_ms, |place| flood_byte(u32::try_from(place).unwrap()));
        assert_eq!(read + missed, COUNT);
        assert_eq!(missed > 0, loses, "{missed}");
        let counters = bench.call("uart-read", &json!({}));
        assert_eq!(number(&counters, "dropped"), missed);
        for name in ["framing_errors", "parity_errors", "overruns", "breaks"] {
            assert_eq!(counters[name], "0", "{name}");
        }
        bench.call("uart-write", &json!({"data": "ver\r"}));
        bench.call("uart-expect", &json!({"text": "dut 1.2.0\r\n> "}));
    }
}

#[test]
fn a_text_is_found_in_a_flood_and_what_was_overwritten_is_counted() {
    let (mut bench, mark) = flooding(1 << 20);
    let found = bench.call("uart-expect", &json!({"pattern": "00004000?"}));
    assert_eq!(found["match"], "00004000a");
    assert_eq!(number(&found, "mark"), mark + 4000 * 64 + 9);
    assert_eq!((number(&found, "missed"), number(&found, "before_bytes")), (0, 4000 * 64));
    assert_eq!(found["before"].as_str().unwrap().len(), 2048 - 9);
    bench.clock.advance_ms(100);
    let found = bench.call("uart-expect", &json!({"text": "\r\n> "}));
    let missed = number(&found, "missed");
    assert!(missed > 20_000, "{missed}");
    // The match has the flood's last two bytes.
    assert_eq!(missed + number(&found, "before_bytes") + 2 + 9 + 4000 * 64, 1 << 20);
    assert_eq!(number(&bench.call("uart-read", &json!({})), "dropped"), missed);
}

#[test]
fn bytes_that_are_no_text_come_as_they_are_in_both_encodings() {
    let expected: Vec<u8> = Garbage::START.take(1000).collect();
    for encoding in ["text", "hex"] {
        let mut bench = Bench::up();
        bench.call("uart-write", &json!({"data": "garbage 1000\r"}));
        let mark = number(&bench.call("uart-expect", &json!({"text": "\r\n"})), "mark");
        bench.clock.advance_ms(200);
        let mut came = Vec::new();
        while came.len() < 1000 {
            let since = mark + came.len() as u64;
            came.extend(bytes(&bench.call("uart-read", &json!({"since": since, "max": 300, "encoding": encoding}))));
        }
        assert_eq!(came[..1000], expected, "{encoding}");
        assert_eq!(came[1000..], *b"> ");
    }
    // What was read can be expected and written.
    let mut bench = Bench::up();
    bench.call("uart-write", &json!({"data": "65 63 68 6f 20 ff 41 0d", "encoding": "hex"}));
    let found = bench.call("uart-expect", &json!({"text": "0d0a3e20", "encoding": "hex"}));
    assert_eq!(found["before"], "6563686f20ff410d0aff41");
    assert_eq!((&found["match"], &found["encoding"]), (&json!("0d0a3e20"), &json!("hex")));
    bench.call("uart-write", &json!({"data": r"echo \x41\t\\\r"}));
    let found = bench.call("uart-expect", &json!({"text": r"A\t\\\r\n>"}));
    assert_eq!(found["match"], "A\t\\\\\r\n>");
}

#[test]
fn another_speed_or_framing_is_counted_as_errors_and_each_byte_as_received() {
    let mut bench = Bench::up();
    let before = bench.call("uart-read", &json!({}));
    let wrong = bench.call("uart-write", &json!({"data": "ver\r", "speed": 9600}));
    assert_eq!(wrong["written"], "4");
    bench.clock.advance_ms(100);
    let heard = bench.call("uart-read", &json!({}));
    assert_eq!(heard["received"], before["received"], "the board does not understand it");
    bench.call("press", &json!({"button": "RESET"}));
    bench.clock.advance_ms(500);
    let heard = bench.call("uart-read", &json!({}));
    let came = number(&heard, "received") - number(&before, "received");
    assert_eq!(came, number(&heard, "framing_errors"));
    assert!(came > 60 && !heard["data"].as_str().unwrap().contains("ready"), "{heard}");

    bench.call("uart-write", &json!({"data": "", "speed": 115_200, "framing": "7E1"}));
    bench.call("press", &json!({"button": "RESET"}));
    bench.clock.advance_ms(500);
    assert_eq!(number(&bench.call("uart-read", &json!({})), "parity_errors"), came);
    // The safe state has the usual ones.
    bench.call("all-off", &json!({}));
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
}

/// The time of a write is that of its bytes on the wire.
#[test]
fn a_write_ends_when_its_last_byte_is_sent() {
    for (speed, framing, bits) in [(1200, "8N1", 10), (1200, "8E1", 11), (300, "7N2", 10), (9600, "8N2", 11)] {
        let mut bench = Bench::new();
        let begun = bench.clock.now_ms();
        bench.call("uart-write", &json!({"data": "x".repeat(100), "speed": speed, "framing": framing}));
        let (took, expected) = (bench.clock.now_ms() - begun, 100 * bits * 1000 / speed);
        assert!((expected..=expected + 100).contains(&took), "{speed} {framing}: {took} ms, not {expected}");
    }
}

#[test]
fn a_break_reaches_either_end_and_never_lasts() {
    let mut bench = Bench::up();
    let begun = bench.clock.now_ms();
    let sent = bench.call("uart-break", &json!({"ms": 20}));
    assert_eq!((&sent["message"], bench.clock.now_ms() - begun), (&json!("held the line low for 20 ms"), 20));
    assert!(!bench.rig.board().is_break());
    assert_eq!(bench.call("uart-expect", &json!({"text": "> "}))["before"], "break\r\n");
    assert_eq!(bench.run("break"), "");
    assert_eq!(bench.call("uart-read", &json!({}))["breaks"], "1");
    // A call that is cut off, and the safe state.
    let cut = call_within(&mut bench.rig, &bench.clock, "uart-break", r#"{"ms":1000}"#, "50ms");
    assert_eq!(cut.last().unwrap()["error"]["code"], -32001);
    assert!(!bench.rig.board().is_break());
    bench.rig.board_mut().console().unwrap().set_break(true).unwrap();
    bench.call("all-off", &json!({}));
    assert!(!bench.rig.board().is_break());
}

#[test]
fn a_mark_reads_again_and_limits_are_named() {
    let mut bench = Bench::up();
    let sent = bench.call("uart-write", &json!({"data": "ver\r"}));
    let mark = number(&sent, "mark");
    let first = bench.call("uart-expect", &json!({"text": "> "}));
    let again = bench.call("uart-expect", &json!({"text": "> ", "since": mark}));
    assert_eq!((&first["before"], &first["mark"]), (&again["before"], &again["mark"]));
    assert_eq!(bench.call("uart-read", &json!({"since": mark, "max": 3}))["data"], "ver");
    assert_eq!(bench.call("uart-read", &json!({}))["data"], "", "who reads from a mark takes nothing");
    bench.call("uart-write", &json!({"data": "ver\r"}));
    bench.clock.advance_ms(100);
    assert_eq!(bench.call("uart-read", &json!({"max": 3}))["data"], "ver");
    assert_eq!(bench.call("uart-read", &json!({"max": 2}))["data"], "\r\n", "it goes on where the last one ended");
    let skipped = bench.call("uart-read", &json!({"discard": true}));
    assert_eq!((&skipped["data"], &skipped["waiting"]), (&json!(""), &json!("0")));
    // A wait for a first byte.
    let begun = bench.clock.now_ms();
    assert_eq!(bench.call("uart-read", &json!({"within_ms": 300}))["data"], "");
    assert_eq!(bench.clock.now_ms() - begun, 300);

    let received = number(&skipped, "received");
    for (operation, args, message) in [
        (
            "uart-read",
            json!({"since": received + 1}),
            &*format!("args.since: {} is beyond the {received} bytes that were received", received + 1),
        ),
        ("uart-read", json!({"max": 0}), "args.max: 0 is below the minimum 1"),
        ("uart-read", json!({"max": 2049}), "args.max: 2049 is above the maximum 2048"),
        ("uart-read", json!({"speed": 299}), "args.speed: 299 is below the minimum 300"),
        ("uart-write", json!({"data": "", "speed": 3_000_001}), "args.speed: 3000001 is above the maximum 3000000"),
        (
            "uart-write",
            json!({"data": "", "framing": "9N1"}),
            &*format!("args.framing: unknown framing `9N1`: expected one of {}", FRAMINGS.join(", ")),
        ),
        (
            "uart-write",
            json!({"data": "", "encoding": "base64"}),
            "args.encoding: unknown encoding `base64`: expected one of text, hex",
        ),
        (
            "uart-write",
            json!({"data": r"ab\q"}),
            r"args.data: the backslash at byte 2 begins no escape; known: \\ \n \r \t \e \0 \xNN, and \* \? \# of a pattern",
        ),
        (
            "uart-write",
            json!({"data": "4", "encoding": "hex"}),
            "args.data: at byte 0 there are no two hexadecimal digits",
        ),
        ("uart-expect", json!({}), "args: give either text or pattern"),
        ("uart-expect", json!({"text": "a", "pattern": "a"}), "args: give either text or pattern"),
        ("uart-expect", json!({"text": ""}), "args.text: it would match where nothing is"),
        ("uart-expect", json!({"pattern": "*"}), "args.pattern: it would match where nothing is"),
        ("uart-expect", json!({"text": "a".repeat(64)}), "args.text: it has more than 63 bytes"),
        ("uart-expect", json!({"text": "a", "within_ms": 60001}), "args.within_ms: 60001 is above the maximum 60000"),
        ("uart-break", json!({"ms": 1001}), "args.ms: 1001 is above the maximum 1000"),
    ] {
        let reply = bench.reply(operation, &args);
        assert_eq!(reply["error"], json!({"code": -32602, "message": message}), "{operation} {args}");
    }
    let unsent = bench.call("uart-read", &json!({}));
    assert_eq!(number(&unsent, "received"), received, "nothing is sent of what has a fault");
}

#[test]
fn a_board_that_gets_power_again_is_not_taken_for_its_former_run() {
    let mut bench = Bench::up();
    bench.call("uart-write", &json!({"data": "ver\r"}));
    bench.clock.advance_ms(100);
    bench.call("power", &json!({"rail": "3V3", "on": false}));
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    let begun = bench.clock.now_ms();
    let prompt = bench.call("uart-expect", &json!({"text": "> "}));
    assert!(prompt["before"].as_str().unwrap().contains("ready"), "{prompt}");
    assert!(bench.clock.now_ms() > begun + 200, "an old prompt would match at once");
    // Another rail, while the board says something, changes nothing.
    bench.call("uart-write", &json!({"data": "ver\r"}));
    bench.clock.advance_ms(100);
    bench.call("power", &json!({"rail": "5V0", "on": true}));
    bench.call("uart-expect", &json!({"text": "dut 1.2.0"}));
}

#[test]
fn lines_of_the_console_are_logs_with_their_time_and_place() {
    let mut bench = Bench::new();
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    let mut lines = call(&mut bench.rig, &bench.clock, "uart-expect", r#"{"text":"> "}"#);
    let reply = lines.pop().unwrap();
    let told: Vec<(String, u64, u64)> = lines
        .iter()
        .map(|line| {
            let log = &line["params"];
            assert_eq!(log["level"], "info");
            let place = |name: &str| log["data"][name].as_u64().unwrap();
            assert_eq!(log["message"], format!("uart: {}", log["data"]["uart"].as_str().unwrap()));
            (log["message"].as_str().unwrap().to_owned(), place("from"), place("uptime_ms"))
        })
        .collect();
    let texts: Vec<&str> = told.iter().map(|(text, ..)| &**text).collect();
    assert_eq!(
        texts,
        [
            "uart: dut boot loader 1.0",
            "uart: image ok, starting",
            "uart: rails ok",
            "uart: dut 1.2.0 ready",
            "uart: > "
        ]
    );
    assert_eq!(told[0].1, 2, "behind an empty line");
    assert!(told[0].2 < 100 && (300..400).contains(&told[2].2), "{told:?}");
    assert_eq!(number(&reply["result"]["outputs"], "mark"), told[4].1 + 2);
    // Nothing is told twice.
    assert_eq!(call(&mut bench.rig, &bench.clock, "uart-read", r#"{"since":0}"#).len(), 1);
    // A log is one line, whatever comes.
    bench.call("uart-write", &json!({"data": r"echo \e[31mred\x00\xff\r"}));
    let lines = call(&mut bench.rig, &bench.clock, "uart-expect", r#"{"text":"\r\n> "}"#);
    assert_eq!(lines[1]["params"]["message"], r"uart: \x1b[31mred\x00\xff");
}

#[test]
fn a_reply_holds_what_its_limit_allows_and_the_next_one_the_rest() {
    let (clock, limit) = (FakeClock::default(), 2000);
    let mut rig = Rig::new(SimBoard::new(clock.clone(), 1));
    let mut ask = |operation: &str, args: &Value| {
        let line = execute(operation, &args.to_string(), "0s");
        let (lines, _) = serve_within(&mut rig, &clock, (LIMITS.0, limit), 512, &[&line]);
        let line: Value = serde_json::from_str(&lines[lines.len() - 1]).unwrap();
        assert_eq!(line["result"]["success"], true, "{line}");
        assert!(line.to_string().len() <= limit, "{} bytes", line.to_string().len());
        line["result"]["outputs"].clone()
    };
    ask("power", &json!({"rail": "3V3", "on": true}));
    ask("uart-expect", &json!({"text": "> "}));
    ask("uart-write", &json!({"data": "garbage 4000\r"}));
    ask("uart-expect", &json!({"text": "\r\n"}));
    let found = ask("uart-expect", &json!({"text": "> "}));
    assert_eq!(number(&found, "before_bytes"), 4000);
    let mut came: Vec<u8> = Vec::new();
    let start = number(&found, "mark") - 4002;
    let mut at = start;
    while at < start + 4000 {
        let outputs = ask("uart-read", &json!({"since": at}));
        let data = bytes(&outputs);
        assert!(data.len() >= 190 || outputs["waiting"] == "0", "{}", data.len());
        came.extend(data);
        at = number(&outputs, "mark");
    }
    assert_eq!(came[..4000], Garbage::START.take(4000).collect::<Vec<_>>());
}

#[test]
fn the_ring_has_its_documented_size() {
    let (mut bench, mark) = flooding(20_000);
    bench.clock.advance_ms(1000);
    let outputs = bench.call("uart-read", &json!({"since": mark, "max": 1}));
    // The flood, the prompt behind it, and the ring's first byte.
    assert_eq!(number(&outputs, "received") - (number(&outputs, "mark") - 1), RING as u64);
    assert_eq!(number(&outputs, "missed"), 20_002 - RING as u64);
}

#[test]
fn a_session_that_is_lost_leaves_the_console_safe() {
    let mut bench = Bench::up();
    let lines = [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"uart-write","args":{"data":"x","speed":9600},"context":{}}}"#,
    ];
    serve_lines(&mut bench.rig, &bench.clock, &lines);
    bench.call("power", &json!({"rail": "3V3", "on": true}));
    bench.call("uart-expect", &json!({"text": "ready\r\n> "}));
}
