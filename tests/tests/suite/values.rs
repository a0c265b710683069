//! The operations that measure more, on the emulated board: the firmware's own drivers on the peripherals of the chip, with devices
//! that are wired to its pins.

use std::io::Write;
use std::net::TcpStream;

use rigline_tests::emulator::{Emulator, read_line};
use serde_json::{Value, json};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;

/// The answer to a line; logs are passed over.
#[track_caller]
fn ask(port: &mut TcpStream, line: &str) -> Value {
    writeln!(port, "{line}").unwrap();
    loop {
        let line = read_line(port);
        let answer: Value = serde_json::from_slice(&line).unwrap();
        if answer.get("method").is_none() {
            return answer;
        }
    }
}

/// The result of a call: its outputs, or the text of its error.
#[track_caller]
fn call(port: &mut TcpStream, operation: &str, args: &Value) -> Result<Value, String> {
    let line = json!({"jsonrpc": "2.0", "id": 2, "method": "execute", "params": {"operation": operation, "args": args, "context": {}}});
    let answer = ask(port, &line.to_string());
    match (&answer["error"]["message"], &answer["result"]["error"]) {
        (Value::String(text), _) | (_, Value::String(text)) => Err(text.clone()),
        _ => Ok(answer["result"]["outputs"].clone()),
    }
}

/// A rig whose board under test is up.
fn powered() -> Option<(Emulator, TcpStream)> {
    let emulator = Emulator::start("rig")?;
    let mut port = emulator.usb();
    call(&mut port, "power", &json!({"rail": "3V3", "on": true})).unwrap();
    call(&mut port, "wait-pin", &json!({"pin": "LED", "high": true})).unwrap();
    Some((emulator, port))
}

#[track_caller]
fn number(value: &Value) -> f64 {
    value.as_str().unwrap().parse().unwrap()
}

#[test]
fn statistics_are_those_of_a_rail_with_the_converters_noise() {
    let Some((_emulator, mut port)) = powered() else { return };
    let args = json!({"channel": "3V3", "samples": 200, "every_us": 500});
    let outputs = call(&mut port, "measure-over-time", &args).unwrap();
    let [volts, min, max, rms] = ["volts", "min", "max", "rms"].map(|name| number(&outputs[name]));
    assert!(3.29 < min && min < volts && volts < max && max < 3.31 && (rms - volts).abs() < 0.002, "{outputs}");
    let took = number(&outputs["took_us"]);
    assert!((99_500.0..120_000.0).contains(&took), "{outputs}");
    // As fast as it can.
    let args = json!({"channel": "TEMP", "samples": 1000, "every_us": 0});
    let outputs = call(&mut port, "measure-over-time", &args).unwrap();
    assert!((26.0..28.5).contains(&number(&outputs["rms"])), "{outputs}");
}

