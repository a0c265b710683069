//! The USB port of `rigline_embassy::usb_cdc`, and the emulator itself, with the images `echo` and `probe`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use object::read::elf::{ElfFile32, ProgramHeader};
use object::{Endianness, Object, ObjectSection};
use rigline_tests::emulator::{Emulator, assert_silent, firmware_directory, read_line};
use serde_json::{Value, json};

fn line(length: usize) -> Vec<u8> {
    let mut line: Vec<u8> = (0..length - 1).map(|n| b'!' + u8::try_from(n % 90).unwrap()).collect();
    line.push(b'\n');
    line
}

#[track_caller]
fn assert_echo(port: &mut TcpStream, text: &[u8]) {
    port.write_all(text).unwrap();
    assert_eq!(read_line(port).escape_ascii().to_string(), text.escape_ascii().to_string());
}

/// Sends bytes and waits until the device has them.
#[track_caller]
fn deliver(emulator: &Emulator, port: &mut TcpStream, bytes: &[u8]) {
    let delivered = || emulator.stats()["usb"]["outBytes"].as_u64().unwrap();
    let before = delivered();
    port.write_all(bytes).unwrap();
    while delivered() < before + bytes.len() as u64 {
        thread::sleep(Duration::from_millis(2));
    }
    // And until it has read them, if it does.
    emulator.control(&json!({"cmd": "sleep", "ms": 5}));
}

/// Sends a command to the probe and returns the number in its answer.
#[track_caller]
fn ask(port: &mut TcpStream, command: &str) -> i64 {
    writeln!(port, "{command}").unwrap();
    let answer = String::from_utf8(read_line(port)).unwrap();
    let (name, number) = answer.trim_end().split_once(' ').unwrap();
    assert!(command.starts_with(name), "{answer:?} to {command:?}");
    number.parse().unwrap()
}

#[track_caller]
fn assert_no_packet_was_lost(emulator: &Emulator) {
    assert_eq!(emulator.stats()["usb"]["toggleErrors"], json!(0));
}

#[test]
fn the_host_reads_the_identity_of_the_device() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let expected = json!({
        "vendor_id": 0x16c0, "product_id": 0x27dd, "manufacturer": "rigline", "product": "rigline rig",
        "serial_number": "454D554C41544544", // the fallback, EMULATED
        "control_protocol": 0, // 1 would promise AT commands
    });
    assert_eq!(emulator.identity(), &expected);
}

/// The emulator begins where the second-stage boot loader ends, but the boot ROM looks at its checksum.
#[test]
fn an_image_that_the_boot_rom_would_refuse_is_refused() {
    if Emulator::start("echo").is_none() {
        return;
    }
    let mut image = fs::read(firmware_directory().join("echo")).unwrap();
    let boot2 = object::File::parse(&*image).unwrap().section_by_name(".boot2").unwrap().file_range().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged");
    image[usize::try_from(boot2.0).unwrap() + 100] ^= 1;
    fs::write(&path, image).unwrap();
    assert!(Emulator::of(&path, &[]).is_err());
}

