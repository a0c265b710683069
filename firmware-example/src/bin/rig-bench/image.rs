#![allow(clippy::used_underscore_binding, reason = "embassy's main passes the spawner on under its name")]

use embassy_executor::Spawner;
use rigline_rig::bench::BenchRig;
use rigline_rig::{firmware, rig::Rig};

use crate::handlers::Interrupts;

#[embassy_executor::main]
async fn main(_spawner: Spawner) {
    let peripherals = embassy_rp::init(embassy_rp::config::Config::default());
    firmware::run(peripherals, Interrupts, |board| BenchRig::new(Rig::new(board))).await;
}
