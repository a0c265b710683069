//! The attacks that are short enough for each run of the tests. `cargo run -p rigline-tests --bin attack` has all of them.

use rigline_tests::attack::{Attack, CHECKS};
use rigline_tests::session::rigline;

fn holds(name: &str) {
    let check = CHECKS.iter().find(|check| check.name == name).expect("there is a check of that name");
    let attack = Attack { command: rigline(), peers: env!("CARGO_BIN_EXE_attack").into(), operations: 2000 };
    match (check.run)(&attack) {
        Ok(measured) => println!("{name}: {measured}"),
        Err(fell) => panic!("{}: {fell}", check.holds),
    }
}

/// A flood's peer takes a whole core, so that they run one after the other.
#[test]
fn memory_stays_bounded_when_a_peer_writes_without_end() {
    holds("flood/logs-between-calls");
    holds("flood/event-stream");
    holds("flood/unread");
    holds("flood/lab");
}

#[test]
fn requests_that_are_sent_at_once_are_all_answered() {
    holds("flood/pipelined");
}

#[test]
fn large_lines_cost_one_error_each() {
    holds("lines/large");
}

#[test]
fn large_requests_over_http_are_refused() {
    holds("http/large");
}

#[test]
fn foreign_hosts_and_origins_are_refused() {
    holds("http/foreign");
}

#[test]
fn half_open_connections_keep_nobody_waiting() {
    holds("http/half-open");
}

#[test]
fn sessions_of_mcp_are_bounded() {
    holds("http/sessions");
}

#[test]
fn websockets_are_bounded() {
    holds("http/websocket");
}

#[test]
fn a_stopped_extension_is_given_up_and_used_again() {
    holds("process/stopped");
}

#[test]
fn what_an_extension_has_started_ends_with_it() {
    holds("process/descendants");
}

#[test]
fn steps_of_the_clock_change_no_wait() {
    holds("process/clock");
}

#[test]
fn time_grows_with_the_number_of_operations() {
    holds("growth/operations");
}

#[test]
fn time_grows_with_the_length_of_a_transcript() {
    holds("growth/transcript");
}

/// ARCHITECTURE.md lists whatever waits for another, with the name of what floods it.
#[test]
fn each_queue_of_the_list_is_flooded_by_something_that_is_there() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, queues) = text.split_once("\n## Queues\n").unwrap();
    let (queues, _) = queues.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = queues
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| queue"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let [queue, _, entries, bytes, _, checks] = row[..] else { panic!("{row:?}") };
        assert!(entries != "–" || bytes != "–", "{queue} has no bound");
        for name in checks.split(", ").map(|name| name.trim_matches('`')) {
            if name.contains('/') {
                assert!(CHECKS.iter().any(|check| check.name == name), "{queue}: there is no attack {name}");
                continue;
            }
            let words = format!("(fn|def) {name}\\(");
            let mut git = std::process::Command::new("git");
            git.current_dir(root).args(["grep", "-q", "--untracked", "-E", &words]);
            let is_file = root.join("std-adapter/web/tests").join(name).is_file();
            assert!(is_file || git.status().unwrap().success(), "{queue}: there is no test {name}");
        }
    }
}
