//! Each operation on the simulated board: what it gives, what it takes how long, and how it fails.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{self, Waker};

use crate::common::{FakeClock, SimRig, call, call_within, serve_lines, sim};
use embedded_hal::digital::{Error, ErrorKind, ErrorType, InputPin, OutputPin, StatefulOutputPin};
use rigline::LogSink;
use rigline::{Context, Extension};
use rigline::{
    engine::{Engine, Memory, Step},
    exchange::Work,
};
use rigline_rig::board::{Adc, Identity, Wired};
use rigline_rig::pinmap::LAYOUT;
use rigline_rig::sim::Defect;
use rigline_rig::{board::Board, rig::Rig};
use serde_json::{Value, json};

fn result(lines: &[Value]) -> &Value {
    &lines.last().unwrap()["result"]
}

/// Logs as `level: message`.
fn logs(lines: &[Value]) -> Vec<String> {
    lines[..lines.len() - 1]
        .iter()
        .map(|line| {
            format!("{}: {}", line["params"]["level"].as_str().unwrap(), line["params"]["message"].as_str().unwrap())
        })
        .collect()
}

fn millivolts(value: &Value) -> i32 {
    let (whole, decimals) = value.as_str().unwrap().split_once('.').unwrap();
    assert_eq!(decimals.len(), 3);
    whole.parse::<i32>().unwrap() * 1000 + decimals.parse::<i32>().unwrap()
}

