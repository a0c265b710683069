use std::process::ExitCode;
use std::time::Duration;

use rigline_host::Host;
use rigline_host::ports::{PortInfo, Roots};
use rigline_host::target::{Port, Serial, Target};
use rigline_host::{Holder, Options};
use serde_json::Value;

use crate::connect::{self, Failure};
use crate::out::Table;

/// List serial ports, the devices on them, and the processes that have them open
///
/// Without --probe, no byte is written to any port. With --probe, the devices whose USB names are those of rigline are opened and asked for their
/// manifest. No byte is written to other ports.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Ask the devices that look like rigline devices for their manifest
    #[arg(long)]
    probe: bool,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        connect::run(async move {
            let roots = Roots::of_environment();
            roots.check().map_err(|error| Failure::of(&error))?;
            let mut found = Vec::new();
            for port in roots.ports() {
                let holders = roots.holders(&port.path);
                let answer = if self.probe && port.is_rigline() { Some(probe(&port).await) } else { None };
                found.push((port, holders, answer));
            }
            if self.json {
                connect::print_json(&as_json(&found));
            } else {
                connect::print(&as_text(&found, self.probe));
            }
            Ok(connect::SUCCESS)
        })
    }
}

type FoundPort = (PortInfo, Vec<Holder>, Option<Result<String, String>>);

async fn probe(port: &PortInfo) -> Result<String, String> {
    let mut options = Options::default();
    options.start_timeout = Duration::from_secs(5);
    let target = Target::Serial(Serial::new(Port::Path(port.path.clone())));
    let host = Host::connect(&target, options).await.map_err(|error| error.to_string())?;
    let manifest = host.describe();
    let answer = format!("{} {}", manifest.name, manifest.version);
    host.shutdown().await.map_err(|error| error.to_string())?;
    Ok(answer)
}

fn as_json(found: &[FoundPort]) -> String {
    let ports: Vec<Value> = found
        .iter()
        .map(|(port, holders, answer)| {
            let mut json = port.to_json(holders);
            match answer {
                None => {}
                Some(Ok(name)) => json["extension"] = name.as_str().into(),
                Some(Err(error)) => json["error"] = error.as_str().into(),
            }
            json
        })
        .collect();
    format!("{:#}\n", Value::from(ports))
}

fn as_text(found: &[FoundPort], probed: bool) -> String {
    if found.is_empty() {
        return "No serial ports.\n".to_owned();
    }
    let mut table =
        Table::new(&["port", "usb id", "vendor", "product", "serial number", "usb port", "rigline", "held by"]);
    for (port, holders, answer) in found {
        let ours = match (port.is_rigline(), answer) {
            (false, _) => String::new(),
            (true, None) => "yes".to_owned(),
            (true, Some(Ok(name))) => name.clone(),
            (true, Some(Err(error))) => format!("no answer: {}", error.lines().next().unwrap_or_default()),
        };
        let usb = port.usb.clone().unwrap_or_default();
        let id = port.usb.as_ref().map(|usb| format!("{:04x}:{:04x}", usb.vendor_id, usb.product_id));
        table.row([
            port.path.display().to_string(),
            id.unwrap_or_default(),
            usb.manufacturer,
            usb.product,
            usb.serial_number,
            usb.place,
            ours,
            holders.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
        ]);
    }
    let hint = if !probed && found.iter().any(|(port, ..)| port.is_rigline()) {
        "`rigline ports --probe` asks the rigline devices for their manifests.\n"
    } else {
        ""
    };
    format!("{table}{hint}")
}
