//! Attacks a built command: `cargo run -p rigline-tests --bin attack -- [--command PATH] [--operations N] [NAME…]`.

use std::process::ExitCode;

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("attack: it reads /proc, which only Linux has");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use std::time::Instant;

    use rigline_tests::attack::{Attack, CHECKS, PEERS, run_peer};

    const USAGE: &str = "\
Attacks a built rigline, and says what it measured. Each check is named; a part of a name selects all that have it.

usage: attack [--command PATH] [--operations N] [NAME...]
       attack --list
       attack peer NAME [N]      a hostile peer, on standard input and output or over HTTP

  --command PATH    the command [default: `rigline` beside this program]
  --operations N    how many operations the largest extension has [default: 20000]";

    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some((first, rest)) = args.split_first()
        && first == "peer"
    {
        return match run_peer(rest) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    let Ok(own) = std::env::current_exe() else { return ExitCode::FAILURE };
    let mut attack = Attack { command: own.with_file_name("rigline"), peers: own, operations: 20_000 };
    let mut names = Vec::new();
    let mut words = args.into_iter();
    while let Some(word) = words.next() {
        match (word.as_str(), word.starts_with('-').then(|| words.next()).flatten()) {
            ("--list", None) => {
                CHECKS.iter().for_each(|check| println!("{:28} {}", check.name, check.holds));
                println!("\npeers:");
                PEERS.iter().for_each(|(name, what)| println!("  {name:12} {what}"));
                return ExitCode::SUCCESS;
            }
            ("--command", Some(path)) => attack.command = path.into(),
            ("--operations", Some(number)) if number.parse::<usize>().is_ok_and(|number| number > 0) => {
                attack.operations = number.parse().unwrap_or(1);
            }
            (name, None) if !name.starts_with('-') => names.push(word),
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    if !attack.command.is_file() {
        eprintln!("attack: there is no {}: build it by `cargo build`", attack.command.display());
        return ExitCode::from(2);
    }
    if let Some(unknown) = names.iter().find(|name| !CHECKS.iter().any(|check| check.name.contains(name.as_str()))) {
        eprintln!("attack: no check is named {unknown}; --list shows them");
        return ExitCode::from(2);
    }
    let is_chosen = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
    let mut fell = 0;
    for check in CHECKS.iter().filter(|check| is_chosen(check.name)) {
        let begun = Instant::now();
        let outcome = (check.run)(&attack);
        let (word, text) = match &outcome {
            Ok(measured) => ("held", measured),
            Err(reason) => ("FELL", reason),
        };
        fell += u32::from(outcome.is_err());
        println!("{word}  {:28} {:5.1} s  {text}", check.name, begun.elapsed().as_secs_f64());
    }
    if fell == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
