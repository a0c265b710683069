//! Rigs that several people, their CI and their agents share, on one host or on many.
//!
//! An agent of the user grants *leases*. A rig has one holder at a time, and holders get it in the
//! order in which they asked. A lease ends when its holder ends in any way. The rig is then brought
//! to its safe state and checked, and the next holder gets it. The first command that needs the
//! agent starts it, and it ends when nobody needs it.
//!
//! | module | contents |
//! |---|---|
//! | [`rigs`] | the list of rigs, and the selectors that name them |
//! | [`scan`] | the boards that are plugged in, as rigs of the list |
//! | [`book`] | the rules of leases, the queue and the health of rigs, without input and output |
//! | [`records`], [`store`] | the records that are on the disk before anybody is told of them |
//! | [`agent`], [`client`] | the two ends of the agent's socket |
//! | [`lock`] | a command that runs as long as its lease lasts |
//! | [`dial`] | targets `rig:…` of all commands |
//! | [`hosts`] | the hosts of the lab, and what is asked of several of them |
//! | [`ssh`], [`nats`] | how the agent of another host is reached |
//! | [`shards`] | several rigs for one command |
//!
//! It needs Linux: process file descriptors, child subreapers, `/proc` and a clock that counts sleep.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
pub mod agent;
#[cfg(target_os = "linux")]
pub mod book;
#[cfg(target_os = "linux")]
mod check;
#[cfg(target_os = "linux")]
pub mod client;
#[cfg(target_os = "linux")]
pub mod clock;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
pub mod dial;
#[cfg(target_os = "linux")]
pub mod folders;
#[cfg(target_os = "linux")]
mod frames;
pub mod guide;
#[cfg(target_os = "linux")]
mod handshake;
#[cfg(target_os = "linux")]
pub mod hosts;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
pub mod lock;
#[cfg(target_os = "linux")]
pub mod nats;
#[cfg(target_os = "linux")]
pub mod processes;
#[cfg(target_os = "linux")]
pub mod records;
#[cfg(target_os = "linux")]
pub mod rigs;
#[cfg(target_os = "linux")]
pub mod scan;
#[cfg(target_os = "linux")]
pub mod shards;
#[cfg(target_os = "linux")]
pub mod ssh;
#[cfg(target_os = "linux")]
pub mod store;
#[cfg(target_os = "linux")]
pub mod users;
#[cfg(target_os = "linux")]
mod wire;

/// The reason why this system cannot have a lab; none on Linux.
pub const MISSING: Option<&str> = if cfg!(target_os = "linux") {
    None
} else {
    Some(
        "the lab needs Linux: this system has no child subreaper (to end all processes of a lease), no CLOCK_BOOTTIME and no SO_PEERCRED",
    )
};

/// The examples of the README, which are compiled as tests.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../README.md")]
pub struct Readme;
