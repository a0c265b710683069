//! Shared parts of the twins: a program around an extension that no optimiser can see through.
#![no_std]

use core::convert::Infallible;
use core::hint::black_box;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::Transport;
use rigline::serve::blocking::Server;
use rigline::{Clock, Extension, Instant};

/// A wire that could carry anything.
struct Wire;

impl ErrorType for Wire {
    type Error = Infallible;
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        Ok(black_box(buf).len())
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        Ok(black_box(buf).len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        black_box(Instant::default())
    }
}

/// Serves an extension for ever.
pub fn run(extension: &mut impl Extension) -> ! {
    let (mut request, mut reply, mut log) = ([0; 512], [0; 1024], [0; 256]);
    loop {
        let memory = Memory { request: &mut request, reply: &mut reply };
        if let Ok(mut engine) = Engine::new(extension.manifest(), memory) {
            let _ = black_box(
                Server::new(extension, &mut engine, &NoTime)
                    .transport(Transport::Stream)
                    .log_buffer(&mut log)
                    .serve(&mut Wire),
            );
        }
    }
}

/// The hardware.
pub struct Board;

impl Board {
    /// Measures.
    pub fn millivolts(&mut self, channel: &str, samples: u16) -> i32 {
        black_box((channel, samples));
        black_box(3300)
    }

    /// Switches.
    pub fn power(&mut self, rail: u8, on: bool) {
        black_box((rail, on));
    }
}

/// The parts of a program without an operating system, around `main`.
#[macro_export]
macro_rules! program {
    ($extension:expr) => {
        #[cfg(target_os = "none")]
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }

        /// Where the linker starts to look for what is used.
        #[cfg(target_os = "none")]
        #[unsafe(no_mangle)]
        extern "C" fn _start() -> ! {
            $crate::run(&mut $extension)
        }

        /// Only images for a microcontroller are measured.
        #[cfg(not(target_os = "none"))]
        fn main() {
            let _ = $extension;
        }
    };
}
