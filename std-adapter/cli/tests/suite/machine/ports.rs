//! Ports that others have, that go away, that one may not open, and that are found by other names.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::termios::{ioctl_tiocexcl, ioctl_tiocnxcl};

use crate::machine::{Device, RIGLINE, copy_command, member, rigline, run, wait_until, write_line};

const MANIFEST: &str =
    r#"{"name":"board","version":"1.0.0","protocolVersion":"0.0.1","operations":{"go":{"params":{}}}}"#;

/// A device that speaks gevals.
fn board() -> Device {
    Device::new(|line, writer| {
        let result = match member(line, "/method").as_str() {
            Some("initialize") => MANIFEST,
            Some("execute") => r#"{"success":true,"message":"done"}"#,
            Some(_) => "{}",
            None => return,
        };
        write_line(writer, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, member(line, "/id")));
    })
}

/// Reports: jclark/satpulse#117, bluerobotics/BlueOS#2324.
#[test]
fn a_port_that_is_held_exclusively_is_busy_for_root_too() {
    let device = board();
    ioctl_tiocexcl(&device.port).unwrap();
    for _ in 0..2 {
        // The second finds what the first has left: the same.
        let (code, _, errors) = run(&mut rigline(&["call", &device.target(), "go"]));
        assert_eq!(code, Some(3), "{errors}");
        let holder = format!("is in use by process {} (", std::process::id());
        assert!(errors.contains(&holder), "{errors}");
    }
    assert!(device.lines().is_empty(), "{:?}", device.lines());
    ioctl_tiocnxcl(&device.port).unwrap();
    let (code, out, errors) = run(&mut rigline(&["call", &device.target(), "go"]));
    assert_eq!((code, out.contains("done")), (Some(0), true), "{out}{errors}");
    // It has taken its own claim back.
    assert_eq!(run(&mut rigline(&["call", &device.target(), "go"])).0, Some(0));
}

