//! The operations that measure more, on the simulated board and on one whose readings are chosen.

use crate::common::{FakeClock, SimRig, call, call_within, serve_lines, sim};
use rigline_rig::board::{Board, Fault, Identity, Layout};
use rigline_rig::instruments::{Instruments, Wave};
use rigline_rig::pinmap::LAYOUT;
use rigline_rig::rig::Rig;
use rigline_rig::sim::Defect;
use serde_json::{Value, json};

/// The end of a call: outputs and message, or the text of its error.
fn ended(lines: &[Value]) -> Result<(Value, String), String> {
    let last = lines.last().unwrap();
    match (&last["error"]["message"], &last["result"]["error"]) {
        (Value::String(message), _) | (_, Value::String(message)) => Err(message.clone()),
        _ => Ok((last["result"]["outputs"].clone(), last["result"]["message"].as_str().unwrap().to_owned())),
    }
}

fn ask(rig: &mut SimRig, clock: &FakeClock, operation: &str, args: &Value) -> Result<(Value, String), String> {
    ended(&call(rig, clock, operation, &args.to_string()))
}

/// A simulated rig whose board under test has had power for a second.
fn powered() -> (SimRig, FakeClock) {
    let (mut rig, clock) = sim(1);
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": true})).unwrap();
    clock.advance_ms(950);
    (rig, clock)
}

