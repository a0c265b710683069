use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::connect::{self, Failure};

/// Run a command while a rig is yours alone
///
/// If the rig is not free, the command waits in a queue for the time of --wait. Without --wait it
/// fails at once. When the rig is free, COMMAND runs. The rig may be on another host of the lab;
/// COMMAND runs here.
///
/// The lease ends when COMMAND ends, when this command is ended (even by SIGKILL), or when the time
/// of --ttl is over. In each of these cases, all processes that COMMAND has started are ended. Then
/// the rig is brought to its safe state and checked, and the next user gets it.
///
/// COMMAND gets the names of its rigs in the variable RIGLINE_RIGS, and the id of its lease in
/// RIGLINE_LEASE. The id is no secret.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rigline lock serial:auto --wait 10m -- pytest tests\n  rigline lock rig:board=pico --count 2 --wait 1h -- ./both.sh\n\nExit codes: that of COMMAND, if COMMAND was started and kept its rig. Otherwise 1 failed; 2 nothing can match TARGET, or COMMAND cannot be started; 3 the rig is another's or in quarantine, or the lease was lost; 124 the time of --wait is over; 130 Ctrl-C while it waited. COMMAND may end with these numbers too: then standard error tells which is meant."
)]
pub(crate) struct Arguments {
    /// `rig:NAME`, `rig:HOST/NAME` or `rig:KEY=VALUE,…` for rigs of rigs.toml; serial:…, tcp:HOST:PORT or sim for one that is not in it
    #[arg(value_name = "TARGET")]
    target: String,
    /// The longest time of the lease
    #[arg(long, value_name = "DURATION", value_parser = connect::time_limit, default_value = "30m")]
    ttl: Duration,
    /// End the lease when nothing was sent to the rig for this time [default: never]. Only what rigline sends counts. Do not use this option if
    /// COMMAND opens the port itself: the lease would end while COMMAND works
    #[arg(long, value_name = "DURATION", value_parser = connect::time_limit)]
    idle: Option<Duration>,
    /// How long to wait in the queue until the rig is free [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = connect::duration)]
    wait: Option<Duration>,
    /// How many rigs of one host. The lease begins when all of them are free together
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// The purpose, which others see
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    purpose: String,
    /// The rig need not speak a protocol of rigline, for commands that open its port themselves, such as esptool or openocd
    #[arg(long)]
    raw: bool,
    /// The hosts of the lab, instead of those of RIGLINE_LAB or lab.toml, such as ssh:lab1,ssh:lab2
    #[arg(long, value_name = "HOST,…")]
    lab: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    #[cfg(target_os = "linux")]
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        use rigline_lab::client::Want;
        use rigline_lab::lock::{self, Lock};

        if let Some(program) = self.command.first().filter(|program| !rigline_host::process::is_found(program, None)) {
            return Err(Failure::usage(format!("there is no program `{}`", program.to_string_lossy())));
        }
        let want = Want {
            rigs: vec![self.target],
            count: self.count,
            wait: self.wait,
            ttl: self.ttl,
            idle: self.idle,
            is_raw: self.raw,
            purpose: self.purpose,
        };
        crate::lab::use_hosts(self.lab);
        let lock = Lock { hosts: crate::lab::hosts()?, option: crate::lab::option(), want, command: self.command };
        let waits = self.wait.is_some();
        let tell = |place, why: &str| {
            if waits {
                connect::complain(format_args!("place {place} in the queue: {why}"));
            }
        };
        connect::run_alone(async { lock::run(&lock, tell).await.map_err(crate::lab::failure) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Self { target: _, ttl: _, idle: _, wait: _, count: _, purpose: _, raw: _, lab: _, command: _ } = self;
        Err(crate::lab::missing())
    }
}
