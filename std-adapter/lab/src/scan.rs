//! The search for boards that are plugged in, to make them rigs of the list.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use rigline_host::files;
use rigline_host::ports::{PortInfo, Roots, UsbInfo};
use rigline_host::target::{Port, Serial, Target};
use serde::Serialize;

use crate::rigs;

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Scan {
    /// The boards that were added to the list as rigs.
    pub added: Vec<ScannedBoard>,
    /// The boards that were rigs of the list before.
    pub known: Vec<ScannedBoard>,
    /// The boards that share a serial number. They cannot be told apart, and none of them is added.
    pub ambiguous: Vec<Ambiguous>,
}

/// A board that is a rig of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScannedBoard {
    /// The name of the rig.
    pub name: String,
    /// The target of the rig.
    pub target: String,
    /// The port at which the board is plugged in now.
    pub port: String,
}

/// Several boards with the same serial number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ambiguous {
    /// The serial number that the boards share.
    pub serial_number: String,
    /// The places of the boards in the USB tree.
    pub places: Vec<String>,
}

/// Adds the boards that are plugged in and not yet listed to the end of the list. The rest of the
/// file does not change. Nothing is written to a board.
///
/// # Errors
/// The list has a fault, or cannot be read or written.
pub fn scan(list: &Path, roots: &Roots) -> io::Result<Scan> {
    let mut specs = rigs::read(list)?;
    specs.iter_mut().for_each(|spec| spec.find_board(roots));
    let ports: Vec<(PortInfo, UsbInfo)> =
        roots.ports().into_iter().filter_map(|port| Some((port.clone(), port.usb?))).collect();
    let mut places: BTreeMap<(u16, u16, &str), BTreeSet<&str>> = BTreeMap::new();
    for (_, usb) in ports.iter().filter(|(_, usb)| !usb.serial_number.is_empty()) {
        places.entry((usb.vendor_id, usb.product_id, &usb.serial_number)).or_default().insert(&usb.place);
    }
    let mut scan = Scan::default();
    for ((.., number), places) in places.iter().filter(|(_, places)| places.len() > 1) {
        let places = places.iter().map(|&place| place.to_owned()).collect();
        scan.ambiguous.push(Ambiguous { serial_number: (*number).to_owned(), places });
    }
    let mut names: BTreeSet<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let mut text = String::new();
    for (port, usb) in &ports {
        let boards = rigline_host::rig_names(&Target::Serial(Serial::new(Port::Path(port.path.clone()))), roots);
        let known = specs.iter().find(|spec| spec.boards.iter().any(|board| boards.contains(board)));
        let shown = port.path.display().to_string();
        if let Some(spec) = known {
            scan.known.push(ScannedBoard { name: spec.name.clone(), target: spec.target.clone(), port: shown });
            continue;
        }
        if scan.ambiguous.iter().any(|twins| twins.serial_number == usb.serial_number) {
            continue;
        }
        let of_device = ports.iter().filter(|(_, other)| other.place == usb.place).count();
        let which = if port.is_rigline() && !usb.serial_number.is_empty() && of_device == 1 {
            Port::SerialNumber(usb.serial_number.clone())
        } else if of_device == 1 {
            Port::Usb(usb.place.clone())
        } else {
            Port::Usb(format!("{}:{}", usb.place, usb.interface))
        };
        let target = Target::Serial(Serial::new(which)).to_string();
        let name = new_name(usb, &mut names);
        let product =
            if usb.product.is_empty() { String::new() } else { format!(", product = {}", quoted(&usb.product)) };
        text.push_str(&format!(
            "\n[[rig]]\nname = {}\ntarget = {}\ntags = {{ usb = \"{:04x}:{:04x}\"{product} }}\n",
            quoted(&name),
            quoted(&target),
            usb.vendor_id,
            usb.product_id
        ));
        scan.added.push(ScannedBoard { name, target, port: shown });
    }
    if !text.is_empty() {
        append(list, &text)?;
    }
    Ok(scan)
}

/// A name that no other rig has.
fn new_name(usb: &UsbInfo, names: &mut BTreeSet<String>) -> String {
    let word = if usb.product.is_empty() { "board" } else { &usb.product };
    let fit = |char: char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' };
    let stem: String = word.chars().take(40).map(fit).collect();
    let stem = stem.trim_matches('-');
    let stem = if stem.is_empty() { "board" } else { stem };
    let free = (1..=names.len() + 1).map(|number| format!("{stem}-{number}")).find(|name| !names.contains(name));
    let name = free.unwrap_or_default();
    names.insert(name.clone());
    name
}

/// A basic string of TOML, whose escapes are those of JSON. A comma cannot be written in a selector.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace([',', '\u{7f}'], " ")).to_string()
}