/// The file for the drive that a board shows in BOOTSEL mode.
#[test]
fn a_uf2_runs_as_the_image_that_it_was_made_of() {
    if Emulator::start("echo").is_none() {
        return;
    }
    let image = fs::read(firmware_directory().join("echo")).unwrap();
    let elf = ElfFile32::<Endianness>::parse(&*image).unwrap();
    let mut blocks: Vec<(u32, &[u8])> = Vec::new();
    for header in elf.elf_program_headers().iter().filter(|header| header.p_filesz(elf.endian()) > 0) {
        let bytes = header.data(elf.endian(), &*image).unwrap().chunks(256);
        blocks.extend((header.p_paddr(elf.endian())..).step_by(256).zip(bytes));
    }
    let count = u32::try_from(blocks.len()).unwrap();
    let mut uf2 = Vec::new();
    for (number, (address, bytes)) in (0..).zip(blocks) {
        let length = u32::try_from(bytes.len()).unwrap();
        let head = [0x0a32_4655, 0x9e5d_5157, 0x2000, address, length, number, count, 0xe48b_ff56];
        let mut block: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        block.extend(bytes);
        block.resize(508, 0);
        block.extend(0x0ab1_6f30_u32.to_le_bytes());
        uf2.extend(block);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("echo.uf2");
    fs::write(&path, uf2).unwrap();
    let emulator = Emulator::of(&path, &[]).unwrap();
    assert_echo(&mut emulator.usb(), b"hello\n");
}

/// A line that ends on a full packet is followed by an empty one.
/// Reports: micropython/micropython#15960, ARMmbed/mbed-os#15384, ARMmbed/mbed-os#15451.
#[test]
fn lines_of_every_length_arrive_without_further_traffic() {
    let Some(emulator) = Emulator::start("echo") else { return };
    let mut port = emulator.usb();
    for length in (1..=200).chain([255, 256, 257, 1023, 1024]) {
        assert_echo(&mut port, &line(length));
        emulator.control(&json!({"cmd": "sleep", "ms": 1}));
        let log = emulator.control(&json!({"cmd": "packets", "clear": true}));
        let lengths: Vec<u64> =
            log["packets"].as_array().unwrap().iter().map(|p| p["length"].as_u64().unwrap()).collect();
        assert_eq!(lengths.iter().sum::<u64>(), length as u64);
        assert!(lengths.last().unwrap() < &64, "line of {length} bytes in packets of {lengths:?}");
    }
    assert_no_packet_was_lost(&emulator);
}

/// Reports: jamesmunns/ergot#189, arduino/serial-monitor#32, crayzeewulf/libserial#172.
#[test]
fn a_partial_line_is_forgotten_when_dtr_drops() {
    let Some(emulator) = Emulator::start("echo") else { return };
    let mut port = emulator.usb();
    for partial in [&b"half"[..], &line(64)[..63], &line(65)[..64], &line(200)[..199]] {
        deliver(&emulator, &mut port, partial);
        emulator.control(&json!({"cmd": "dtr", "value": false}));
        emulator.control(&json!({"cmd": "dtr", "value": true}));
        assert_echo(&mut port, b"whole\n");
    }
    port.write_all(b"half").unwrap();
    drop(port);
    let mut port = emulator.usb();
    assert_echo(&mut port, b"whole\n");
    assert_silent(&mut port);
    assert_no_packet_was_lost(&emulator);
}

#[test]
fn a_line_that_dtr_cut_leaves_nothing_behind() {
    let Some(emulator) = Emulator::start("echo") else { return };
    for length in [10, 64, 65, 128, 600] {
        // Once with an even and once with an odd number of packets sent before, for the data toggle.
        for before in [1, 2] {
            let mut port = emulator.usb();
            for _ in 0..before {
                assert_echo(&mut port, b"before\n");
            }
            emulator.control(&json!({"cmd": "reading", "value": false}));
            deliver(&emulator, &mut port, &line(length));
            // The echo is stuck in its reply to the long lines and does not read this.
            deliver(&emulator, &mut port, b"left over");
            emulator.control(&json!({"cmd": "dtr", "value": false}));
            emulator.control(&json!({"cmd": "reading", "value": true}));
            emulator.control(&json!({"cmd": "dtr", "value": true}));
            assert_echo(&mut port, b"after\n");
            assert_silent(&mut port);
        }
    }
    assert_no_packet_was_lost(&emulator);
}

/// Reports: embassy-rs/embassy#3389, hathach/tinyusb#2309, rust-embedded-community/usbd-serial#32, raspberrypi/pico-sdk#995.
#[test]
fn a_reader_that_stalls_gets_everything_in_the_end() {
    let Some(emulator) = Emulator::start("echo") else { return };
    let mut port = emulator.usb();
    let text: Vec<u8> = [100, 64, 900, 1, 128].iter().cycle().take(40).flat_map(|&length| line(length)).collect();
    emulator.control(&json!({"cmd": "reading", "value": false}));
    let mut sender = port.try_clone().unwrap();
    let sent = text.clone();
    let sending = thread::spawn(move || sender.write_all(&sent).unwrap());
    assert_silent(&mut port);
    let stalled = emulator.stats();
    thread::sleep(Duration::from_millis(200));
    let cycles = emulator.stats()["cycles"].as_u64().unwrap() - stalled["cycles"].as_u64().unwrap();
    assert!(cycles < 100_000, "the firmware spins while nobody reads: {cycles} cycles");
    emulator.control(&json!({"cmd": "reading", "value": true}));
    let mut received = vec![0; text.len()];
    port.read_exact(&mut received).unwrap();
    assert!(received == text, "bytes were lost, repeated or changed");
    sending.join().unwrap();
}

/// Reports: zephyrproject-rtos/zephyr#76064, raspberrypi/pico-sdk#663, raspberrypi/pico-sdk#927.
#[test]
fn the_port_comes_back_after_bus_resets_suspends_and_replugs() {
    let Some(emulator) = Emulator::start("echo") else { return };
    let mut port = emulator.usb();
    for round in 0..20 {
        let commands: &[&str] =
            [&["bus-reset"][..], &["suspend", "resume"], &["unplug", "plug"], &["suspend", "bus-reset"]][round % 4];
        deliver(&emulator, &mut port, b"half");
        for command in commands {
            emulator.control(&json!({"cmd": command}));
            emulator.control(&json!({"cmd": "sleep", "ms": 5}));
        }
        if commands.contains(&"unplug") {
            assert_ended(&mut port);
            port = emulator.usb();
        }
        assert_echo(&mut port, b"whole\n");
    }
    assert_silent(&mut port);
}

#[track_caller]
fn assert_ended(port: &mut TcpStream) {
    let mut rest = Vec::new();
    port.read_to_end(&mut rest).expect("the open port ends when the cable is pulled");
}

#[test]
fn time_passes_as_it_does_outside() {
    // An emulator that waited for a processor catches up, so two moments inside can be further apart than outside. Never more time has passed
    // inside than outside since the emulator was started.
    let started = std::time::Instant::now();
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    let before = ask(&mut port, "ms");
    ask(&mut port, "sleep 1000");
    let after = ask(&mut port, "ms");
    let outside = i64::try_from(started.elapsed().as_millis()).unwrap();
    assert!(after - before >= 1000, "{} ms", after - before);
    assert!(after <= outside, "{after} ms passed in {outside} ms");
}

#[test]
fn the_board_under_test_follows_the_rig() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    assert!(ask(&mut port, "adc 0") < 10);
    assert_eq!(ask(&mut port, "led"), 0);

    let up = ask(&mut port, "boot");
    assert!((300..310).contains(&up), "up after {up} ms");
    // 3.3 V halved, at 3.3 V full scale.
    assert!((ask(&mut port, "adc 0") - 2048).abs() <= 3);
    assert!(ask(&mut port, "adc 1") < 10);
    ask(&mut port, "rail 1 1");
    ask(&mut port, "sleep 10");
    assert!((ask(&mut port, "adc 1") - 3103).abs() <= 3);
    assert!((ask(&mut port, "adc 3") - 876).abs() <= 3);

    assert_eq!(ask(&mut port, "press 20"), 0);
    let up = ask(&mut port, "press 60");
    assert!((299..305).contains(&up), "up {up} ms after the button");

    ask(&mut port, "rail 0 0");
    ask(&mut port, "sleep 20");
    assert!(ask(&mut port, "adc 0") < 10);
    assert_eq!(ask(&mut port, "led"), 0);
    assert_eq!((ask(&mut port, "loop 1"), ask(&mut port, "loop 0")), (1, 0));

    emulator.control(&json!({"cmd": "adc", "channel": 2, "millivolts": 1650}));
    assert!((ask(&mut port, "adc 2") - 2048).abs() <= 3);
}

