use std::process::ExitCode;

use clap::Args;
use rigline_rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::stdio::Stdio;

/// Serve a simulated hardware-test rig on standard input and output
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What the board's identity and the noise on its readings come from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u32,
}

impl Arguments {
    pub(crate) fn run(self) -> ExitCode {
        let clock = TokioClock::new();
        let stdio = Stdio::new().clock(clock.clone());
        stdio.serve(Rig::new(SimBoard::new(clock, self.seed), stdio.limits()))
    }
}
