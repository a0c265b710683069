//! rigline measured against what one would pick instead, on the gevals text's `execute` example.
//!
//! `cargo run --release -p rigline-bench` prints the table. `… -- run NAME COUNT` runs one workload so often, and no more:
//! what callgrind counts for two numbers of calls, less one from the other, is exact.

mod callgrind;
mod heap;
mod others;
mod workloads;

use std::process::ExitCode;
use std::time::Instant;

use workloads::ALL;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["run", name, count] => match (workload(name), count.parse()) {
            (Some(run), Ok(count)) => println!("{}", run(count)),
            _ => return usage(),
        },
        ["table"] | [] => table(),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: rigline-bench [table | run NAME COUNT], NAME being one of:");
    for (name, _) in ALL {
        eprintln!("  {name}");
    }
    ExitCode::from(2)
}

fn workload(name: &str) -> Option<fn(usize) -> usize> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, run)| *run)
}

/// One comparison of two workloads, by instructions or by time.
struct Row {
    what: &'static str,
    ours: &'static str,
    theirs: &'static str,
    by_instructions: bool,
    goal: Goal,
}

enum Goal {
    /// Ours is so many times faster: the target, and what one hopes for.
    Faster(f64, f64),
    /// Theirs is the least that the work can cost, and ours costs at most so many times as much.
    AtMost(f64),
}

const ROWS: [Row; 4] = [
    Row {
        what: "line to reply, framing in both, instructions",
        ours: "rigline",
        theirs: "serde_json",
        by_instructions: true,
        goal: Goal::Faster(2.2, 3.0),
    },
    Row {
        what: "line to reply, wall clock",
        ours: "rigline",
        theirs: "jsonrpsee",
        by_instructions: false,
        goal: Goal::Faster(5.0, 7.0),
    },
    Row {
        what: "check only, instructions",
        ours: "rigline-check",
        theirs: "serde_json-check",
        by_instructions: true,
        goal: Goal::Faster(1.9, 2.5),
    },
    Row {
        what: "framing, beside the bare search for the newline, instructions",
        ours: "rigline-frame",
        theirs: "memchr",
        by_instructions: true,
        goal: Goal::AtMost(1.25),
    },
];

fn table() {
    for (name, run) in ALL {
        if name != "allocations" {
            assert!(run(2) > 0, "{name} does not answer");
        }
    }
    let instructions: Vec<Option<f64>> = ALL.iter().map(|(name, _)| instructions(name)).collect();
    let nanos = wall_clock();
    let value = |name: &str, by_instructions: bool| {
        let at = ALL.iter().position(|(known, _)| *known == name)?;
        if by_instructions { *instructions.get(at)? } else { nanos.get(at).copied() }
    };

    println!("| workload | instructions a call | ns a call |");
    println!("|---|---:|---:|");
    for (name, _) in ALL.iter().filter(|(name, _)| *name != "allocations") {
        println!("| {name} | {} | {} |", shown(value(name, true)), shown(value(name, false)));
    }
    println!();
    println!("| | theirs | ours | ratio | target | stretch |");
    println!("|---|---:|---:|---:|---:|---:|");
    for Row { what, ours, theirs, by_instructions, goal } in ROWS {
        let unit = if by_instructions { "" } else { " ns" };
        let (ours_is, theirs_is) = (value(ours, by_instructions), value(theirs, by_instructions));
        let (ratio, goals) = match goal {
            Goal::Faster(target, stretch) => {
                (ratio(theirs_is, ours_is), format!("at least {target}x | at least {stretch}x"))
            }
            Goal::AtMost(target) => (ratio(ours_is, theirs_is), format!("at most {target}x | at most {target}x")),
        };
        let (ours_is, theirs_is) = (shown(ours_is), shown(theirs_is));
        println!("| {what} | {theirs}: {theirs_is}{unit} | {ours}: {ours_is}{unit} | {ratio} | {goals} |");
    }
    let allocations = workload("allocations").map_or(0, |run| run(1000));
    println!("| heap allocations in 1,000 calls | | {allocations} | | 0 | 0 |");
    if instructions.iter().any(Option::is_none) {
        println!("\nskipped: instruction counts, since valgrind could not be run");
    }
}

fn ratio(more: Option<f64>, less: Option<f64>) -> String {
    more.zip(less).map_or("-".to_owned(), |(more, less)| format!("{:.2}x", more / less))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn shown(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.0}"))
}

/// Instructions a call, by valgrind's callgrind; none where it is missing.
fn instructions(name: &str) -> Option<f64> {
    const FEW: u32 = 1_000;
    const MANY: u32 = 3_000;
    let count = |calls: u32| callgrind::instructions(&["run", name, &calls.to_string()]);
    Some((count(MANY)? - count(FEW)?) / f64::from(MANY - FEW))
}

/// Nanoseconds a call: the median of rounds in which all take turns, so that what slows the machine slows all. A round is
/// so short that it is seldom interrupted.
fn wall_clock() -> Vec<f64> {
    const ROUNDS: usize = 1001;
    const CALLS: u32 = 50;
    let mut nanos = vec![Vec::new(); ALL.len()];
    for _ in 0..ROUNDS {
        for ((_, run), nanos) in ALL.iter().zip(&mut nanos) {
            let start = Instant::now();
            std::hint::black_box(run(CALLS as usize));
            nanos.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS));
        }
    }
    nanos.into_iter().map(median).collect()
}
