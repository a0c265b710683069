//! A serial port, and the processes that have it open.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The word in a device's USB manufacturer or product string by which it is known as ours.
pub(crate) const USB_NAME: &str = "rigline";

/// A serial port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PortInfo {
    /// The path to open, such as `/dev/ttyACM0`.
    pub path: PathBuf,
    /// The USB device behind it, if it is one.
    pub usb: Option<UsbInfo>,
}

/// A USB device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UsbInfo {
    /// The place of the device in the USB tree, such as `1-2.3`.
    pub place: String,
    /// Which of its interfaces the port is, such as `1.2` (configuration and number): a composite device has several ports. Empty if the
    /// system does not report it.
    pub interface: String,
    /// Vendor id.
    pub vendor_id: u16,
    /// Product id.
    pub product_id: u16,
    /// The manufacturer of the device in words; empty if it does not say.
    pub manufacturer: String,
    /// The product of the device in words; empty if it does not say.
    pub product: String,
    /// The serial number of the device; empty if it does not say.
    pub serial_number: String,
}

impl PortInfo {
    /// Whether the device says that it is a rigline device.
    pub fn is_rigline(&self) -> bool {
        self.usb.as_ref().is_some_and(|usb| {
            [&usb.manufacturer, &usb.product].iter().any(|name| name.to_lowercase().contains(USB_NAME))
        })
    }
}

impl PortInfo {
    /// It as JSON, as `rigline ports --json` lists it, with those who have it open.
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
    /// The number of the process.
    pub pid: u32,
    /// The command line of the process.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}
