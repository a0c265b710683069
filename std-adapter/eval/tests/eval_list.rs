//! How long `eval.list` takes, against parsing the same files with the YAML crate alone. Part of `.ci/long`:
//! `cargo test --release -p rigline-eval --test eval_list -- --ignored --nocapture`.

use rigline_test_support as _;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

const FILES: usize = 2000;
const ROUNDS: usize = 15;

/// Evals as people write them: some members, a list of metrics, graders, tasks.
fn evals() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..FILES {
        let mut text = format!(
            "# Evals of skill {number}\nname: skill-{number}-eval\ndescription: >\n  Tells whether skill {number} does what it should,\n  and how well.\n\
             skill: skill-{number}\nversion: \"1.{}\"\nconfig:\n  executor: mock\n  trials_per_task: 3\n  timeout_seconds: 300\n  parallel: false\n\
             metrics:\n  - name: task_completion\n    weight: 0.4\n    threshold: 0.8\n    description: Did it complete?\n\
             \x20 - name: behavior_quality\n    weight: 0.3\n    threshold: 0.7\ngraders:\n  - type: regex\n    name: output\n    config:\n      must_match: [\"deployed to .+\"]\ntasks:\n",
            number % 10
        );
        for task in 0..8 {
            writeln!(text, "  - \"tasks/task-{task}.yaml\"").unwrap();
        }
        let path = folder.path().join(format!("group-{}/skill-{number}/eval.yaml", number % 40));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn files(folder: &Path, files_found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, files_found) } else { files_found.push(path) }
    }
}

/// The shortest times of both, which take turns, so that what else the machine does falls on both.
fn fastest(mut one: impl FnMut(), mut other: impl FnMut()) -> (Duration, Duration) {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).fold((Duration::MAX, Duration::MAX), |(a, b), _| (a.min(time(&mut one)), b.min(time(&mut other))))
}

#[test]
#[ignore = "a benchmark"]
fn listing_takes_at_most_half_as_long_again_as_parsing() {
    let folder = evals();
    let mut paths = Vec::new();
    files(folder.path(), &mut paths);
    assert_eq!(paths.len(), FILES);
    let parse = || {
        for path in &paths {
            let value: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
            assert!(value["name"].is_string());
        }
    };
    let list = || {
        let listing = rigline_eval::list::list(folder.path());
        assert_eq!((listing.evals.len(), listing.errors.len()), (FILES, 0));
    };
    let (parsing, listing) = fastest(parse, list);
    let ratio = listing.as_secs_f64() / parsing.as_secs_f64();
    println!("{FILES} evals: parsing {parsing:.0?}, listing {listing:.0?}, ratio {ratio:.2}");
    // As a row of tests/bench/README.md.
    println!(
        "| `eval list` of {FILES} files, beside the YAML crate alone, wall clock | serde-saphyr: {:.1} ms | rigline: {:.1} ms | {ratio:.2}x | at most 1.5x | at most 1.5x |",
        parsing.as_secs_f64() * 1e3,
        listing.as_secs_f64() * 1e3,
    );
    assert!(ratio <= 1.5, "{ratio}");
}