fn power(rig: &mut SimRig, clock: &FakeClock, rail: &str, on: bool) {
    let lines = call(rig, clock, "power", &format!(r#"{{"rail":"{rail}","on":{on}}}"#));
    assert_eq!(result(&lines)["success"], true, "{lines:?}");
}

#[test]
fn identify_tells_who_it_is_and_what_there_is() {
    let (mut rig, clock) = sim(0xBEEF);
    clock.advance_ms(1234);
    let lines = call(&mut rig, &clock, "identify", "null");
    let mut outputs = result(&lines)["outputs"].clone();
    if let Some(git) = outputs.as_object_mut().unwrap().remove("git") {
        assert!(
            git.as_str().unwrap().len() >= 12 && git.as_str().unwrap().bytes().all(|byte| byte.is_ascii_hexdigit())
        );
    }
    assert_eq!(
        outputs,
        json!({
            "firmware": env!("CARGO_PKG_VERSION"),
            "board": "SIM-0000BEEF",
            "uptime_ms": "1234",
            "request_limit": "8191",
            "reply_limit": "12287",
            "rails": r#"["3V3","5V0"]"#,
            "channels": r#"["3V3","5V0","AUX","TEMP"]"#,
            "inputs": r#"["LED","LED2","GP15"]"#,
            "outputs": r#"["GP14"]"#,
            "buttons": r#"["RESET","USER","BOOT"]"#,
            "i2c": r#"["I2C0"]"#,
            "spi": r#"["SPI0"]"#,
            "counters": r#"["CLK"]"#,
            "pwm": r#"["GP8"]"#,
        })
    );
    assert!(result(&lines)["message"].as_str().unwrap().ends_with("on board SIM-0000BEEF"));
}

#[test]
fn a_rail_that_is_on_is_measured_at_its_voltage_and_one_that_is_off_at_0() {
    let (mut rig, clock) = sim(1);
    for (rail, nominal) in [("3V3", 3300), ("5V0", 5000)] {
        for (on, target) in [(false, 0), (true, nominal), (false, 0)] {
            let began = clock.now_ms();
            power(&mut rig, &clock, rail, on);
            assert_eq!(clock.now_ms() - began, if on { 50 } else { 0 }, "settling");
            clock.advance_ms(10);
            let lines = call(&mut rig, &clock, "measure", &format!(r#"{{"channel":"{rail}"}}"#));
            let outputs = &result(&lines)["outputs"];
            let [volts, min, max] = ["volts", "min", "max"].map(|name| millivolts(&outputs[name]));
            assert!((volts - target).abs() <= 3 && min <= volts && volts <= max && max - min <= 7, "{outputs}");
            assert_eq!(outputs["samples"], "16");
            let message = format!("{rail} is at {} V", outputs["volts"].as_str().unwrap());
            assert_eq!(result(&lines)["message"], *message);
        }
    }
}

#[test]
fn measure_knows_units() {
    let (mut rig, clock) = sim(1);
    let lines = call(&mut rig, &clock, "measure", r#"{"channel":"TEMP","samples":1e3}"#);
    let outputs = &result(&lines)["outputs"];
    assert!((26_000..28_000).contains(&millivolts(&outputs["celsius"])), "{outputs}");
    assert_eq!(outputs["samples"], "1000");
    assert_eq!(outputs.get("volts"), None);
    assert!(result(&lines)["message"].as_str().unwrap().ends_with(" °C"));
}

#[test]
fn rails_ramp() {
    let (mut rig, clock) = sim(1);
    let curve = |rig: &mut SimRig, on, steps_ms: &[u64]| {
        rig.board_mut().set_rail(1, on).unwrap();
        let mut last = 0;
        steps_ms
            .iter()
            .map(|ms| {
                clock.advance_ms(ms - last);
                last = *ms;
                rig.board().rail_millivolts(1)
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(curve(&mut rig, true, &[0, 1, 2, 3, 4, 1000]), [0, 1250, 2500, 3750, 5000, 5000]);
    assert_eq!(curve(&mut rig, false, &[0, 2, 5, 10, 11]), [5000, 4000, 2500, 0, 0]);
    // From the middle of a slope, too.
    assert_eq!(curve(&mut rig, true, &[2]), [2500]);
    assert_eq!(curve(&mut rig, false, &[1, 5]), [2000, 0]);
}

#[test]
fn the_same_seed_gives_the_same_readings_and_another_seed_others() {
    let readings = |seed| {
        let (mut rig, clock) = sim(seed);
        power(&mut rig, &clock, "3V3", true);
        (0..8).map(|_| call(&mut rig, &clock, "measure", r#"{"channel":"3V3","samples":1}"#)).collect::<Vec<_>>()
    };
    assert_eq!(readings(7), readings(7));
    assert_ne!(readings(7), readings(8));
}

#[test]
fn pins_are_read_and_driven() {
    let (mut rig, clock) = sim(1);
    for (high, name) in [(true, "high"), (false, "low")] {
        let lines = call(&mut rig, &clock, "gpio-write", &format!(r#"{{"pin":"GP14","high":{high}}}"#));
        assert_eq!(*result(&lines), json!({"success": true, "message": format!("GP14 is {name}")}));
        for pin in ["GP14", "GP15"] {
            let lines = call(&mut rig, &clock, "gpio-read", &format!(r#"{{"pin":"{pin}"}}"#));
            let expected =
                json!({"success": true, "outputs": {"high": high.to_string()}, "message": format!("{pin} is {name}")});
            assert_eq!(*result(&lines), expected);
        }
    }
}

fn led(rig: &mut SimRig, input: usize) -> bool {
    rig.board_mut().input(input).unwrap()
}

#[test]
fn the_board_under_test_boots_and_lights_its_led() {
    let (mut rig, clock) = sim(1);
    power(&mut rig, &clock, "3V3", true);
    assert!(!led(&mut rig, 0));
    let lines = call(&mut rig, &clock, "wait-pin", r#"{"pin":"LED","high":true}"#);
    assert_eq!(
        *result(&lines),
        // 50 ms of the 300 and the ramp went by while the rail settled.
        json!({"success": true, "outputs": {"high": "true", "waited_ms": "260"}, "message": "LED is high after 260 ms"})
    );
    assert_eq!(
        logs(&lines),
        [
            "info: waiting for LED to be high: it is low",
            "debug: LED is low after 100 ms",
            "debug: LED is low after 200 ms"
        ]
    );
    power(&mut rig, &clock, "3V3", false);
    assert!(!led(&mut rig, 0));
}

#[test]
fn reset_must_be_held_and_boots_anew() {
    let (mut rig, clock) = sim(1);
    power(&mut rig, &clock, "3V3", true);
    clock.advance_ms(400);
    for (ms, lit) in [(49, true), (50, false)] {
        let lines = call(&mut rig, &clock, "press", &format!(r#"{{"button":"RESET","ms":{ms}}}"#));
        assert_eq!(*result(&lines), json!({"success": true, "message": format!("pressed RESET for {ms} ms")}));
        assert_eq!(logs(&lines), [format!("info: pressing RESET for {ms} ms")]);
        assert_eq!(led(&mut rig, 0), lit, "{ms} ms");
    }
    clock.advance_ms(299);
    assert!(!led(&mut rig, 0));
    clock.advance_ms(1);
    assert!(led(&mut rig, 0));
}

#[test]
fn user_toggles_the_second_led_of_a_board_that_is_up() {
    let (mut rig, clock) = sim(1);
    let pressed = |rig: &mut SimRig, ms: u32| {
        call(rig, &clock, "press", &format!(r#"{{"button":"USER","ms":{ms}}}"#));
        led(rig, 1)
    };
    assert!(!pressed(&mut rig, 100), "without power");
    power(&mut rig, &clock, "3V3", true);
    assert!(!pressed(&mut rig, 100), "while it boots");
    clock.advance_ms(400);
    assert!(!led(&mut rig, 1) && led(&mut rig, 0));
    assert!(!pressed(&mut rig, 19), "too short");
    assert!(pressed(&mut rig, 20));
    assert!(!pressed(&mut rig, 100));
}

#[test]
fn wait_for_logs_as_it_waits_and_ends_when_the_value_is_there() {
    let (mut rig, clock) = sim(3);
    power(&mut rig, &clock, "3V3", true);
    let lines = call(&mut rig, &clock, "wait-for", r#"{"channel":"3V3","min":3.135,"max":3.465}"#);
    assert_eq!(logs(&lines), [""; 0]);
    let outputs = &result(&lines)["outputs"];
    assert_eq!(outputs["waited_ms"], "0");
    assert!((3290..3310).contains(&millivolts(&outputs["volts"])));
    rig.board_mut().set_rail(0, false).unwrap();
    let lines = call(&mut rig, &clock, "wait-for", r#"{"channel":"3V3","min":0,"max":0.1,"within_ms":1000}"#);
    let outputs = &result(&lines)["outputs"];
    assert_eq!(outputs["waited_ms"], "10");
    let [log] = &logs(&lines)[..] else { panic!("{lines:?}") };
    assert!(log.starts_with("info: waiting for 3V3 to be from 0.000 to 0.100 V: it is at 3."), "{log}");
}

#[test]
fn wait_for_gives_up_in_time_with_the_last_value() {
    let (mut rig, clock) = sim(3);
    for (within_ms, debug_logs) in [(0, 0), (5, 0), (100, 1), (1000, 10), (5000, 50), (60_000, 50)] {
        let began = clock.now_ms();
        let args = format!(r#"{{"channel":"3V3","min":3.1,"max":3.5,"within_ms":{within_ms}}}"#);
        let lines = call(&mut rig, &clock, "wait-for", &args);
        assert_eq!(clock.now_ms() - began, within_ms);
        let logs = logs(&lines);
        assert_eq!(logs.iter().filter(|log| log.starts_with("debug")).count(), debug_logs, "{logs:#?}");
        assert!(logs[0].starts_with("info: waiting for 3V3 to be from 3.100 to 3.500 V: it is at 0.00"), "{logs:?}");
        assert_eq!(result(&lines)["success"], false);
        let outputs = &result(&lines)["outputs"];
        let volts = outputs["volts"].as_str().unwrap();
        assert_eq!(outputs["waited_ms"], within_ms.to_string());
        let error = format!("3V3 is at {volts} V after {within_ms} ms, not from 3.100 to 3.500 V");
        assert_eq!(result(&lines)["error"], *error);
    }
}

#[test]
fn a_progress_log_has_data() {
    let (mut rig, clock) = sim(3);
    let lines = call(&mut rig, &clock, "wait-for", r#"{"channel":"AUX","min":3,"max":4,"within_ms":100}"#);
    let params = &lines[1]["params"];
    assert_eq!(params["data"]["waited_ms"], 100);
    assert!(params["data"]["value"].as_f64().unwrap() < 0.01);
    assert!(params["message"].as_str().unwrap().starts_with("AUX is at 0.00"), "{params}");
}

#[test]
fn changes_are_told_and_their_number_is_bounded() {
    struct Swinging(FakeClock);
    impl Adc for Swinging {
        type Error = Infallible;
        async fn read(&mut self, _: usize) -> Result<i32, Infallible> {
            Ok(if (self.0.now_ms() / 200).is_multiple_of(2) { 1000 } else { 4000 })
        }
    }
    let clock = FakeClock::default();
    let mut rig = Rig::new(wired(Swinging(clock.clone())).0);
    let args = r#"{"channel":"AUX","min":2,"max":3,"within_ms":10000}"#;
    let logs = logs(&call(&mut rig, &clock, "wait-for", args));
    let told: Vec<_> = logs.iter().filter(|log| log.starts_with("info")).map(String::as_str).collect();
    assert_eq!(told.len(), 11);
    assert_eq!(told[1], "info: AUX is at 4.000 V now, above the range");
    assert_eq!(told[2], "info: AUX is at 1.000 V now, below the range");
}

#[test]
fn the_calls_own_timeout_ends_a_wait_and_runs_the_safe_state() {
    let (mut rig, clock) = sim(3);
    power(&mut rig, &clock, "3V3", true);
    let lines = call_within(&mut rig, &clock, "wait-for", r#"{"channel":"AUX","min":3,"max":4}"#, "250ms");
    assert_eq!(lines.last().unwrap()["error"]["code"], -32001);
    assert!(rig.board().is_on(0), "what another connection switched on is not this one's, and waiting changes nothing");
    let on = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"power","args":{"rail":"5V0","on":true},"context":{}}}"#;
    let wait = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"wait-for","args":{"channel":"AUX","min":3,"max":4},"context":{"timeout":"250ms"}}}"#;
    let (lines, _) = serve_lines(&mut rig, &clock, &[on, wait]);
    assert!(
        lines.last().unwrap().contains("-32001") && lines.iter().any(|line| line.contains("all outputs are off now")),
        "{lines:?}"
    );
    assert!(!rig.board().is_on(0) && !rig.board().is_on(1));
}

#[test]
fn a_press_that_is_cut_off_lets_the_button_go() {
    let (mut rig, clock) = sim(3);
    let lines = call_within(&mut rig, &clock, "press", r#"{"button":"RESET","ms":10000}"#, "1s");
    assert_eq!(lines.last().unwrap()["error"]["code"], -32001);
    assert!(!rig.board().is_pressed(0));

    // A dropped call lets it go by itself, before any safe state runs.
    let (mut request, mut reply) = ([0; 1024], [0; 1024]);
    let mut engine = Engine::new(rig.manifest(), Memory { request: &mut request, reply: &mut reply }).unwrap();
    let line = br#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"press","args":{"button":"USER"},"context":{}}}
"#;
    engine.space()[..line.len()].copy_from_slice(line);
    engine.commit(line.len());
    let Step::Run(run) = engine.step() else { panic!("no call") };
    let Work::Call(press) = run.work else { panic!("no call") };
    let mut no_logs = NoLogs;
    let mut cx = Context::new(run.reply, &mut no_logs, &clock, None);
    {
        let mut handler = pin!(rig.call(press, &mut cx));
        assert!(handler.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
    }
    assert!(!rig.board().is_pressed(1));
}

struct NoLogs;

impl LogSink for NoLogs {
    fn room(&mut self) -> &mut [u8] {
        &mut []
    }
    fn commit(&mut self, _: usize) {}
    fn dropped(&mut self) {}
}

#[test]
fn self_test_passes_on_a_sound_board_and_leaves_everything_off() {
    let (mut rig, clock) = sim(5);
    power(&mut rig, &clock, "5V0", true);
    let lines = call(&mut rig, &clock, "self-test", "{}");
    assert_eq!(
        *result(&lines),
        json!({"success": true, "outputs": {"passed": "6", "failed": "0"}, "message": "all 6 checks passed"})
    );
    let heads: Vec<_> = logs(&lines)
        .into_iter()
        .filter(|log| !log.starts_with("debug"))
        .map(|log| log.split_once(',').unwrap().0.to_owned())
        .collect();
    assert_eq!(
        heads,
        [
            "info: 3V3 off: passed",
            "info: 3V3 on: passed",
            "info: 5V0 off: passed",
            "info: 5V0 on: passed",
            "info: boot: passed",
            "info: GP14 to GP15: passed",
        ]
    );
    assert!(!rig.board().is_on(0) && !rig.board().is_on(1));
    assert!(clock.now_ms() < 2000);
}

#[test]
fn self_test_names_what_failed() {
    for (defect, checks) in [
        (Defect::WeakRail(0), "1 of 6 checks failed: 3V3 on"),
        (Defect::WeakRail(1), "1 of 6 checks failed: 5V0 on"),
        (Defect::StuckRail(1), "1 of 6 checks failed: 5V0 off"),
        (Defect::NoBoot, "1 of 6 checks failed: boot"),
        (Defect::NoLoopback, "1 of 6 checks failed: GP14 to GP15"),
    ] {
        let (mut rig, clock) = sim(5);
        rig.board_mut().inject(Some(defect));
        let lines = call(&mut rig, &clock, "self-test", "null");
        let expected = json!({"success": false, "outputs": {"passed": "5", "failed": "1"}, "error": checks});
        assert_eq!(*result(&lines), expected, "{defect:?}");
        assert_eq!(logs(&lines).iter().filter(|log| log.starts_with("warn")).count(), 1);
        rig.board_mut().inject(None);
        assert_eq!(result(&call(&mut rig, &clock, "self-test", "null"))["success"], true);
    }
}

#[test]
fn bad_arguments_are_named_and_change_nothing() {
    let (mut rig, clock) = sim(1);
    let long = format!("args.rail: unknown rail `{}...`: expected one of 3V3, 5V0", "x".repeat(29));
    let table: &[(&str, &str, &str)] = &[
        ("power", r#"{"rail":"5V","on":true}"#, "args.rail: unknown rail `5V`: expected one of 3V3, 5V0"),
        ("power", &format!(r#"{{"rail":"{}","on":true}}"#, "x".repeat(500)), &long),
        ("power", "null", "args.rail: required, but missing"),
        ("power", r#"{"rail":"3V3"}"#, "args.on: required, but missing"),
        ("power", r#"{"rail":"3V3","on":"yes"}"#, "args.on: expected true or false; got the text \"yes\""),
        ("power", r#"{"rail":null,"on":true}"#, "args.rail: expected a string; got null"),
        ("measure", r#"{"channel":"3v3"}"#, "args.channel: unknown channel `3v3`: expected one of 3V3, 5V0, AUX, TEMP"),
        ("measure", r#"{"channel":"3V3","samples":0}"#, "args.samples: 0 is below the minimum 1"),
        ("measure", r#"{"channel":"3V3","samples":1001}"#, "args.samples: 1001 is above the maximum 1000"),
        ("measure", r#"{"channel":"3V3","samples":1.5}"#, "args.samples: expected an integer from 1 to 1000"),
        ("measure", r#"{"channel":"3V3","samples":-1}"#, "args.samples: expected an integer from 1 to 1000"),
        (
            "measure",
            r#"{"channel":"3V3","samples":"16"}"#,
            "args.samples: expected an integer from 1 to 1000; got the text \"16\"",
        ),
        ("gpio-read", r#"{"pin":"X"}"#, "args.pin: unknown pin `X`: expected one of LED, LED2, GP15, GP14"),
        ("gpio-write", r#"{"pin":"LED","high":true}"#, "args.pin: unknown pin `LED`: expected GP14"),
        ("press", r#"{"button":"reset"}"#, "args.button: unknown button `reset`: expected one of RESET, USER, BOOT"),
        ("press", r#"{"button":"RESET","ms":0}"#, "args.ms: 0 is below the minimum 1"),
        ("press", r#"{"button":"RESET","ms":10001}"#, "args.ms: 10001 is above the maximum 10000"),
        ("wait-for", r#"{"channel":"3V3","min":3}"#, "args.max: required, but missing"),
        ("wait-for", r#"{"channel":"3V3","min":3.5,"max":3.1}"#, "args.min: 3.500 is above args.max, which is 3.100"),
        (
            "wait-for",
            r#"{"channel":"3V3","min":3.1,"max":3.5,"within_ms":60001}"#,
            "args.within_ms: 60001 is above the maximum 60000",
        ),
        (
            "wait-for",
            r#"{"channel":"3V3","min":3.1234,"max":3.5}"#,
            "args.min: expected a number from -2147483.648 to 2147483.647 with at most 3 decimals",
        ),
        ("wait-pin", r#"{"pin":"LED"}"#, "args.high: required, but missing"),
    ];
    for (operation, args, message) in table {
        let lines = call(&mut rig, &clock, operation, args);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert_eq!(lines[0]["error"], json!({"code": -32602, "message": message}), "{operation} {args}");
    }
    assert_eq!(clock.now_ms(), 0);
    assert!(!rig.board().is_on(0));
}

#[test]
fn hardware_that_does_not_answer_is_unreachable_and_named() {
    let (mut rig, clock) = sim(1);
    rig.board_mut().inject(Some(Defect::NoAnswer));
    for (operation, args, message) in [
        ("power", r#"{"rail":"3V3","on":true}"#, "rail 3V3: its pin does not answer"),
        ("measure", r#"{"channel":"AUX"}"#, "channel AUX: the converter does not answer"),
        ("gpio-read", r#"{"pin":"LED2"}"#, "pin LED2: its pin does not answer"),
        ("gpio-write", r#"{"pin":"GP14","high":true}"#, "pin GP14: its pin does not answer"),
        ("press", r#"{"button":"USER"}"#, "button USER: its pin does not answer"),
        ("wait-for", r#"{"channel":"5V0","min":0,"max":1}"#, "channel 5V0: the converter does not answer"),
        ("wait-pin", r#"{"pin":"LED","high":true}"#, "pin LED: its pin does not answer"),
        ("uart-read", "{}", "console UART: its UART does not answer"),
        ("uart-write", r#"{"data":"x"}"#, "console UART: its UART does not answer"),
        ("uart-expect", r#"{"text":"x"}"#, "console UART: its UART does not answer"),
        ("uart-break", "{}", "console UART: its UART does not answer"),
        ("self-test", "{}", "rail 3V3: its pin does not answer"),
    ] {
        let lines = call(&mut rig, &clock, operation, args);
        assert_eq!(lines.last().unwrap()["error"], json!({"code": -32000, "message": message}), "{operation}");
    }
}

#[derive(Debug, Clone, Default)]
struct TestPin(Rc<Cell<(bool, bool)>>);

#[derive(Debug)]
struct Broken;

impl Error for Broken {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

impl ErrorType for TestPin {
    type Error = Broken;
}

impl TestPin {
    fn level(&self) -> Result<bool, Broken> {
        let (high, broken) = self.0.get();
        if broken { Err(Broken) } else { Ok(high) }
    }

    fn set(&self, high: bool) -> Result<(), Broken> {
        self.level()?;
        self.0.set((high, false));
        Ok(())
    }
}

impl OutputPin for TestPin {
    fn set_low(&mut self) -> Result<(), Broken> {
        self.set(false)
    }
    fn set_high(&mut self) -> Result<(), Broken> {
        self.set(true)
    }
}

impl StatefulOutputPin for TestPin {
    fn is_set_high(&mut self) -> Result<bool, Broken> {
        self.level()
    }
    fn is_set_low(&mut self) -> Result<bool, Broken> {
        Ok(!self.level()?)
    }
}

impl InputPin for TestPin {
    fn is_high(&mut self) -> Result<bool, Broken> {
        self.level()
    }
    fn is_low(&mut self) -> Result<bool, Broken> {
        Ok(!self.level()?)
    }
}

type TestBoard<A> = Wired<'static, TestPin, TestPin, A, 2, 3, 1, 3>;

/// A board of `embedded-hal` pins, and its pins: rails, buttons, output.
fn wired<A>(adc: A) -> (TestBoard<A>, [TestPin; 6]) {
    let pins: [TestPin; 6] = Default::default();
    let [rail, other_rail, reset, user, boot, output] = pins.clone();
    let board = Wired {
        layout: &LAYOUT,
        identity: Identity { id: "E6", reset: Some("watchdog"), last_panic: Some("at \"main.rs\":7") },
        rails: [rail, other_rail],
        buttons: [reset, user, boot],
        outputs: [output.clone()],
        inputs: [TestPin::default(), TestPin::default(), output],
        adc,
        console: None,
    };
    (board, pins)
}

struct NoAdc;

impl Adc for NoAdc {
    type Error = ();
    async fn read(&mut self, _: usize) -> Result<i32, ()> {
        Err(())
    }
}

#[test]
fn a_rig_of_embedded_hal_pins() {
    let (board, pins) = wired(NoAdc);
    let levels = || pins.each_ref().map(|pin| pin.0.get().0);
    let clock = FakeClock::default();
    let mut rig = Rig::new(board);
    let outputs = result(&call(&mut rig, &clock, "identify", "{}"))["outputs"].clone();
    assert_eq!(outputs["last_panic"], "at \"main.rs\":7");
    assert_eq!(outputs["reset"], "watchdog");
    assert_eq!(outputs["board"], "E6");

    call(&mut rig, &clock, "power", r#"{"rail":"5V0","on":true}"#);
    call(&mut rig, &clock, "gpio-write", r#"{"pin":"GP14","high":true}"#);
    assert_eq!(levels(), [false, true, false, false, false, true]);
    let lines = call(&mut rig, &clock, "gpio-read", r#"{"pin":"GP15"}"#);
    assert_eq!(result(&lines)["outputs"]["high"], "true");
    let lines = call(&mut rig, &clock, "measure", r#"{"channel":"AUX"}"#);
    assert_eq!(lines[0]["error"]["message"], "channel AUX: the converter does not answer");

    // A call that times out runs the safe state; a broken rail does not keep the others on.
    pins[0].0.set((true, true));
    call_within(&mut rig, &clock, "press", r#"{"button":"USER"}"#, "10ms");
    // BOOT is pressed while its pin is low.
    assert_eq!(levels(), [true, false, false, false, true, false]);
}

/// A button's pin, in the middle of a press and after it.
#[test]
fn a_button_has_the_polarity_of_the_pin_map() {
    for (place, name, pressed) in [(2, "RESET", true), (3, "USER", true), (4, "BOOT", false)] {
        let (board, pins) = wired(NoAdc);
        let mut rig = Rig::new(board);
        rig.board_mut().set_button(place - 2, true).unwrap();
        assert_eq!(pins[place].0.get().0, pressed, "{name}");
        let clock = FakeClock::default();
        let lines = call(&mut rig, &clock, "press", &format!(r#"{{"button":"{name}"}}"#));
        assert_eq!(result(&lines)["success"], true, "{lines:?}");
        assert_eq!(pins[place].0.get().0, !pressed, "{name}");
    }
}

#[test]
fn a_board_without_a_console_says_so() {
    let (board, _) = wired(NoAdc);
    let (mut rig, clock) = (Rig::new(board), FakeClock::default());
    for (operation, args) in [
        ("uart-read", "{}"),
        ("uart-write", r#"{"data":"x"}"#),
        ("uart-expect", r#"{"text":"x"}"#),
        ("uart-break", "{}"),
    ] {
        let lines = call(&mut rig, &clock, operation, args);
        let message = "console UART: nothing is wired there";
        assert_eq!(lines.last().unwrap()["error"], json!({"code": -32000, "message": message}), "{operation}");
    }
}
