//! An extension over any board, in a `no_std` crate, with names that are not what they seem.
#![no_implicit_prelude]
#![allow(dead_code, non_camel_case_types)]
#![deny(unused)]
#![allow(deprecated)]

use ::rigline::{Context, Failure, Outcome, Outputs, Params};

pub trait Board {
    type Rail: ::core::marker::Copy;
    fn millivolts(&mut self) -> i32;
}

struct Option;
struct Result;
struct Some;
struct None;
struct Ok;
struct Err;
struct str;
struct bool;
struct usize;
mod core {}

#[derive(Params)]
struct Measure<'a> {
    rail: &'a ::core::primitive::str,
    #[param(minimum = 1, default = 4)]
    samples: u8,
    label: ::core::option::Option<::heapless::String<8>>,
    #[param(default = "slow", max_length = 6)]
    text: &'a ::core::primitive::str,
    mode: Mode,
}

#[derive(Params, Outputs)]
enum Mode {
    Fast,
    Slow,
}

#[derive(Outputs)]
struct Measured {
    millivolts: i32,
    mode: Mode,
    absent: ::core::option::Option<u8>,
}

pub struct Rig<B: Board>
where
    B::Rail: ::core::fmt::Debug,
{
    board: B,
}

#[::rigline::extension(name = "rig", version = "1.0.0", description = "any board", requires("true"))]
impl<B: Board> Rig<B>
where
    B::Rail: ::core::fmt::Debug,
{
    #[operation]
    async fn measure(
        &mut self,
        args: Measure<'_>,
        cx: &mut Context<'_>,
    ) -> ::core::result::Result<Outcome, Failure> {
        cx.outputs(&Measured { millivolts: self.board.millivolts(), mode: args.mode, absent: ::core::option::Option::None })?;
        cx.done("")
    }

    #[operation]
    fn plain() -> ::core::result::Result<(), Failure> {
        ::core::result::Result::Ok(())
    }

    #[safe_state]
    async fn off(&mut self) {}
}

fn main() {}
