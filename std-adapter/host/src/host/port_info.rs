//! Serial ports, and the processes that have them open.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The word in a device's USB manufacturer or product string by which it is known as ours.
pub(crate) const USB_NAME: &str = "rigline";

/// A serial port of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PortInfo {
    /// The path of the port, such as `/dev/ttyACM0`.
    pub path: PathBuf,
    /// The USB device that has the port. `None` if it is no USB device.
    pub usb: Option<UsbInfo>,
}

/// A USB device that has a serial port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UsbInfo {
    /// The place of the device in the USB tree, such as `1-2.3`: the bus and the ports of the hubs.
    pub place: String,
    /// The interface of the device that is this port, such as `1.2`: configuration and number. A
    /// device with several ports has several. Empty if the system does not report it.
    pub interface: String,
    /// The vendor id of the device.
    pub vendor_id: u16,
    /// The product id of the device.
    pub product_id: u16,
    /// The name of the manufacturer. Empty if the device reports none.
    pub manufacturer: String,
    /// The name of the product. Empty if the device reports none.
    pub product: String,
    /// The serial number of the device. Empty if the device reports none.
    pub serial_number: String,
}

impl PortInfo {
    /// Returns whether the manufacturer or the product of the device names rigline.
    pub fn is_rigline(&self) -> bool {
        self.usb.as_ref().is_some_and(|usb| {
            [&usb.manufacturer, &usb.product].iter().any(|name| name.to_lowercase().contains(USB_NAME))
        })
    }
}

impl PortInfo {
    /// Returns the port as JSON, as `rigline ports --json` lists it. `holders` are the processes
    /// that have it open.
    pub fn to_json(&self, holders: &[Holder]) -> Value {
        let usb = self.usb.as_ref().map(|usb| {
            json!({
                "vendor_id": format!("{:04x}", usb.vendor_id),
                "product_id": format!("{:04x}", usb.product_id),
                "manufacturer": usb.manufacturer,
                "product": usb.product,
                "serial_number": usb.serial_number,
                "place": usb.place,
            })
        });
        let held_by: Vec<String> = holders.iter().map(ToString::to_string).collect();
        json!({
            "port": self.path, "rigline": self.is_rigline(), "usb": usb, "held_by": held_by,
            "extension": null, "error": null,
        })
    }
}

impl fmt::Display for PortInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        let Some(usb) = &self.usb else { return Ok(()) };
        write!(f, "  {:04x}:{:04x}", usb.vendor_id, usb.product_id)?;
        for text in [&usb.manufacturer, &usb.product] {
            if !text.is_empty() {
                write!(f, " {text}")?;
            }
        }
        if !usb.serial_number.is_empty() {
            write!(f, "  serial {}", usb.serial_number)?;
        }
        write!(f, "  usb {}", usb.place)
    }
}

/// A process that has a port open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The process id.
    pub pid: u32,
    /// The command line of the process.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}
