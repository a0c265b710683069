//! The rig with a simulated board, on standard input and output, as any host starts it:
//! `cargo run -p rigline-rig --example simulated`. The command `rigline rig` has it with options.

use std::process::ExitCode;

use rigline_rig::rig::Rig;
use rigline_rig::sim::SimBoard;
use rigline_std::TokioClock;
use rigline_std::stdio::Stdio;

fn main() -> ExitCode {
    let clock = TokioClock::new();
    let stdio = Stdio::new().clock(clock.clone());
    stdio.serve(Rig::new(SimBoard::new(clock, 1)))
}