#[test]
fn i2c_devices_are_found_written_and_read() {
    let Some((_emulator, mut port)) = powered() else { return };
    let mut transfer = |address: u8, write: &str, read: u32| {
        let args = json!({"bus": "I2C0", "address": address, "write": write, "read": read});
        call(&mut port, "i2c-transfer", &args).map(|outputs| outputs["data"].as_str().unwrap().to_owned())
    };
    assert_eq!(transfer(0x50, "10 de ad be ef", 0), Ok(String::new()));
    assert_eq!(transfer(0x50, "0f", 6), Ok("ff de ad be ef ff".to_owned()));
    assert_eq!(transfer(0x50, "", 1), Ok("ff".to_owned()));
    assert_eq!(transfer(0x48, "00", 2), Ok("19 00".to_owned()));
    // More than the controller's queue of 16, both ways.
    let all: Vec<String> = (0..255u8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(transfer(0x50, &format!("00{}", all.concat()), 0), Ok(String::new()));
    assert_eq!(transfer(0x50, "00", 255), Ok(all.join(" ")));
    assert_eq!(transfer(0x51, "00", 1), Err("I2C0, address 0x51: no device acknowledges the address".to_owned()));
    assert_eq!(transfer(0x51, "", 1), Err("I2C0, address 0x51: no device acknowledges the address".to_owned()));
    assert_eq!(transfer(0x78, "00", 1), Err("args.address: 120 is above the maximum 119".to_owned()));
    let scan = json!({"bus": "I2C0"});
    assert_eq!(call(&mut port, "i2c-scan", &scan), Ok(json!({"addresses": "[72,80]"})));
    call(&mut port, "all-off", &json!({})).unwrap();
    call(&mut port, "wait-for", &json!({"channel": "3V3", "min": -1, "max": 0.1})).unwrap();
    assert_eq!(call(&mut port, "i2c-scan", &scan), Ok(json!({"addresses": "[]"})));
}

/// A device that holds a line, or that stretches the clock without end, costs one call that says so.
#[test]
fn a_bus_that_hangs_ends_the_call_in_time_and_works_again_when_it_is_let_go() {
    let Some((emulator, mut port)) = powered() else { return };
    let read = json!({"bus": "I2C0", "address": 0x50, "write": "00", "read": 2});
    for (hold, error) in [
        ("sda", "I2C0: SDA is held low, so that no transfer can begin"),
        ("scl", "I2C0: SCL is held low, so that no transfer can begin"),
        ("clock", "I2C0: the transfer did not end within 250 ms: a device holds the clock"),
    ] {
        emulator.control(&json!({"cmd": "i2c", "hold": hold}));
        for _ in 0..2 {
            assert_eq!(call(&mut port, "i2c-transfer", &read), Err(error.to_owned()));
        }
        assert_eq!(call(&mut port, "i2c-scan", &json!({"bus": "I2C0"})), Err(error.to_owned()));
        emulator.control(&json!({"cmd": "i2c"}));
        assert_eq!(call(&mut port, "i2c-transfer", &read), Ok(json!({"data": "ff ff"})), "after {hold}");
    }
    assert_eq!(emulator.stats()["faults"], json!(0));
}

/// Also when the call ends before the transfer does.
#[test]
fn a_transfer_that_is_cut_off_leaves_a_bus_that_works() {
    let Some((emulator, mut port)) = powered() else { return };
    emulator.control(&json!({"cmd": "i2c", "hold": "clock"}));
    let cut = json!({"jsonrpc": "2.0", "id": 2, "method": "execute", "params": {
        "operation": "i2c-transfer", "args": {"bus": "I2C0", "address": 0x50, "read": 1}, "context": {"timeout": "50ms"}}});
    assert_eq!(ask(&mut port, &cut.to_string())["error"]["code"], json!(-32001));
    emulator.control(&json!({"cmd": "i2c"}));
    call(&mut port, "power", &json!({"rail": "3V3", "on": true})).unwrap();
    let read = json!({"bus": "I2C0", "address": 0x48, "write": "00", "read": 2});
    assert_eq!(call(&mut port, "i2c-transfer", &read), Ok(json!({"data": "19 00"})));
}

#[test]
fn pulses_are_counted_up_to_the_limit() {
    let Some((emulator, mut port)) = powered() else { return };
    for (hertz, ms) in [(1000, 200), (32_768, 200), (2_000_000, 100)] {
        emulator.control(&json!({"cmd": "clock", "hertz": hertz}));
        let outputs = call(&mut port, "count-pulses", &json!({"pin": "CLK", "ms": ms})).unwrap();
        let (told, hertz) = (number(&outputs["hertz"]), f64::from(hertz));
        // One pulse at either end, and some microseconds between the counter and the clock.
        let error = 1.0 / (hertz * f64::from(ms) / 1000.0) + 0.000_2;
        assert!((told / hertz - 1.0).abs() <= error, "{hertz} Hz: {outputs}");
        let pulses = number(&outputs["pulses"]);
        assert!((pulses / number(&outputs["took_us"]) * 1e6 - told).abs() < 0.001, "{outputs}");
    }
    emulator.control(&json!({"cmd": "clock", "hertz": 10_000_000}));
    assert_eq!(
        call(&mut port, "count-pulses", &json!({"pin": "CLK", "ms": 50})),
        Err("CLK has more than 2100000 pulses a second, which is the limit".to_owned())
    );
    call(&mut port, "power", &json!({"rail": "3V3", "on": false})).unwrap();
    let outputs = call(&mut port, "count-pulses", &json!({"pin": "CLK", "ms": 50})).unwrap();
    assert_eq!(outputs["pulses"], "0");
}

#[test]
fn pwm_drives_its_pin_until_it_is_ended_or_the_session_is_lost() {
    let Some(emulator) = Emulator::start("rig") else { return };
    let mut port = emulator.usb();
    let pin = |emulator: &Emulator| emulator.control(&json!({"cmd": "gpio", "pin": 8}));
    let volts = |port: &mut TcpStream| number(&call(port, "measure", &json!({"channel": "AUX"})).unwrap()["volts"]);
    assert_eq!((pin(&emulator)["output"].clone(), pin(&emulator)["high"].clone()), (json!(true), json!(false)));
    assert!(volts(&mut port) < 0.01);
    for (hertz, duty, mean) in [(1000, "50", 1.65), (8, "12.5", 0.4125), (20_000, "33.333", 1.1), (100_000, "100", 3.3)]
    {
        let args: Value = serde_json::from_str(&format!(r#"{{"pin":"GP8","hertz":{hertz},"duty":{duty}}}"#)).unwrap();
        let outputs = call(&mut port, "pwm", &args).unwrap();
        assert!((number(&outputs["hertz"]) / f64::from(hertz) - 1.0).abs() < 0.001, "{outputs}");
        let measured = volts(&mut port);
        assert!((measured - mean).abs() < 0.01, "{args}: {measured} V");
    }
    // The pin itself, by its edges: a quarter of them are high.
    call(&mut port, "pwm", &json!({"pin": "GP8", "hertz": 1000, "duty": 25})).unwrap();
    let high = (0..200).filter(|_| pin(&emulator)["high"] == json!(true)).count();
    assert!((10..110).contains(&high), "{high} of 200");
    assert_eq!(call(&mut port, "state", &json!({})).unwrap()["pwm_on"], r#"["GP8"]"#);
    call(&mut port, "all-off", &json!({})).unwrap();
    assert_eq!(pin(&emulator)["high"], json!(false));
    assert!(volts(&mut port) < 0.01);

    // The cable is pulled in a session.
    assert_eq!(ask(&mut port, INITIALIZE)["result"]["name"], "rig");
    call(&mut port, "pwm", &json!({"pin": "GP8", "duty": 100})).unwrap();
    assert_eq!(pin(&emulator)["high"], json!(true));
    emulator.control(&json!({"cmd": "dtr", "value": false}));
    emulator.control(&json!({"cmd": "sleep", "ms": 20}));
    assert_eq!(pin(&emulator)["high"], json!(false));
}

#[test]
fn an_spi_device_is_read_at_its_speeds_and_modes() {
    let Some((emulator, mut port)) = powered() else { return };
    let mut transfer = |args: Value| call(&mut port, "spi-transfer", &args).map(|outputs| outputs["data"].clone());
    for hertz in [100_000, 1_000_000, 20_000_000] {
        for (mode, id) in [(0, "ff ef 40 15"), (1, "ff ff ff ff"), (2, "ff ff ff ff"), (3, "ff ef 40 15")] {
            let args = json!({"bus": "SPI0", "write": "9f 00 00 00", "mode": mode, "hertz": hertz});
            assert_eq!(transfer(args), Ok(json!(id)), "mode {mode}, {hertz} Hz");
        }
    }
    // The longest transfer: each part of it is selected by the same edge.
    let read = transfer(json!({"bus": "SPI0", "write": format!("03000010{}", "00".repeat(252))})).unwrap();
    let bytes: Vec<String> = (0..252).map(|place| format!("{:02x}", (place + 0x10) & 0xff)).collect();
    assert_eq!(read, json!(format!("ff ff ff ff {}", bytes.join(" "))));
    assert_eq!(emulator.control(&json!({"cmd": "gpio", "pin": 17}))["high"], json!(true), "nothing is selected now");
}
