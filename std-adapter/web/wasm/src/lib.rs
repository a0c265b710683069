//! The rigline core in a browser: framing, checking, the messages of every protocol, and the client half.
//!
//! JavaScript copies bytes into [`buffer`](exports::buffer), calls a function, and reads what came of it at [`records`](exports::records) and [`text`](exports::text). There is one decoder
//! and one client in an instance of the module: a program that wants two of them makes two instances, which share the compiled code, and
//! whose memory is freed as a whole. So there are no handles, and no memory that JavaScript must free.
//!
//! `std-adapter/web/src/rigline.ts` is the other side; nothing else calls these functions.
//!
//! # Unsafe code
//! `#[unsafe(no_mangle)]`, without which a function has no name outside. It says that no other function of that name is linked. There is
//! no other unsafe code: the functions give addresses of memory that Rust owns, and JavaScript cannot reach anything else.

#![deny(unsafe_code)]

pub mod client;
pub mod decoder;
pub mod exports;
pub mod message;
