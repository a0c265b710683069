//! `rigline install amplifier`: Amplifier's module descriptors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rigline::ModuleKind;
use rigline_host::Options;
use rigline_host::amplifier::{Descriptor, Transport};
use rigline_host::client::{ClientOptions, Described, Description};
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_host::target::Target;

use crate::connect::{self, Failure};
use crate::files;
use crate::protocol::{self, DEFAULT};
use crate::protocols::shim;

/// Write the Amplifier module descriptor of an extension, or check one
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The extension; with --check, a file
    target: String,
    /// The kind of module, if the extension does not declare it
    #[arg(long, value_parser = kinds())]
    kind: Option<ModuleKind>,
    /// The protocol for reading the extension's description; over HTTP it is amplifier
    #[arg(long, value_parser = protocol::parser(|protocol| protocol.has_manifest), default_value = DEFAULT)]
    protocol: &'static Protocol,
    /// Check the descriptor in the file TARGET
    #[arg(long, conflicts_with = "kind")]
    check: bool,
    /// Write the descriptor to this file [default: -, standard output]
    #[arg(short, long, value_name = "FILE", conflicts_with = "check")]
    output: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        if self.check {
            connect::print(&self.check()?);
            return Ok(ExitCode::SUCCESS);
        }
        files::ensure_reports(&[("--output", self.output.as_deref())], None)?;
        let text = self.describe()?;
        match &self.output {
            Some(path) => files::write(path, &text)?,
            None => connect::print_json(&text),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn check(&self) -> Result<String, Failure> {
        let text =
            files::read(self.target.as_ref()).map_err(|error| Failure::usage(format!("{}: {error}", self.target)))?;
        let descriptor =
            Descriptor::parse(&text).map_err(|error| Failure::failed(format!("{}: {error}", self.target)))?;
        Ok(format!("{} is the descriptor of {}\n", self.target, descriptor.name))
    }

    fn describe(&self) -> Result<String, Failure> {
        let target: Target =
            self.target.parse().map_err(|error| Failure::usage(format!("{}: {error}", self.target)))?;
        let transport = match &target {
            Target::Exec(exec) => {
                // The host that reads the descriptor may have another working folder.
                Transport::Stdio { command: Some(shim::program(exec)?) }
            }
            Target::Sim => Transport::Stdio { command: Some(["rigline", "rig"].map(str::to_owned).to_vec()) },
            Target::Http(url) => Transport::Http { url: Some(url.clone()) },
            // What the text has no word for: a module on stdio that talks to the device.
            other => Transport::Stdio {
                command: Some(
                    ["rigline", "bridge", &shim::anywhere(other)?.to_string(), "--protocol", "amplifier"]
                        .map(str::to_owned)
                        .into(),
                ),
            },
        };
        let over_http = protocols::named("amplifier").filter(|_| matches!(target, Target::Http(_)));
        let Some(connect) = over_http.unwrap_or(self.protocol).client else {
            return Err(Failure::usage("not supported by this command"));
        };
        let options = Options::default();
        let limit = options.call_timeout;
        let described = connect::on_one_thread(async {
            let mut client = connect(&target, ClientOptions::new(options)).await?;
            let described = client.describe(None, limit).await;
            let _ = client.close().await;
            Ok(described?)
        })?;
        let Description::Manifest(described) = described else {
            return Err(Failure::usage(format!("{target} does not list its operations")));
        };
        let Described { manifest, kind, .. } = *described;
        let capabilities = manifest.operations.into_iter().map(|operation| operation.name).collect();
        let (name, version) = (manifest.name, manifest.version);
        let kind = self.kind.or(kind).unwrap_or_default();
        let version = Some(version).filter(|version| !version.is_empty());
        Ok(Descriptor { name, kind, transport, capabilities, version, more: serde_json::Map::new() }.to_json())
    }
}

fn kinds() -> impl TypedValueParser<Value = ModuleKind> {
    PossibleValuesParser::new(ModuleKind::ALL.map(ModuleKind::name))
        .map(|name| ModuleKind::from_name(&name).unwrap_or_default())
}
