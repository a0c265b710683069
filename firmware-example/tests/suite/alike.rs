//! The board under test has the same figures here and beside the emulated RP2040.

use std::fs;
use std::path::Path;

use rigline_rig::console::{MAX_SPEED, MIN_SPEED, SPEED};
use rigline_rig::dut::{BANNER, COMMAND, HELP, LOADER, MOST, PROMPT, READY, VERSION};
use rigline_rig::pinmap::{DIVIDER, LAYOUT, REFERENCE_MILLIVOLTS, TEMPERATURE};
use rigline_rig::sim::{BOOT_MS, DEBOUNCE_MS, FALL_MS, NOISE_STEPS, RAMP_MS, RESET_MS};

#[test]
fn both_simulations_have_the_same_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/emulator/dut.mjs");
    let Ok(script) = fs::read_to_string(&path) else {
        let why = format!("there is no {}", path.display());
        rigline_test_support::skipped("the figures of the emulated board", &why, "git clone the whole repository");
        return;
    };
    let mut figures = vec![
        format!("bootMs: {BOOT_MS}, resetHoldMs: {RESET_MS}, fallMs: {FALL_MS}, debounceMs: {DEBOUNCE_MS}"),
        format!("NOISE = {NOISE_STEPS};"),
        format!("divider: {DIVIDER},"),
        format!("referenceMillivolts: {REFERENCE_MILLIVOLTS},"),
        // ADC 3 measures the Pico's own supply and is not in the layout.
        format!("temperature: {{ adc: {}, celsius: 27 }}", TEMPERATURE + 1),
        "resetButton: 6,".to_owned(),
        "userButton: 7,".to_owned(),
        "bootButton: 22,".to_owned(),
        "led: 10,".to_owned(),
        "led2: 11,".to_owned(),
        "loopback: { from: 14, to: 15 }".to_owned(),
    ];
    for ((gpio, rail), ramp_ms) in (2..).zip(LAYOUT.rails).zip(RAMP_MS) {
        let (adc, millivolts) = (rail.channel, rail.millivolts);
        figures.push(format!("{{ enable: {gpio}, adc: {adc}, millivolts: {millivolts}, rampMs: {ramp_ms} }}"));
    }
    for figure in figures {
        assert!(script.contains(&figure), "dut.mjs has no `{figure}`");
    }
}

#[test]
fn both_consoles_have_the_same_script() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/emulator/dut-console.mjs");
    let Ok(script) = fs::read_to_string(&path) else {
        let why = format!("there is no {}", path.display());
        rigline_test_support::skipped("the console of the emulated board", &why, "git clone the whole repository");
        return;
    };
    let texts = [
        ("BANNER", BANNER),
        ("LOADER", LOADER),
        ("READY", READY),
        ("PROMPT", PROMPT),
        ("VERSION", VERSION),
        ("HELP", HELP),
    ];
    for (name, text) in texts {
        let constant = format!("const {name} = '{}';", text.escape_default());
        assert!(script.contains(&constant), "dut-console.mjs has no `{constant}`");
    }
    for constant in [
        format!("const [MOST, COMMAND, OUT] = [{MOST}, {COMMAND}, 256];"),
        format!("const [SPEED, MIN_SPEED, MAX_SPEED] = [{SPEED}, {MIN_SPEED}, {MAX_SPEED}];"),
    ] {
        assert!(script.contains(&constant), "dut-console.mjs has no `{constant}`");
    }
    for command in HELP.split(' ') {
        assert!(script.contains(&format!("'{command}'")), "dut-console.mjs does not know `{command}`");
    }
}

#[test]
#[cfg(feature = "values")]
fn both_simulations_have_the_same_devices() {
    use rigline_rig::sim::{CLOCK_HERTZ, DEVICES_MILLIVOLTS, EEPROM, FLASH_ID, THERMOMETER, THERMOMETER_READS};

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/emulator/instruments.mjs");
    let Ok(script) = fs::read_to_string(&path) else {
        let why = format!("there is no {}", path.display());
        rigline_test_support::skipped("the devices of the emulated board", &why, "git clone the whole repository");
        return;
    };
    let list = |bytes: &[u8]| bytes.iter().map(|byte| format!("0x{byte:02x}")).collect::<Vec<_>>().join(", ");
    for figure in [
        "i2c: { index: 0, sda: 20, scl: 21 }".to_owned(),
        "spi: { index: 0, cs: 17 }".to_owned(),
        "counter: { pin: 13, slice: 6 }".to_owned(),
        "pwm: { pin: 8, slice: 4, adc: 2 }".to_owned(),
        format!("thermometer: 0x{THERMOMETER:02x},"),
        format!("thermometerReads: [{}],", list(&THERMOMETER_READS)),
        format!("eeprom: 0x{EEPROM:02x},"),
        format!("flashId: [{}],", list(&FLASH_ID)),
        format!("millivolts: {DEVICES_MILLIVOLTS},"),
        format!("clockHertz: {CLOCK_HERTZ},"),
    ] {
        assert!(script.contains(&figure), "instruments.mjs has no `{figure}`");
    }
}
