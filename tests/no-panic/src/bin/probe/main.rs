//! A program that uses every public entry of the core, so that the linker keeps all of its code: what of it can panic then
//! shows. It is linked for thumbv6m and looked at, never run.
//!
//! One module a part of the core, named as there. What a new public item needs is one line in its module. Left out is only
//! what no release program does: `Debug`, whose code is `core::fmt`'s, and the two constructors for constants, which
//! document their panic ([`Manifest::new`](rigline::Manifest::new), [`Schema::text`](rigline::Schema::text)): they run
//! in the compiler here.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(target_os = "none")]
mod client;
#[cfg(target_os = "none")]
mod context;
#[cfg(target_os = "none")]
mod duration;
#[cfg(target_os = "none")]
mod engine;
#[cfg(target_os = "none")]
mod event;
#[cfg(target_os = "none")]
mod exchange;
#[cfg(target_os = "none")]
mod frame;
#[cfg(target_os = "none")]
mod json;
#[cfg(all(target_os = "none", feature = "postcard"))]
mod link;
#[cfg(target_os = "none")]
mod macros;
#[cfg(target_os = "none")]
mod serve;
#[cfg(all(target_os = "none", feature = "protocols"))]
mod waza;

#[cfg(target_os = "none")]
mod program {
    use core::fmt::{Display, Write as _};
    use core::hint::black_box;
    use rigline::json::write::{Escaped, Writer};

    /// The function that the linker starts from.
    // SAFETY: nothing else in this program has that name.
    #[unsafe(no_mangle)]
    pub(crate) extern "C" fn _start() -> ! {
        crate::frame::all();
        crate::json::all();
        crate::duration::all();
        crate::client::all();
        crate::event::all();
        #[cfg(feature = "protocols")]
        crate::waza::all();
        #[cfg(feature = "postcard")]
        crate::link::all();
        crate::context::all();
        crate::macros::all();
        crate::engine::all();
        crate::exchange::all();
        if cfg!(feature = "handlers") {
            crate::serve::all();
        }
        #[cfg(feature = "deliberate-panic")]
        keep(bytes::<8>()[black_box(9)]);
        loop {
            core::hint::spin_loop();
        }
    }

    /// Linked if anything can panic: the check looks for it by this name.
    #[inline(never)]
    // SAFETY: nothing else in this program has that name.
    #[unsafe(no_mangle)]
    extern "C" fn rigline_panic_path() -> ! {
        loop {
            core::hint::spin_loop();
        }
    }

    /// Uses what it is told: if nobody did, the compiler would make one function of all that differ in their message only,
    /// and the guard that is allowed could not be told from them.
    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
        keep(info);
        rigline_panic_path()
    }

    /// Bytes that the compiler knows nothing about.
    pub(crate) fn bytes<const N: usize>() -> [u8; N] {
        black_box([0; N])
    }

    /// A text that the compiler knows nothing about.
    pub(crate) fn text() -> &'static str {
        black_box("text")
    }

    /// Uses a value.
    pub(crate) fn keep<T>(value: T) {
        black_box(value);
    }

    /// Prints a value, as a message and by `core::fmt`.
    pub(crate) fn show(value: &dyn Display) {
        let mut memory = bytes::<64>();
        let mut out = Writer::new(&mut memory);
        keep(write!(Escaped(&mut out), "{value}"));
        out.message(&format_args!("{value}"));
        keep(out.finish());
    }
}

#[cfg(not(target_os = "none"))]
fn main() {
    eprintln!("The probe is for thumbv6m-none-eabi: cargo run -p rigline-no-panic builds and checks it.");
}
