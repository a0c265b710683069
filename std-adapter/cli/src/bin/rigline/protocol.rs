//! `--protocol`, the options that only one protocol has, and clients, all from the registry of
//! protocols.

use std::marker::PhantomData;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches};
use rigline_host::choose::{self, Chosen, ProtocolNeed};
use rigline_host::client::{ClientError, ClientOptions, Command, Form, OptionValues, Part, ProtocolOption};
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

/// The protocol by which a target is asked first, for clients of one protocol or of all. By the protocol of agents, all clients get descriptions,
/// types and logs. If not `is_all`, operations are chosen by what the target says of each, which it does by that protocol only.
pub(crate) fn asked_first(clients: Option<&Protocol>, is_all: bool) -> Option<&'static Protocol> {
    let has_content = |protocol: &Protocol| protocol.lines.is_some_and(rigline::protocol::Protocol::has_content);
    let needs_session = |protocol: &Protocol| !protocol.carries(Part::Config) && !has_content(protocol);
    protocols::of_agents().filter(|_| !is_all || !clients.is_some_and(needs_session))
}

/// The protocol that is used with an extension.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PeerArguments {
    /// The protocol of the target [default: the first one that the target answers]. If the target
    /// is a URL with `mcp` in its path, the default is mcp; for other URLs it is amplifier, or mcp
    /// if the server does not answer that. A namel3ss target may also be the folder of a project:
    /// then its tools.yaml, packs and settings are used
    #[arg(long, value_parser = parser(|protocol| protocol.client.is_some()))]
    pub(crate) protocol: Option<&'static Protocol>,
    #[command(flatten)]
    pub(crate) credentials: Credentials,
}

impl PeerArguments {
    /// The option that names the protocol in another command line, if it was named in this one.
    pub(crate) fn option(&self) -> String {
        self.protocol.map(option_of).unwrap_or_default()
    }

    /// The protocol that is named, or else the one that has what was asked for, if only one has.
    pub(crate) fn wanted<C: HasOptions>(
        &self,
        connection: &Connection,
        own: &OwnOptions<C>,
    ) -> Result<Option<&'static Protocol>, Failure> {
        let wanted = own.check(self.protocol)?;
        match wanted {
            // The other end may take it all the same: it says so in its description.
            Some(protocol) if connection.config.is_some() && !protocol.has_manifest => {
                Err(Self::cannot_carry(protocol, "--config", Part::Config))
            }
            wanted => Ok(wanted),
        }
    }

    /// Refuses what was asked for and the other end, which has been described, does not take. What
    /// this end can do in its place is a warning.
    pub(crate) fn check_carried(connection: &Connection, chosen: &Chosen, has_time_limit: bool) -> Result<(), Failure> {
        if connection.config.is_some() && !chosen.carries(Part::Config) {
            return Err(Self::cannot_carry(chosen.protocol, "--config", Part::Config));
        }
        let kept = [
            (has_time_limit, "--timeout", Part::TimeLimit, "the call is given up here when its time is over"),
            (connection.verbose, "--verbose", Part::Logs, "only standard error and skipped lines are shown"),
        ];
        let goes_on = has_time_limit && !connection.quiet && !chosen.carries(Part::Cancel);
        for (_, option, part, instead) in
            kept.into_iter().filter(|(is_asked, _, part, _)| *is_asked && !chosen.carries(*part))
        {
            if !connection.quiet {
                let title = chosen.protocol.title;
                connect::complain(format_args!("rigline: {option}: {title} does not carry {}: {instead}", part.name()));
            }
        }
        if goes_on {
            connect::complain("rigline: --timeout: the server goes on with a call that is given up here");
        }
        Ok(())
    }

    fn cannot_carry(protocol: &Protocol, option: &str, part: Part) -> Failure {
        let names: Vec<&str> =
            protocols::ALL.iter().filter(|protocol| protocol.carries(part)).map(|protocol| protocol.name).collect();
        let (title, part) = (protocol.title, part.name());
        Failure::usage(format!("{option} goes with --protocol {}: {title} does not carry {part}", names.join(" or ")))
    }

    /// Connects to the target by the protocol that is wanted, or else by the one that it answers.
    pub(crate) async fn client(
        &self,
        connection: &Connection,
        options: Options,
        own: OptionValues,
        wanted: Option<&'static Protocol>,
    ) -> Result<Chosen, Failure> {
        let mut client = ClientOptions::new(options);
        client.host.credentials = self.credentials.read(&connection.target)?;
        client.own = own;
        choose::connect(&connection.target, client, wanted, ProtocolNeed::Context).await.map_err(|error| match &error {
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

    /// Refuses options of other protocols than the one that is named. If none is named, the options
    /// do so.
    pub(crate) fn check(&self, named: Option<&'static Protocol>) -> Result<Option<&'static Protocol>, Failure> {
        let goes_with = |name: &str| {
            let names: Vec<&str> = owners::<C>(name).map(|owner| owner.name).collect();
            format!("--{name} goes with --protocol {}", names.join(" or "))
        };
        let has = |protocol: &Protocol, name: &str| owners::<C>(name).any(|owner| owner == protocol);
        let Some(protocol) = named else {
            let Some(first) = self.values.names().next() else { return Ok(None) };
            let mut candidates = owners::<C>(first);
            let fit = candidates.find(|owner| self.values.names().all(|name| has(owner, name)));
            let all = || self.values.names().map(goes_with).collect::<Vec<_>>().join(", ");
            return fit.map(Some).ok_or_else(|| Failure::usage(all()));
        };
        match self.values.names().find(|name| !has(protocol, name)) {
            Some(name) => Err(Failure::usage(goes_with(name))),
            None => Ok(Some(protocol)),
        }
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
