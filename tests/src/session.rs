//! Sessions with the rig, and what of their lines may differ between a desktop and a board.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The gevals text's example session, adapted to the rig, and what may go wrong in one. A busy computer does not change its
/// lines: the board under test is up before it is waited for.
pub const SESSION: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":true},"context":{"workdir":"/tasks/boot","phase":"setup"}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"execute","params":{"operation":"measure","args":{"channel":"3V3"},"context":{"workdir":"/tasks/boot","phase":"verify","agent":{"prompt":"Power the board","output":"Done"}}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"execute","params":{"operation":"wait-for","args":{"channel":"5V0","min":4.75,"max":5.25,"within_ms":600},"context":{"workdir":"/tasks/boot","phase":"verify","timeout":"5m"}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"execute","params":{"operation":"wait-pin","args":{"pin":"LED","high":true},"context":{"workdir":"/tasks/boot","phase":"verify"}}}"#,
    r#"{"jsonrpc":"2.0","id":6,"method":"execute","params":{"operation":"wait-pin","args":{"pin":"LED2","high":true,"within_ms":100},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":"\u00e9\"","method":"execute","params":{"operation":"gpio-write","args":{"pin":"GP14","high":true},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":7,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP15"},"context":{"phase":""}}}"#,
    r#"{"jsonrpc":"2.0","id":8,"method":"execute","params":{"operation":"press","args":{"button":"USER","ms":30},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":9,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"LED2"},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":10,"method":"execute","params":{"operation":"power","args":{"rail":"1V8","on":true},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":11,"method":"execute","params":{"operation":"power","args":{"rail":5},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":12,"method":"execute","params":{"operation":"explode","args":{},"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":13,"method":"execute","params":{"operation":"wait-for","args":{"channel":"AUX","min":1,"max":2},"context":{"timeout":"50ms"}}}"#,
    r#"{"jsonrpc":"2.0","id":14,"method":"execute","params":{"operation":"self-test","args":null,"context":{}}}"#,
    r#"{"jsonrpc":"2.0","id":15,"method":"execute","params":{"operation":"identify","args":null,"context":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":16,"method":"execute","params":{"operation":"gpio-read","args":{"pin":"GP14"},"context":{}}},{"jsonrpc":"2.0","id":17,"method":"nope"}]"#,
    r#"{"jsonrpc":"2.0","id":18,"method":"execute","params":{"operation":"power","args":{"rail":"3V3","on":false},"context":{"phase":"cleanup"}}}"#,
    r#"{"jsonrpc":"2.0","id":19,"method":"shutdown","params":{}}"#,
];

/// The answers of `rigline rig`, the rig on a simulated board, to these lines. Each line is sent when the one before it is answered: a time
/// limit counts from a line's arrival.
///
/// # Panics
/// When it cannot be run, or fails.
pub fn on_the_desktop(lines: &[&str]) -> Vec<String> {
    let mut rig =
        Command::new(rigline()).arg("rig").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = rig.stdin.take().expect("it has a stdin");
    let mut output = BufReader::new(rig.stdout.take().expect("it has a stdout")).lines();
    let mut answers = Vec::new();
    for line in lines {
        writeln!(input, "{line}").expect("it reads");
        loop {
            let answer = output.next().expect("each line is answered").expect("JSON is UTF-8");
            let is_log = answer.contains(r#""method":"log""#);
            answers.push(answer);
            if !is_log {
                break;
            }
        }
    }
    drop(input);
    answers.extend(output.map(|line| line.expect("JSON is UTF-8")));
    let status = rig.wait().expect("it ends");
    assert!(status.success(), "{status}");
    answers
}

/// The command `rigline` of this build, built if it is not there yet.
///
/// # Panics
/// When it cannot be built.
pub fn rigline() -> PathBuf {
    if let Some(program) = std::env::var_os("RIGLINE_BINARY") {
        return std::path::absolute(program).expect("this folder is there");
    }
    let test = std::env::current_exe().expect("a test has a path");
    let program = test.ancestors().nth(2).expect("it is in target/debug/deps").join("rigline");
    if !program.is_file() {
        let built = Command::new(env!("CARGO")).args(["build", "-p", "rigline-cli", "--bin", "rigline"]).status();
        assert!(built.is_ok_and(|status| status.success()) && program.is_file(), "no {}", program.display());
    }
    program
}

/// The lines without what may differ, and byte for byte as they are but for that: `~` in place of measured values, times
/// and limits, `@` in place of who the board is; the logs left out whose number depends on how long a wait takes.
pub fn comparable(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| mask(line)).filter(|line| !is_wait_going_on(line)).collect()
}

/// The operations, and the outputs of others, that a rig has only with features that a board without these wires leaves out.
pub const OF_FEATURES: &[&str] = &[
    "measure-over-time",
    "i2c-scan",
    "i2c-transfer",
    "count-pulses",
    "pwm",
    "spi-transfer",
    "i2c",
    "spi",
    "counters",
    "pwm_on",
    "uart-write",
    "uart-expect",
    "uart-read",
    "uart-break",
];

