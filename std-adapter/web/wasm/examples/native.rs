//! Decodes files on this machine, for tests that compare with what the WebAssembly module says of them.
//!
//! The names of files come on standard input, one a line. For each file, and each size of the pieces that it is cut into, comes a line:
//! the file's number, the size, the fault of the file as one JSON text (kind and place), and the words of all records with the texts that
//! they refer to, in hexadecimal digits.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, Write as _};

use rigline::frame::LineEnds;
use rigline::json::check::check;
use rigline_web::decoder::{Decoder, FIELDS, FaultKind};

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (number, name) in io::stdin().lock().lines().enumerate() {
        let bytes = std::fs::read(name?)?;
        let fault = check(&bytes).map_or_else(|error| (FaultKind::of(error.kind) as u32, error.offset), |()| (0, 0));
        for step in [1, 7, 4096] {
            for (serial, ends) in [LineEnds::Lf, LineEnds::Serial].into_iter().enumerate() {
                let mut decoder = Decoder::new(4000, ends);
                let mut seen = String::new();
                for piece in bytes.chunks(step) {
                    decoder.feed(piece);
                    put(&decoder, piece, &mut seen);
                }
                decoder.finish();
                put(&decoder, &[], &mut seen);
                writeln!(out, "{number} {step} {serial} {} {} {seen}", fault.0, fault.1)?;
            }
        }
    }
    Ok(())
}

fn put(decoder: &Decoder, fed: &[u8], seen: &mut String) {
    for record in decoder.records().chunks(FIELDS) {
        for word in record {
            let _ = write!(seen, "{word:x},");
        }
        let source = if record[0] & 1 << 18 == 0 { fed } else { decoder.spilled() };
        let text = source.get(record[2] as usize..(record[2] + record[3]) as usize).unwrap_or_default();
        for byte in text {
            let _ = write!(seen, "{byte:02x}");
        }
        seen.push(';');
    }
}