/// A board whose converter gives these readings, again and again.
struct Readings(&'static [i32], usize);

impl Board for Readings {
    fn layout(&self) -> &'static Layout {
        &LAYOUT
    }

    fn identity(&self) -> Identity<'_> {
        Identity::default()
    }

    fn set_rail(&mut self, _: usize, _: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn is_rail_on(&mut self, _: usize) -> Result<bool, Fault> {
        Ok(false)
    }

    fn set_button(&mut self, _: usize, _: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn set_output(&mut self, _: usize, _: bool) -> Result<(), Fault> {
        Ok(())
    }

    fn output(&mut self, _: usize) -> Result<bool, Fault> {
        Ok(false)
    }

    fn input(&mut self, _: usize) -> Result<bool, Fault> {
        Ok(false)
    }

    async fn read(&mut self, _: usize) -> Result<i32, Fault> {
        let reading = self.0.get(self.1 % self.0.len().max(1)).copied().ok_or(Fault::Adc)?;
        self.1 += 1;
        Ok(reading)
    }
}

#[test]
fn statistics_of_a_channel_are_those_of_its_readings() {
    for (readings, samples, wanted) in [
        (&[3300][..], 1, ["3.300", "3.300", "3.300", "3.300"]),
        (&[3000, 4000], 2, ["3.500", "3.000", "4.000", "3.536"]),
        (&[3000, 4000], 10_000, ["3.500", "3.000", "4.000", "3.536"]),
        (&[-1500, 1500], 1000, ["0.000", "-1.500", "1.500", "1.500"]),
        (&[-3, -2], 2, ["-0.003", "-0.003", "-0.002", "0.003"]),
        (&[0, 0, 0, 1], 4, ["0.000", "0.000", "0.001", "0.001"]),
        (&[i32::MIN], 10_000, ["-2147483.648", "-2147483.648", "-2147483.648", "2147483.647"]),
        (&[i32::MAX], 10_000, ["2147483.647", "2147483.647", "2147483.647", "2147483.647"]),
    ] {
        let clock = FakeClock::default();
        let mut rig = Rig::new(Readings(readings, 0));
        let args = json!({"channel": "AUX", "samples": samples, "every_us": 0}).to_string();
        let (outputs, message) = ended(&call(&mut rig, &clock, "measure-over-time", &args)).unwrap();
        let told = ["volts", "min", "max", "rms"].map(|name| outputs[name].as_str().unwrap());
        assert_eq!(told, wanted, "{samples} of {readings:?}");
        assert_eq!((&outputs["samples"], &outputs["took_us"]), (&json!(samples.to_string()), &json!("0")));
        let [volts, min, max, rms] = wanted;
        assert_eq!(message, format!("AUX is at {volts} V, from {min} to {max}, rms {rms}"));
    }
}

#[test]
fn readings_are_taken_at_their_times() {
    let (mut rig, clock) = powered();
    for (samples, every_us, took) in
        [(1, 1000, 0), (2, 1000, 1000), (100, 10_000, 990_000), (61, 1_000_000, 60_000_000)]
    {
        let began = clock.now_ms();
        let args = json!({"channel": "3V3", "samples": samples, "every_us": every_us});
        let (outputs, _) = ask(&mut rig, &clock, "measure-over-time", &args).unwrap();
        assert_eq!(outputs["took_us"], took.to_string());
        assert_eq!(clock.now_ms() - began, took / 1000);
    }
    // A ramp is in the bounds.
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": false})).unwrap();
    let args = json!({"channel": "3V3", "samples": 200, "every_us": 100});
    let (outputs, _) = ask(&mut rig, &clock, "measure-over-time", &args).unwrap();
    assert!(outputs["min"].as_str().unwrap() < "0.010" && outputs["max"].as_str().unwrap() > "3.200", "{outputs}");
}

#[test]
fn statistics_that_would_take_too_long_are_refused_with_the_limit() {
    let (mut rig, clock) = powered();
    for (args, error) in [
        (
            json!({"channel": "3V3", "samples": 62, "every_us": 1_000_000}),
            "args.every_us: 62 readings every 1000000 us take 61000000 us; the limit is 60000000 us",
        ),
        (json!({"channel": "3V3", "samples": 10_001}), "args.samples: 10001 is above the maximum 10000"),
        (json!({"channel": "3V3", "samples": 0}), "args.samples: 0 is below the minimum 1"),
        (json!({"channel": "3V3", "every_us": 1_000_001}), "args.every_us: 1000001 is above the maximum 1000000"),
    ] {
        assert_eq!(ask(&mut rig, &clock, "measure-over-time", &args), Err(error.to_owned()), "{args}");
    }
    rig.board_mut().inject(Some(Defect::NoAnswer));
    assert_eq!(
        ask(&mut rig, &clock, "measure-over-time", &json!({"channel": "3V3"})),
        Err("channel 3V3: the converter does not answer".to_owned())
    );
}

#[test]
fn a_scan_finds_the_devices_that_have_power() {
    let (mut rig, clock) = sim(1);
    let scan = json!({"bus": "I2C0"});
    let nothing = (json!({"addresses": "[]"}), "no device answers on I2C0".to_owned());
    assert_eq!(ask(&mut rig, &clock, "i2c-scan", &scan), Ok(nothing.clone()));
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": true})).unwrap();
    let both = (json!({"addresses": "[72,80]"}), "2 answer on I2C0: 0x48, 0x50".to_owned());
    assert_eq!(ask(&mut rig, &clock, "i2c-scan", &scan), Ok(both));
    ask(&mut rig, &clock, "all-off", &json!({})).unwrap();
    clock.advance_ms(20);
    assert_eq!(ask(&mut rig, &clock, "i2c-scan", &scan), Ok(nothing));
}

#[test]
fn i2c_devices_are_written_and_read() {
    let (mut rig, clock) = powered();
    let mut transfer = |args: Value| {
        let (outputs, message) = ask(&mut rig, &clock, "i2c-transfer", &args).unwrap();
        (outputs["data"].as_str().unwrap().to_owned(), message)
    };
    let eeprom = |write: &str, read: u32| json!({"bus": "I2C0", "address": 0x50, "write": write, "read": read});
    assert_eq!(transfer(eeprom("00", 2)), ("ff ff".into(), "wrote 1 bytes to 0x50 on I2C0 and read 2".into()));
    assert_eq!(transfer(eeprom("10 DEAD beef", 0)), (String::new(), "wrote 5 bytes to 0x50 on I2C0 and read 0".into()));
    assert_eq!(transfer(eeprom("0f", 6)).0, "ff de ad be ef ff");
    // It reads on where it is, and from its end to its beginning.
    assert_eq!(transfer(eeprom("11", 1)).0, "ad");
    assert_eq!(transfer(eeprom("", 2)).0, "be ef");
    assert_eq!(transfer(eeprom("ff 01 02", 0)).0, "");
    assert_eq!(transfer(eeprom("ff", 3)).0, "01 02 ff");
    // The longest transfer both ways.
    let longest = "5a".repeat(256);
    transfer(eeprom(&longest, 0));
    assert_eq!(transfer(eeprom("00", 256)).0.split(' ').count(), 256);
    assert_eq!(transfer(eeprom(&longest, 256)).0.len(), 256 * 3 - 1);
    assert_eq!(transfer(json!({"bus": "I2C0", "address": 0x48, "write": "00", "read": 2})).0, "19 00");
}

#[test]
fn a_transfer_that_cannot_be_is_refused_with_what_is_wrong_and_the_limit() {
    let (mut rig, clock) = powered();
    let too_long = "00".repeat(257);
    for (args, error) in [
        (json!({"bus": "I2C0", "address": 7, "read": 1}), "args.address: 7 is below the minimum 8"),
        (json!({"bus": "I2C0", "address": 120, "read": 1}), "args.address: 120 is above the maximum 119"),
        (json!({"bus": "I2C0", "address": 80, "read": 257}), "args.read: 257 is above the maximum 256"),
        (
            json!({"bus": "I2C0", "address": 80, "write": too_long}),
            "args.write: 257 bytes are too many: the limit is 256",
        ),
        (
            json!({"bus": "I2C0", "address": 80}),
            "args.read: there is nothing to transfer: expected bytes to write, or a number of bytes to read",
        ),
        (
            json!({"bus": "I2C0", "address": 80, "write": "00 1 2"}),
            "args.write: byte 2 begins with `1`: expected two hexadecimal digits, as in `9f 00`",
        ),
        (
            json!({"bus": "I2C0", "address": 80, "write": "0x00"}),
            "args.write: byte 1 begins with `0`: expected two hexadecimal digits, as in `9f 00`",
        ),
        (
            json!({"bus": "I2C0", "address": 80, "write": "00é"}),
            "args.write: byte 2 begins with `é`: expected two hexadecimal digits, as in `9f 00`",
        ),
        (
            json!({"bus": "I2C0", "address": 80, "write": "+1"}),
            "args.write: byte 1 begins with `+`: expected two hexadecimal digits, as in `9f 00`",
        ),
        (json!({"bus": "I2C1", "address": 80, "read": 1}), "args.bus: unknown bus `I2C1`: expected one of I2C0"),
        (json!({"bus": "I2C0", "address": 81, "read": 1}), "I2C0, address 0x51: no device acknowledges the address"),
    ] {
        let refused = ask(&mut rig, &clock, "i2c-transfer", &args).unwrap_err();
        assert!(
            refused == error || (error.contains("I2C1") && refused.contains("I2C1") && refused.contains("I2C0")),
            "{args}: {refused}"
        );
    }
}

#[test]
fn a_bus_that_hangs_is_told_with_the_line_or_the_limit() {
    let (mut rig, clock) = powered();
    let read = json!({"bus": "I2C0", "address": 0x50, "read": 1});
    for (defect, error) in [
        (Defect::I2cDataHeld, "I2C0: SDA is held low, so that no transfer can begin"),
        (Defect::I2cClockHeld, "I2C0: SCL is held low, so that no transfer can begin"),
        (Defect::I2cStalled, "I2C0: the transfer did not end within 250 ms: a device holds the clock"),
    ] {
        rig.board_mut().inject(Some(defect));
        assert_eq!(ask(&mut rig, &clock, "i2c-transfer", &read), Err(error.to_owned()));
        assert_eq!(ask(&mut rig, &clock, "i2c-scan", &json!({"bus": "I2C0"})), Err(error.to_owned()));
        // It is a verdict on the board under test, and the rig is well.
        rig.board_mut().inject(None);
        ask(&mut rig, &clock, "i2c-transfer", &read).unwrap();
    }
    rig.board_mut().inject(Some(Defect::NoAnswer));
    let reply = call(&mut rig, &clock, "i2c-transfer", &read.to_string()).pop().unwrap();
    assert_eq!(reply["error"]["message"], "bus I2C0: its controller does not answer");
}

#[test]
fn pulses_are_counted_while_the_board_under_test_is_up() {
    let (mut rig, clock) = sim(1);
    let count = |rig: &mut SimRig, ms: u32| ask(rig, &clock, "count-pulses", &json!({"pin": "CLK", "ms": ms})).unwrap();
    assert_eq!(count(&mut rig, 100).0, json!({"pulses": "0", "hertz": "0.000", "took_us": "100000"}));
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": true})).unwrap();
    clock.advance_ms(1000);
    for ms in [1, 10, 1000, 60_000] {
        let began = clock.now_ms();
        let (outputs, message) = count(&mut rig, ms);
        let took = (u64::from(ms) * 1000).to_string();
        assert_eq!(outputs, json!({"pulses": ms.to_string(), "hertz": "1000.000", "took_us": took}));
        assert_eq!(message, format!("CLK has {ms} pulses in {ms} ms: 1000.000 Hz"));
        assert_eq!(clock.now_ms() - began, u64::from(ms));
    }
    // It comes up while they are counted: 300 ms and the ramp are without pulses.
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": false})).unwrap();
    clock.advance_ms(20);
    rig.board_mut().set_rail(0, true).unwrap();
    let pulses: u32 = count(&mut rig, 1000).0["pulses"].as_str().unwrap().parse().unwrap();
    assert!((697..=699).contains(&pulses), "{pulses}");
}

#[test]
fn a_count_has_bounds_and_ends_with_its_call() {
    let (mut rig, clock) = powered();
    for (args, error) in [
        (json!({"pin": "CLK", "ms": 0}), "args.ms: 0 is below the minimum 1"),
        (json!({"pin": "CLK", "ms": 60_001}), "args.ms: 60001 is above the maximum 60000"),
    ] {
        assert_eq!(ask(&mut rig, &clock, "count-pulses", &args), Err(error.to_owned()));
    }
    let began = clock.now_ms();
    let lines = call_within(&mut rig, &clock, "count-pulses", r#"{"pin":"CLK","ms":60000}"#, "100ms");
    assert_eq!(lines.last().unwrap()["error"]["code"], -32001);
    assert!(clock.now_ms() - began <= 110);
    rig.board_mut().inject(Some(Defect::NoAnswer));
    assert_eq!(
        ask(&mut rig, &clock, "count-pulses", &json!({"pin": "CLK"})),
        Err("pin CLK: its pin does not answer".to_owned())
    );
}

#[test]
fn a_filtered_pwm_output_is_a_voltage() {
    let (mut rig, clock) = sim(1);
    for (hertz, duty, real, volts) in [
        (1000, "50", ("1000.000", "50.000"), 1650),
        (1_000_000, "10.4", ("1000000.000", "10.400"), 343),
        (8, "99.999", ("8.000", "99.998"), 3300),
        (300_000, "33.333", ("299760.192", "33.333"), 1100),
        (20_000, "100", ("20000.000", "100.000"), 3300),
        (20_000, "0", ("20000.000", "0.000"), 0),
    ] {
        let args = format!(r#"{{"pin":"GP8","hertz":{hertz},"duty":{duty}}}"#);
        let (outputs, message) = ended(&call(&mut rig, &clock, "pwm", &args)).unwrap();
        assert_eq!(outputs, json!({"hertz": real.0, "duty": real.1}), "{args}");
        let wanted = match duty {
            "100" => "GP8 is high".to_owned(),
            "0" => "GP8 is low".to_owned(),
            _ => format!("GP8 has {} Hz at {} %", real.0, real.1),
        };
        assert_eq!(message, wanted);
        let (outputs, _) = ask(&mut rig, &clock, "measure", &json!({"channel": "AUX"})).unwrap();
        let measured = outputs["volts"].as_str().unwrap().replace('.', "").parse::<i32>().unwrap();
        assert!((measured - volts).abs() <= 5, "{args}: {measured} mV");
    }
    for (args, error) in [
        (r#"{"pin":"GP8","duty":100.001}"#, "args.duty: 100.001 is above the maximum 100"),
        (r#"{"pin":"GP8","duty":-0.001}"#, "args.duty: -0.001 is below the minimum 0"),
        (r#"{"pin":"GP8","duty":50,"hertz":7}"#, "args.hertz: 7 is below the minimum 8"),
        (r#"{"pin":"GP8","duty":50,"hertz":1000001}"#, "args.hertz: 1000001 is above the maximum 1000000"),
    ] {
        assert_eq!(ended(&call(&mut rig, &clock, "pwm", args)), Err(error.to_owned()));
    }
}

#[test]
fn pwm_is_shown_and_ended_by_all_off_and_by_the_safe_state() {
    let on = json!({"pin": "GP8", "duty": 50});
    let (mut rig, clock) = sim(1);
    let shown = |rig: &mut SimRig| ask(rig, &clock, "state", &json!({})).unwrap().0["pwm_on"].clone();
    assert_eq!(shown(&mut rig), "[]");
    ask(&mut rig, &clock, "pwm", &on).unwrap();
    assert_eq!(shown(&mut rig), r#"["GP8"]"#);
    ask(&mut rig, &clock, "all-off", &json!({})).unwrap();
    assert_eq!(shown(&mut rig), "[]");

    // A session that is lost, and a call that times out in one.
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let pwm = r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"pwm","args":{"pin":"GP8","duty":50},"context":{}}}"#;
    serve_lines(&mut rig, &clock, &[initialize, pwm]);
    assert_eq!(rig.board_mut().pwm(0), Ok(Wave::OFF));
    let press = r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"press","args":{"button":"USER","ms":9000},"context":{"timeout":"10ms"}}}"#;
    let shutdown = r#"{"jsonrpc":"2.0","id":4,"method":"shutdown"}"#;
    serve_lines(&mut rig, &clock, &[initialize, pwm, press, shutdown]);
    assert_eq!(rig.board_mut().pwm(0), Ok(Wave::OFF));
    // After `shutdown` the hardware stays as it is.
    serve_lines(&mut rig, &clock, &[initialize, pwm, shutdown]);
    assert_eq!(rig.board_mut().pwm(0).unwrap().duty(), 50_000);

    // The self-test begins and ends with everything off.
    ask(&mut rig, &clock, "self-test", &json!({})).unwrap();
    assert_eq!(rig.board_mut().pwm(0), Ok(Wave::OFF));
}

#[test]
fn an_spi_device_is_read_in_the_modes_that_it_has() {
    let (mut rig, clock) = powered();
    let data = |rig: &mut SimRig, args: Value| {
        ask(rig, &clock, "spi-transfer", &args).map(|(outputs, _)| outputs["data"].as_str().unwrap().to_owned())
    };
    for (mode, id) in [(0, "ff ef 40 15"), (1, "ff ff ff ff"), (2, "ff ff ff ff"), (3, "ff ef 40 15")] {
        let args = json!({"bus": "SPI0", "write": "9f 00 00 00", "mode": mode});
        assert_eq!(data(&mut rig, args), Ok(id.to_owned()), "mode {mode}");
    }
    let args = json!({"bus": "SPI0", "write": "03 00 12 fe 00 00 00 00", "hertz": 20_000_000});
    assert_eq!(data(&mut rig, args), Ok("ff ff ff ff fe ff 00 01".to_owned()));
    let longest = data(&mut rig, json!({"bus": "SPI0", "write": format!("03000000{}", "00".repeat(252))})).unwrap();
    assert!(longest.starts_with("ff ff ff ff 00 01 02") && longest.ends_with(" fa fb"), "{longest}");
    for (args, error) in [
        (
            json!({"bus": "SPI0", "write": "  "}),
            "args.write: there is nothing to transfer: expected bytes, such as `9f 00 00 00`",
        ),
        (json!({"bus": "SPI0", "write": "00".repeat(257)}), "args.write: 257 bytes are too many: the limit is 256"),
        (json!({"bus": "SPI0", "write": "9f", "mode": 4}), "args.mode: 4 is above the maximum 3"),
        (json!({"bus": "SPI0", "write": "9f", "hertz": 99_999}), "args.hertz: 99999 is below the minimum 100000"),
    ] {
        assert_eq!(data(&mut rig, args.clone()), Err(error.to_owned()), "{args}");
    }
    ask(&mut rig, &clock, "power", &json!({"rail": "3V3", "on": false})).unwrap();
    clock.advance_ms(20);
    assert_eq!(data(&mut rig, json!({"bus": "SPI0", "write": "9f00"})), Ok("00 00".to_owned()), "without power");
    rig.board_mut().inject(Some(Defect::NoAnswer));
    assert_eq!(
        data(&mut rig, json!({"bus": "SPI0", "write": "9f"})),
        Err("bus SPI0: its controller does not answer".to_owned())
    );
}

/// A board that has none of them, as one whose pinmap does not name them.
#[test]
fn a_board_without_instruments_says_that_it_has_none() {
    let clock = FakeClock::default();
    let mut rig = Rig::new(Readings(&[0], 0));
    assert!(rig.board().instruments().i2c.is_empty() && Instruments::NONE.pwm.is_empty());
    for (operation, args, error) in [
        ("i2c-scan", r#"{"bus":"I2C0"}"#, "args.bus: unknown bus `I2C0`: expected one of none"),
        (
            "i2c-transfer",
            r#"{"bus":"I2C0","address":80,"read":1}"#,
            "args.bus: unknown bus `I2C0`: expected one of none",
        ),
        ("spi-transfer", r#"{"bus":"SPI0","write":"00"}"#, "args.bus: unknown bus `SPI0`: expected one of none"),
        ("count-pulses", r#"{"pin":"CLK"}"#, "args.pin: unknown pin `CLK`: expected one of none"),
        ("pwm", r#"{"pin":"GP8","duty":1}"#, "args.pin: unknown pin `GP8`: expected one of none"),
    ] {
        assert_eq!(ended(&call(&mut rig, &clock, operation, args)), Err(error.to_owned()));
    }
    assert_eq!(ended(&call(&mut rig, &clock, "state", "{}")).unwrap().0["pwm_on"], "[]");
    ended(&call(&mut rig, &clock, "all-off", "{}")).unwrap();
}