/// Reports: arduino/arduino-ide#1508.
#[test]
fn a_process_that_reads_from_the_port_is_named_when_no_answer_comes() {
    let device = Device::silent();
    let mut cat = Command::new("cat").arg(&device.path).stdout(Stdio::null()).spawn().unwrap();
    let holder = format!("also open by process {} (cat {})", cat.id(), device.path);
    let target = device.target();
    wait_until("cat has it open", || {
        fs::read_dir(format!("/proc/{}/fd", cat.id())).is_ok_and(|mut files| {
            files.any(|file| fs::read_link(file.unwrap().path()).is_ok_and(|to| to == Path::new(&device.path)))
        })
    });
    for arguments in [
        &["call", &target, "go", "--start-timeout", "700ms"][..],
        &["describe", &target, "--start-timeout", "700ms"],
        &["call", &target, "go", "--protocol", "amplifier", "--timeout", "700ms"],
    ] {
        let (code, _, errors) = run(&mut rigline(arguments));
        assert_eq!(code, Some(124), "{arguments:?}: {errors}");
        assert!(errors.contains(&holder), "{arguments:?}: {errors}");
    }
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording").display().to_string();
    assert_eq!(run(&mut rigline(&["call", "sim", "measure", "channel=3V3", "--record", &recording])).0, Some(0));
    for arguments in [
        &["check", &target, "--case", "handshake", "--start-timeout", "700ms"][..],
        &["replay", &recording, &target, "--patience", "700ms"],
    ] {
        let (code, output, errors) = run(&mut rigline(arguments));
        assert_eq!(code, Some(1), "{arguments:?}: {output}{errors}");
        assert!(output.contains(&holder), "{arguments:?}: {output}{errors}");
    }
    cat.kill().unwrap();
    cat.wait().unwrap();
    // It is said too where an answer comes all the same.
    let device = board();
    // Not the device itself, which this process is.
    let mut sleeper = Command::new("sleep").arg("60").stdin(device.port.try_clone().unwrap()).spawn().unwrap();
    let (code, _, errors) = run(&mut rigline(&["call", &device.target(), "go"]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains(&format!("also open by process {} (sleep 60)\n", sleeper.id())), "{errors}");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

#[test]
fn the_name_of_another_process_does_not_drive_the_terminal() {
    let device = board();
    ioctl_tiocexcl(&device.port).unwrap();
    let mut holder = Command::new("sleep");
    let holder = holder.arg0("\u{1b}]0;title\u{7}\u{202e}\nx").arg("60").stdin(device.port.try_clone().unwrap());
    let mut holder = holder.spawn().unwrap();
    let (code, _, errors) = run(&mut rigline(&["call", &device.target(), "go"]));
    holder.kill().unwrap();
    holder.wait().unwrap();
    ioctl_tiocnxcl(&device.port).unwrap();
    assert_eq!(code, Some(3), "{errors}");
    assert!(errors.contains(&format!("process {} (", holder.id())), "{errors}");
    assert!(errors.contains("x 60)") && errors.lines().count() == 1, "{errors:?}");
    assert!(!errors.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{errors:?}");
}

/// Reports: tarm/serial#100, serialport/node-serialport#265, esp-rs/espmonitor#12.
#[test]
fn a_device_that_goes_is_said() {
    for command in [&["monitor"][..], &["call", "go"]] {
        // It answers nothing but the start.
        let mut device = Device::new(|line, writer| {
            if member(line, "/method") == "initialize" {
                write_line(writer, &format!(r#"{{"jsonrpc":"2.0","id":{},"result":{MANIFEST}}}"#, member(line, "/id")));
            }
        });
        let mut arguments = command.to_vec();
        let target = device.target();
        arguments.insert(1, &target);
        let child = rigline(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        if command[0] == "call" {
            wait_until("the call is out", || device.lines().iter().any(|line| line.contains("execute")));
        } else {
            let mut input = child.stdin.as_ref().unwrap();
            std::io::Write::write_all(&mut input, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}\n")
                .unwrap();
            wait_until("it stands between", || !device.lines().is_empty());
        }
        // The thread of the device has a copy: the port itself must go.
        hang_up(&mut device);
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{command:?}: {errors}");
        assert!(errors.contains("device disconnected: "), "{command:?}: {errors}");
    }
}

/// Takes a device's side away, and with it the thread that reads there.
fn hang_up(device: &mut Device) {
    let controller = device.controller.take().unwrap();
    // The thread's next line is its last.
    device.stop.store(true, std::sync::atomic::Ordering::SeqCst);
    let mut port = fs::File::from(device.port.try_clone().unwrap());
    std::io::Write::write_all(&mut port, b"\n").unwrap();
    drop(controller);
}

#[test]
fn a_missing_permission_names_the_way_out() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become somebody who has no right.
        return;
    }
    let device = board();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let rigline = folder.path().join("rigline");
    copy_command(&rigline);
    for (mode, group, expected) in [(0o600, 0, "a udev rule"), (0o660, 20, "usermod -aG")] {
        fs::set_permissions(&device.path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&device.path, Some(0), Some(group)).unwrap();
        let mut command = Command::new(&rigline);
        command.args(["call", &device.target(), "go"]).current_dir("/").uid(65534).gid(65534);
        let (code, _, errors) = run(&mut command);
        assert_eq!(code, Some(3), "{errors}");
        assert!(errors.contains("Permission denied") && errors.contains(expected), "{errors}");
    }
}

#[test]
fn every_command_finds_the_rig_below_its_root() {
    let root = tempfile::tempdir().unwrap();
    let folder = |path: &str| {
        let folder = root.path().join(path);
        fs::create_dir_all(&folder).unwrap();
        folder
    };
    let (interface, class) = (folder("sys/devices/1-2/1-2:1.0"), folder("sys/class/tty/ttyACM0"));
    for (file, text) in [("idVendor", "1209"), ("idProduct", "0001"), ("product", "rigline rig"), ("serial", "E66")] {
        fs::write(interface.parent().unwrap().join(file), text).unwrap();
    }
    symlink(&interface, class.join("device")).unwrap();
    let device = board();
    symlink(&device.path, folder("dev").join("ttyACM0")).unwrap();
    symlink("../../ttyACM0", folder("dev/serial/by-id").join("usb-rigline_rig_E66-if00")).unwrap();
    let eval = root.path().join("e.yaml");
    let runs = root.path().join("runs");
    let runs = runs.to_str().unwrap();
    for target in [
        "serial:auto",
        "serial:auto/E66",
        "serial:usb/1-2",
        "serial:/dev/ttyACM0",
        "serial:ttyACM0",
        "serial:by-id/usb-rigline_rig_E66-if00",
        "serial:/dev/serial/by-id/usb-rigline_rig_E66-if00",
    ] {
        fs::write(
            &eval,
            format!("name: x\nconfig: {{ target: '{target}' }}\ntasks: [ {{id: t, steps: [ {{operation: go}} ]}} ]\n"),
        )
        .unwrap();
        for arguments in [
            &["call", target, "go"][..],
            &["describe", target],
            &["eval", "run", eval.to_str().unwrap(), "--runs", runs],
        ] {
            let (code, out, errors) = run(rigline(arguments).env("RIGLINE_ROOT", root.path()));
            assert_eq!(code, Some(0), "{arguments:?} {target}: {out}{errors}");
        }
    }
    let mut text = String::new();
    let mut ports = rigline(&["ports", "--json"]).env("RIGLINE_ROOT", root.path()).spawn().unwrap();
    ports.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    ports.wait().unwrap();
    assert_eq!(member(&text, "/0/usb/serial_number"), "E66", "{text}");
}

/// The folder that RIGLINE_ROOT names may have anything in the places of the files that describe devices and processes.
#[test]
fn a_hostile_root_keeps_no_command_waiting_and_costs_little_memory() {
    let about = "sys/devices/1-2";
    let files = ["idVendor", "idProduct", "manufacturer", "product", "serial"].map(|file| format!("{about}/{file}"));
    let more = ["sys/class/tty/ttyACM0/type", "proc/7/cmdline", "proc/7/comm"].map(str::to_owned);
    let put_fifo = |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).unwrap();
    let put_text = |path: &Path| fs::write(path, "\u{1b}[2J\u{7}\n".repeat(100_000)).unwrap();
    type Kind<'a> = (&'a str, &'a dyn Fn(&Path));
    let kinds: [Kind<'_>; 6] = [
        ("a FIFO", &put_fifo),
        ("a device without an end", &|path| symlink("/dev/zero", path).unwrap()),
        ("a link to itself", &|path| symlink(path, path).unwrap()),
        ("a folder", &|path| fs::create_dir(path).unwrap()),
        ("8 GiB", &|path| fs::File::create(path).unwrap().set_len(8 << 30).unwrap()),
        ("escape sequences", &put_text),
    ];
    for hostile in files.iter().chain(&more) {
        for (kind, put) in kinds {
            let root = tempfile::tempdir().unwrap();
            let at = |path: &str| root.path().join(path);
            for folder in [&format!("{about}/1-2:1.0"), "sys/class/tty/ttyACM0", "dev", "proc/7/fd"] {
                fs::create_dir_all(at(folder)).unwrap();
            }
            for file in files.iter().chain(&more).filter(|file| *file != hostile) {
                fs::write(at(file), "1209").unwrap();
            }
            put(&at(hostile));
            symlink(at(about).join("1-2:1.0"), at("sys/class/tty/ttyACM0/device")).unwrap();
            fs::write(at("dev/ttyACM0"), "").unwrap();
            // A process that has the port open.
            symlink(at("dev/ttyACM0").canonicalize().unwrap(), at("proc/7/fd/3")).unwrap();
            for words in ["ports", "call serial:auto go"] {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("ulimit -v 4000000; exec \"$0\" {words}"), RIGLINE]);
                command.env("RIGLINE_ROOT", root.path()).stdin(Stdio::null());
                let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                let begun = Instant::now();
                while child.try_wait().unwrap().is_none() {
                    if begun.elapsed() > Duration::from_secs(20) {
                        child.kill().unwrap();
                        panic!("{words}: {hostile} is {kind}: it has not ended");
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                let output = child.wait_with_output().unwrap();
                let (out, errors) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
                let code = output.status.code();
                assert!(
                    code == Some(if words.starts_with("ports") { 0 } else { 3 }),
                    "{words}: {hostile} is {kind}: {code:?} {errors}"
                );
                assert!(out.len() < 100_000 && errors.len() < 100_000, "{words}: {hostile} is {kind}");
                assert!(!out.contains(&0x1b) && !errors.contains('\u{1b}'), "{words}: {hostile} is {kind}");
            }
        }
    }
}