/// A line without the members of these names, wherever they are.
pub fn without(line: &str, names: &[&str]) -> String {
    let mut line = line.to_owned();
    for name in names {
        let key = format!(r#""{name}":"#);
        while let Some(start) = line.find(&key) {
            let value = start + key.len();
            let end = value + value_length(&line[value..]);
            // With the comma behind it, or, of the last member, the one before it.
            match line[end..].strip_prefix(',') {
                Some(_) => line.replace_range(start..=end, ""),
                None => line.replace_range(line[..start].trim_end_matches(',').len()..end, ""),
            }
        }
    }
    line
}

/// The length of the JSON value that a text begins with.
fn value_length(text: &str) -> usize {
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for (at, char) in text.char_indices() {
        if in_text {
            in_text = escaped || char != '"';
            escaped = !escaped && char == '\\';
            if !in_text && depth == 0 {
                return at + 1;
            }
            continue;
        }
        match char {
            '"' => in_text = true,
            '{' | '[' => depth += 1,
            '}' | ']' if depth <= 1 => return if depth == 1 { at + 1 } else { at },
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// The text before a measured value, a time or a limit: in outputs and data, and in texts.
const BEFORE_NUMBER: &[&str] = &[
    r#""volts":""#,
    r#""celsius":""#,
    r#""min":""#,
    r#""max":""#,
    r#""value":"#,
    r#""waited_ms":""#,
    r#""waited_ms":"#,
    r#""uptime_ms":""#,
    r#""limits":{"request":"#,
    r#""limits":{"request":~,"reply":"#,
    r#""request_limit":""#,
    r#""reply_limit":""#,
    " is at ",
    " after ",
    ": passed, ",
    ": failed, ",
];

/// The text before a word of the board's identity, which ends at a quote.
const BEFORE_IDENTITY: &[&str] = &[r#""board":""#, r#""git":""#, " on board "];

/// Only a chip has been reset, and tells why.
const BEFORE_RESET: &str = r#","reset":""#;

fn mask(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(char) = rest.chars().next() {
        let after = |marks: &[&str]| marks.iter().any(|mark| masked.ends_with(mark));
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-').unwrap_or(rest.len());
        let word = rest.find('"').unwrap_or(rest.len());
        if number > 0 && after(BEFORE_NUMBER) {
            masked.push('~');
            rest = &rest[number..];
        } else if after(BEFORE_IDENTITY) {
            masked.push('@');
            rest = &rest[word..];
        } else if let Some(reset) = rest.strip_prefix(BEFORE_RESET) {
            rest = reset.split_once('"').map_or("", |(_, rest)| rest);
        } else {
            masked.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    masked
}

/// Whether a masked line is one that a wait logs every so often.
fn is_wait_going_on(line: &str) -> bool {
    line.contains(r#""level":"debug""#)
        && [" is at ~ V after ~ ms", " is high after ~ ms", " is low after ~ ms"].iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::{mask, without};

    #[test]
    fn members_are_left_out_with_their_values_and_commas() {
        for (line, left) in [
            (r#"{"a":1,"pwm":{"x":[1,{"y":"}"}]},"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"pwm":"[\"GP8\",\"}\"]","b":2}"#, r#"{"b":2}"#),
            (r#"{"b":2,"pwm":[1,2]}"#, r#"{"b":2}"#),
            (r#"{"b":2,"pwm":3}"#, r#"{"b":2}"#),
            (r#"{"pwm":{}}"#, "{}"),
            (r#"{"c":{"pwm":1,"d":"pwm"}}"#, r#"{"c":{"d":"pwm"}}"#),
        ] {
            assert_eq!(without(line, &["pwm"]), left);
        }
    }

    #[test]
    fn nothing_is_masked_but_measured_values_limits_and_identity() {
        for (line, masked) in [
            (
                r#"{"jsonrpc":"2.0","id":3,"result":{"success":true,"outputs":{"volts":"3.301","min":"3.299","max":"3.303","samples":"16"},"message":"3V3 is at 3.301 V"}}"#,
                r#"{"jsonrpc":"2.0","id":3,"result":{"success":true,"outputs":{"volts":"~","min":"~","max":"~","samples":"16"},"message":"3V3 is at ~ V"}}"#,
            ),
            (
                r#"{"message":"waiting for 5V0 to be from 4.75 to 5.25 V: it is at -0.001 V"}"#,
                r#"{"message":"waiting for 5V0 to be from 4.75 to 5.25 V: it is at ~ V"}"#,
            ),
            (r#"{"limits":{"request":4095,"reply":4096}}"#, r#"{"limits":{"request":~,"reply":~}}"#),
            (r#"{"message":"3V3 on: passed, 3.300 V","n":"1.5"}"#, r#"{"message":"3V3 on: passed, ~ V","n":"1.5"}"#),
            (
                r#"{"outputs":{"firmware":"0.1.0","git":"cfec4a8d","board":"E66","uptime_ms":"17","request_limit":"4095","buttons":["RESET"],"reset":"power on"},"message":"rig 0.1.0 on board E66"}"#,
                r#"{"outputs":{"firmware":"0.1.0","git":"@","board":"@","uptime_ms":"~","request_limit":"~","buttons":["RESET"]},"message":"rig 0.1.0 on board @"}"#,
            ),
        ] {
            assert_eq!(mask(line), masked);
        }
    }
}
