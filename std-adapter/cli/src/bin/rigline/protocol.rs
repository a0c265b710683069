//! `--protocol`, the options that only one protocol has, and clients, all from the registry of protocols.

use std::marker::PhantomData;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches};
use rigline_host::client::{Client, ClientError, ClientOptions, Command, Form, OptionValues, ProtocolOption};
use rigline_host::protocol::Protocol;
use rigline_host::protocols;
use rigline_host::target::Target;
use rigline_host::{HostError, Options};

use crate::connect::{self, Connection, Failure};
use crate::credentials::Credentials;

/// The name of the protocol that is used where none is named.
pub(crate) const DEFAULT: &str = protocols::ALL[0].name;

/// Reads the name of a protocol that has what a command needs.
pub(crate) fn parser(is_offered: fn(&Protocol) -> bool) -> impl TypedValueParser<Value = &'static Protocol> {
    let offered = protocols::ALL.iter().filter(move |protocol| is_offered(protocol));
    PossibleValuesParser::new(offered.map(|protocol| protocol.name))
        .map(|name| protocols::named(&name).unwrap_or(protocols::ALL[0]))
}

/// The option that names a protocol in another command line; nothing for the default.
pub(crate) fn option_of(protocol: &Protocol) -> String {
    if protocol.name == DEFAULT { String::new() } else { format!(" --protocol {}", protocol.name) }
}

/// The names of the protocols that have something, as a sentence lists them.
pub(crate) fn names(has: fn(&Protocol) -> bool) -> String {
    let names: Vec<&str> =
        protocols::ALL.iter().filter(|protocol| has(protocol)).map(|protocol| protocol.name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The protocol that is used with an extension.
#[derive(Debug, clap::Args)]
pub(crate) struct PeerArguments {
    /// The protocol of the target. A namel3ss target may also be the folder of a project, whose tools.yaml, packs and
    /// settings are then used
    #[arg(long, value_parser = parser(|protocol| protocol.client.is_some()), default_value = DEFAULT)]
    pub(crate) protocol: &'static Protocol,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
}

impl Default for PeerArguments {
    fn default() -> Self {
        Self { protocol: protocols::ALL[0], credentials: Credentials::default() }
    }
}

impl PeerArguments {
    /// Connects to the target.
    pub(crate) async fn client(
        &self,
        connection: &Connection,
        options: Options,
        own: OptionValues,
    ) -> Result<Box<dyn Client>, Failure> {
        let Some(connect) = self.protocol.client else {
            return Err(Failure::usage(format!("--protocol {}: not supported by this command", self.protocol.name)));
        };
        let mut client = ClientOptions::new(options);
        client.host.credentials = self.credentials.read(&connection.target)?;
        client.own = own;
        connect(&connection.target, client).await.map_err(|error| match &error {
            ClientError::Host(HostError::Unsupported(_)) if matches!(connection.target, Target::Http(_)) => {
                let others = names(|protocol| protocol.http.is_some());
                Failure::usage(format!("{error}: use --protocol {others}"))
            }
            _ => error.into(),
        })
    }
}

/// A command that has options of protocols.
pub(crate) trait HasOptions {
    const COMMAND: Command;
}

/// The options of a command that only one protocol has.
#[derive(Debug)]
pub(crate) struct OwnOptions<C> {
    pub(crate) values: OptionValues,
    command: PhantomData<C>,
}

impl<C: HasOptions> OwnOptions<C> {
    pub(crate) fn none() -> Self {
        Self { values: OptionValues::default(), command: PhantomData }
    }

    /// Refuses options of other protocols.
    pub(crate) fn check(&self, protocol: &Protocol) -> Result<(), Failure> {
        for name in self.values.names() {
            let mut owners = owners::<C>(name);
            if !owners.any(|owner| owner == protocol) {
                let names: Vec<&str> = self::owners::<C>(name).map(|owner| owner.name).collect();
                return Err(Failure::usage(format!("--{name} goes with --protocol {}", names.join(" or "))));
            }
        }
        Ok(())
    }
}

fn options<C: HasOptions>(protocol: &'static Protocol) -> impl Iterator<Item = &'static ProtocolOption> {
    protocol.options.iter().filter(|option| option.commands.contains(&C::COMMAND))
}

fn owners<C: HasOptions>(name: &str) -> impl Iterator<Item = &'static Protocol> {
    let name = name.to_owned();
    protocols::ALL.iter().copied().filter(move |owner| options::<C>(owner).any(|option| option.name == name))
}

/// Each option once, though several protocols may have it.
fn all_options<C: HasOptions>() -> Vec<&'static ProtocolOption> {
    let mut all: Vec<&ProtocolOption> = Vec::new();
    for option in protocols::ALL.iter().flat_map(|protocol| options::<C>(protocol)) {
        if !all.iter().any(|known| known.name == option.name) {
            all.push(option);
        }
    }
    all
}

impl<C: HasOptions> clap::Args for OwnOptions<C> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(all_options::<C>().into_iter().map(argument::<C>))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn argument<C: HasOptions>(option: &'static ProtocolOption) -> Arg {
    let owners: Vec<&str> = owners::<C>(option.name).map(|owner| owner.title).collect();
    let mut argument = Arg::new(option.name).long(option.name).help(format!("{}: {}", owners.join(", "), option.help));
    if let Some(value) = option.value {
        argument = argument.value_name(value);
    }
    if let Some(other) = option.requires {
        argument = argument.requires(other);
    }
    match option.form {
        Form::Flag => argument.action(ArgAction::SetTrue),
        Form::Repeated => argument.action(ArgAction::Append),
        Form::TextOrFile => argument.value_parser(connect::text_of),
        Form::OneOf(values) => argument.value_parser(PossibleValuesParser::new(values)),
        _ => argument.value_parser(ValueParser::string()),
    }
}

impl<C: HasOptions> clap::FromArgMatches for OwnOptions<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut own = Self::none();
        own.update_from_arg_matches(matches)?;
        Ok(own)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in all_options::<C>() {
            if matches!(option.form, Form::Flag) {
                if matches.get_flag(option.name) {
                    self.values.add(option.name, None);
                }
                continue;
            }
            for value in matches.get_many::<String>(option.name).into_iter().flatten() {
                self.values.add(option.name, Some(value.clone()));
            }
        }
        Ok(())
    }
}