#[test]
fn uart0_carries_bytes_both_ways() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut uart = emulator.uart();
    let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
    uart.write_all(&text).unwrap();
    let mut received = vec![0; text.len()];
    uart.read_exact(&mut received).unwrap();
    assert!(received == text);
    assert_eq!(emulator.stats()["uart_overruns"], json!(0));
}

/// The first line waits in the hardware, the next ones are dropped, and the reply is complete.
/// Reports: embassy-rs/embassy#3389, hathach/tinyusb#2309, wagiminator/CH552-DAPLink#2.
#[test]
fn log_lines_that_nobody_reads_are_dropped_whole() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    ask(&mut port, "ms");
    emulator.control(&json!({"cmd": "reading", "value": false}));
    port.write_all(b"log 5\n").unwrap();
    assert_silent(&mut port);
    emulator.control(&json!({"cmd": "sleep", "ms": 600}));
    emulator.control(&json!({"cmd": "reading", "value": true}));
    assert_eq!(read_line(&mut port), format!("log {:055}\n", 1).into_bytes());
    assert_eq!(read_line(&mut port), b"log 4\n");
}

/// With buffers smaller than a packet, as large, and larger.
/// Reports: embassy-rs/embassy#1588, embassy-rs/embassy#4963, micropython/micropython-lib#886.
#[test]
fn reads_that_are_given_up_lose_and_repeat_nothing() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    for buffer in [1, 8, 63, 64, 65, 128] {
        ask(&mut port, &format!("buffer {buffer}"));
        ask(&mut port, "hurry 1000");
        let numbers = 1..=100;
        let lines = numbers.clone().map(|number| format!("echo {number} {:0>width$}\n", 0, width = number % 60));
        port.write_all(lines.collect::<Vec<_>>().concat().as_bytes()).unwrap();
        for number in numbers {
            assert_eq!(read_line(&mut port), format!("echo {number}\n").into_bytes(), "buffer of {buffer}");
        }
    }
    assert_silent(&mut port);
    assert_no_packet_was_lost(&emulator);
}

