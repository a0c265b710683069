//! How the cost of rigline grows with the size of what is sent, beside a loop over serde_json.
//!
//! - `cargo run --release -p rigline-bench --bin rigline-growth -- measure` counts the instructions of all series, with valgrind, and
//!   prints them as CSV.
//! - `… -- draw CSV FOLDER` draws what is in the file CSV, and prints it as a table.
//! - `… -- stream` sends a stream of 100 MB, and prints its rate by the clock as a row of the bench's second table.
//! - `… -- run SERIES PEER SIZE COUNT` does one job so often, and nothing else.
//!
//! It is a program apart from the bench, whose counts would change with what else is compiled into it.

#[path = "../../callgrind.rs"]
mod callgrind;
mod draw;
mod series;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["run", name, who, size, count] => {
            let numbers = size.parse().ok().zip(count.parse().ok());
            match numbers.and_then(|(size, count)| series::run(name, who, size, count)) {
                Some(bytes) => println!("{bytes}"),
                None => return usage(),
            }
        }
        ["measure"] => {
            if series::measure(callgrind::instructions).is_none() {
                eprintln!("valgrind could not be run");
                return ExitCode::FAILURE;
            }
        }
        ["draw", csv, folder] => {
            if let Err(error) = draw::draw(Path::new(csv), Path::new(folder)) {
                eprintln!("{csv}: {error}");
                return ExitCode::FAILURE;
            }
        }
        ["stream"] => stream(),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: rigline-growth measure | draw CSV FOLDER | stream | run SERIES PEER SIZE COUNT, SERIES being one of:"
    );
    for series in series::ALL {
        eprintln!("  {}", series.name);
    }
    ExitCode::from(2)
}

/// The stream of 100 MB that the plot has, by the clock, as a row of the table.
fn stream() {
    let Some(series) = series::ALL.iter().find(|series| series.name == "stream") else { return };
    let (Some(theirs), Some(&size)) = (series.theirs, series.sizes.last()) else { return };
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..5 {
        for (run, rates) in [series.ours, theirs].into_iter().zip(&mut rates) {
            let start = Instant::now();
            std::hint::black_box(run(size, 1, false).bytes);
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            rates.push(size as f64 / 1e6 / start.elapsed().as_secs_f64());
        }
    }
    let [ours, theirs] = rates.map(median);
    println!(
        "| an NDJSON stream of {} MB, wall clock | serde_json: {theirs:.0} MB/s | rigline: {ours:.0} MB/s | {:.2}x | | |",
        size / 1_000_000,
        ours / theirs
    );
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
