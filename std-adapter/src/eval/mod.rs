//! stub
#![allow(missing_docs, dead_code)]
mod command;
pub mod grade;
pub mod list;
mod node;
pub mod session;
pub mod run;
pub mod runs;
pub mod server;
pub mod service;
mod spec;
pub mod store;
pub mod trial;
pub use spec::*;