#[test]
fn ram_outlives_a_watchdog_reset_and_not_a_power_cycle() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    ask(&mut port, "keep 4711");
    ask(&mut port, "rail 0 1");
    port.write_all(b"hang\n").unwrap();
    wait_for(&emulator, "resets", 1);
    assert_eq!(ask(&mut port, "kept"), 4711);
    assert!(ask(&mut port, "adc 0") < 10, "a reset lets go of the rails");
    emulator.control(&json!({"cmd": "reset", "kind": "watchdog"}));
    assert_eq!(ask(&mut port, "kept"), 4711);
    emulator.control(&json!({"cmd": "reset", "kind": "power"}));
    assert_ne!(ask(&mut port, "kept"), 4711);
}

#[test]
fn faults_are_counted() {
    let Some(emulator) = Emulator::start("probe") else { return };
    let mut port = emulator.usb();
    port.write_all(b"fault\n").unwrap();
    wait_for(&emulator, "faults", 1);
}

#[test]
fn the_stack_is_measured() {
    let Some(emulator) = Emulator::start("echo") else { return };
    let mut port = emulator.usb();
    assert_echo(&mut port, b"deep\n");
    let stack = &emulator.stats()["stack"];
    let peak = stack["peak"].as_u64().unwrap();
    assert!((300..4000).contains(&peak), "{stack}");
}

#[track_caller]
fn wait_for(emulator: &Emulator, counter: &str, at_least: u64) -> Value {
    for _ in 0..100 {
        let stats = emulator.stats();
        if stats[counter].as_u64() >= Some(at_least) {
            return stats;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{counter} stays below {at_least}");
}