fn append(list: &Path, text: &str) -> io::Result<()> {
    let before = match files::read_text(list, rigs::LONGEST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let text = if before.is_empty() { text.trim_start() } else { text };
    let added = format!("{gap}{text}");
    // A list that is written as one array, `rig = [ … ]`, takes no entries behind it.
    toml::from_str::<toml::Table>(&format!("{before}{added}")).map_err(|error| {
        let why = format!("{}: no entries can be added at its end: {error}", list.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })?;
    // The agent never reads half of an entry. A link to the list stays one.
    let list = list.canonicalize().unwrap_or_else(|_| list.to_owned());
    files::write(&list, format!("{before}{added}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    /// A fake sysfs.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(machine.0.path().join("sys/class/tty")).unwrap();
            fs::create_dir_all(machine.0.path().join("dev")).unwrap();
            machine
        }

        fn roots(&self) -> Roots {
            let root = self.0.path();
            Roots { sys: root.join("sys"), dev: root.join("dev"), proc: "/proc".into() }
        }

        fn plug(&self, node: &str, place: &str, product: &str, serial: &str) {
            let root = self.0.path();
            let device = root.join("sys/devices").join(place);
            let interface = device.join(format!("{place}:1.0"));
            fs::create_dir_all(&interface).unwrap();
            let facts = [("idVendor", "2e8a"), ("idProduct", "000a"), ("product", product), ("serial", serial)];
            for (name, value) in facts {
                fs::write(device.join(name), value).unwrap();
            }
            let class = root.join("sys/class/tty").join(node);
            fs::create_dir_all(&class).unwrap();
            let link = class.join("device");
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&interface, link).unwrap();
            fs::write(root.join("dev").join(node), "").unwrap();
        }

        fn scan(&self) -> Scan {
            scan(&self.0.path().join("rigs.toml"), &self.roots()).unwrap()
        }

        fn list(&self) -> String {
            fs::read_to_string(self.0.path().join("rigs.toml")).unwrap_or_default()
        }
    }

    #[test]
    fn boards_get_names_and_what_is_written_stays_byte_by_byte() {
        let machine = Machine::new();
        let mine = "# mine\n[[rig]]\r\nname = 'a' # odd   spaces\ntarget='tcp:localhost:1'";
        fs::write(machine.0.path().join("rigs.toml"), mine).unwrap();
        machine.plug("ttyACM0", "1-1", "rigline rig", "E66");
        machine.plug("ttyUSB0", "1-2", "CP2102", "0001");
        let targets: Vec<String> = machine.scan().added.into_iter().map(|found| found.target).collect();
        assert_eq!(targets, ["serial:auto/E66", "serial:usb/1-2"]);
        let list = machine.list();
        assert!(list.starts_with(mine), "{list}");
        assert!(list.contains("name = \"rigline-rig-1\"") && list.contains("name = \"cp2102-1\""), "{list}");
        // Again, and with the node renumbered: the same rigs.
        machine.plug("ttyACM7", "1-1", "rigline rig", "E66");
        fs::remove_dir_all(machine.0.path().join("sys/class/tty/ttyACM0")).unwrap();
        let again = machine.scan();
        assert_eq!((again.added.len(), again.known.len()), (0, 2));
        assert_eq!(machine.list(), list);
    }

    #[test]
    fn boards_with_one_serial_number_are_ambiguous_and_not_added() {
        // zephyrproject-rtos/zephyr#53252
        let machine = Machine::new();
        machine.plug("ttyACM0", "1-1", "rigline rig", "E66");
        machine.plug("ttyACM1", "1-2", "rigline rig", "E66");
        let found = machine.scan();
        assert_eq!((found.added.len(), machine.list().as_str()), (0, ""));
        assert_eq!(found.ambiguous[0].places, ["1-1", "1-2"]);
    }

    #[test]
    fn a_list_is_whole_at_every_moment_and_keeps_its_mode_and_its_link() {
        let machine = Machine::new();
        let (list, real) = (machine.0.path().join("rigs.toml"), machine.0.path().join("real.toml"));
        fs::write(&real, "[[rig]]\nname = 'a'\ntarget = 'sim'\n").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o600)).unwrap();
        symlink(&real, &list).unwrap();
        let before = fs::metadata(&real).unwrap().ino();
        machine.plug("ttyACM0", "1-1", "rigline rig", "E66");
        assert_eq!(scan(&list, &machine.roots()).unwrap().added.len(), 1);
        let about = fs::metadata(&real).unwrap();
        // Another file has taken its name: who reads it sees the old list or the new one.
        assert_ne!(about.ino(), before);
        assert_eq!(about.mode() & 0o777, 0o600);
        assert!(fs::symlink_metadata(&list).unwrap().is_symlink() && machine.list().contains("E66"));
        // What is no file is refused, and nobody waits for it.
        fs::remove_file(&list).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &list, rustix::fs::Mode::RWXU).unwrap();
        assert!(scan(&list, &machine.roots()).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn a_list_that_takes_no_entries_is_left_alone_and_named() {
        let machine = Machine::new();
        let list = machine.0.path().join("rigs.toml");
        fs::write(&list, "rig = [{ name = 'a', target = 'sim' }]\n").unwrap();
        machine.plug("ttyACM0", "1-1", "rigline rig", "E66");
        let error = scan(&list, &machine.roots()).unwrap_err().to_string();
        assert!(error.contains("no entries can be added"), "{error}");
        assert_eq!(machine.list(), "rig = [{ name = 'a', target = 'sim' }]\n");
    }
}
