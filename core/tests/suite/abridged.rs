//! The list of the operations, where the reply region is too small for the whole list.

use crate::common::Pipe;
use rigline::engine::{Engine, Memory};
use rigline::exchange::LEAST_REPLY;
use rigline::serve::blocking::Server;
use rigline::{
    Call, Clock, Context, Extension, Failure, Instant, Manifest, Operation, Outcome, Outputs, Params, Schema,
};

#[derive(Params)]
#[allow(dead_code, reason = "the test reads its schema alone")]
struct Measure<'a> {
    /// The channel: "3V3", or what is wired to \ and to {"description":"x"}
    #[param(one_of = &["3V3", "AUX,"])]
    channel: &'a str,
    /// How many readings to average
    #[param(minimum = 1, maximum = 1000, default = 16)]
    samples: u32,
    /// A text about it
    description: Option<&'a str>,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "the test reads its schema alone")]
struct Measured {
    /// The mean, in volts
    volts: u32,
}

/// A schema in which `description` is a keyword, a name, a value and data, first and last.
const TRICKY: &str = r#"{"description":"first","type":"object","properties":{"a":{"description":"only"},"description":{"type":"string","enum":["description","b"],"description":"last \\"},"c":{"default":{"x":[{"y":1,"description":"data"}],"description":"data"},"description":"behind \"data\"","type":["object","null"]},"d":{"examples":[{"description":"data"}],"anyOf":[{"description":"gone","type":"null"},{"const":{"description":"data"},"description":"gone"}]},"default":{"description":"of an argument, which looks like data","type":"null"}},"required":["a"]}"#;
const TRICKY_ABRIDGED: &str = r#"{"type":"object","properties":{"a":{},"description":{"type":"string","enum":["description","b"]},"c":{"default":{"x":[{"y":1,"description":"data"}],"description":"data"},"type":["object","null"]},"d":{"examples":[{"description":"data"}],"anyOf":[{"type":"null"},{"const":{"description":"data"}}]},"default":{"description":"of an argument, which looks like data","type":"null"}},"required":["a"]}"#;
const MEASURE_ABRIDGED: &str = r#"{"type":"object","properties":{"channel":{"type":"string","enum":["3V3","AUX,"]},"samples":{"type":"integer","minimum":1,"maximum":1000,"default":16},"description":{"type":["string","null"]}},"required":["channel"]}"#;

const MANIFEST: Manifest =
    Manifest::new("bench", "1.2.3").description("A bench that stays").safe_state(true).operations(&[
        Operation::new("measure", Schema::of::<Measure<'_>>())
            .description("Measures a channel, which is described at length here")
            .outputs(Schema::of_outputs::<Measured>()),
        Operation::new("tricky", Schema::text(TRICKY)).description("Has a schema that is hard to abridge"),
        Operation::new("limits", Schema::OBJECT),
    ]);

struct Bench;

impl Extension for Bench {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        let (request, reply) = cx.limits();
        cx.done(format_args!("{request} {reply}"))
    }
}

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// The reply to a line in a region of this size.
fn ask(line: &str, size: usize) -> String {
    let (mut request, mut reply) = ([0; 300], vec![0; size]);
    let mut engine = Engine::new(&MANIFEST, Memory { request: &mut request, reply: &mut reply }).unwrap();
    let mut pipe = Pipe::new(line.as_bytes());
    Server::new(&mut Bench, &mut engine, &NoTime).serve(&mut pipe).unwrap();
    let reply = String::from_utf8(pipe.output).unwrap();
    assert!(reply.len() <= size && reply.ends_with('\n'), "{reply}");
    reply.trim_end().to_owned()
}

/// In each size of the region, the reply is the whole one, or the abridged one where that does not fit, or an error that names the
/// size of the whole.
fn every_size(line: &str, whole: impl Fn(usize) -> String, abridged: impl Fn(usize) -> String, error: &str) {
    let (mut wholes, mut abridgeds, mut errors) = (0, 0, 0);
    for size in LEAST_REPLY..3000 {
        let reply = ask(line, size);
        if whole(size - 1).len() < size {
            wholes += 1;
            assert_eq!(reply, whole(size - 1));
        } else if abridged(size - 1).len() < size {
            abridgeds += 1;
            assert_eq!(reply, abridged(size - 1));
        } else {
            errors += 1;
            assert!(reply.contains(error), "{reply}");
            assert!(reply.contains(&format!("it needs {} bytes", whole(size - 1).len())), "{reply}");
        }
    }
    assert!(wholes > 100 && abridgeds > 100 && errors > 100, "{wholes} {abridgeds} {errors}");
}

#[test]
fn a_manifest_that_does_not_fit_is_sent_without_descriptions() {
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let reply = |operations: &str, mark: &str, limit: usize| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"name":"bench","version":"1.2.3","protocolVersion":"0.0.1","description":"A bench that stays","operations":{{{operations}}},"safeState":true{mark},"limits":{{"request":299,"reply":{limit}}}}}}}"#
        )
    };
    let [measure, tricky, limits] = MANIFEST.operations else { unreachable!() };
    let whole = format!(
        r#""measure":{{"description":"{}","params":{}}},"tricky":{{"description":"{}","params":{}}},"limits":{{"params":{}}}"#,
        measure.description, measure.params, tricky.description, tricky.params, limits.params
    );
    let abridged = format!(
        r#""measure":{{"params":{MEASURE_ABRIDGED}}},"tricky":{{"params":{TRICKY_ABRIDGED}}},"limits":{{"params":{}}}"#,
        limits.params
    );
    every_size(
        line,
        |limit| reply(&whole, "", limit),
        |limit| reply(&abridged, r#","abridged":true"#, limit),
        r#""code":-32603"#,
    );
}

#[test]
fn amplifiers_description_that_does_not_fit_is_sent_without_descriptions_and_outputs() {
    let reply = |inputs: [&str; 2], outputs: &str, mark: &str| {
        let [measure, tricky] = inputs;
        format!(
            r#"{{"name":"bench","version":"1.2.3","kind":"tool","capabilities":["measure","tricky","limits"],"inputs":{{"measure":{measure},"tricky":{tricky},"limits":{}}},"outputs":{{{outputs}}}{mark}}}"#,
            Schema::OBJECT
        )
    };
    let [measure, tricky, _] = MANIFEST.operations else { unreachable!() };
    let whole = reply(
        [&measure.params.to_string(), &tricky.params.to_string()],
        &format!(r#""measure":{}"#, Schema::of_outputs::<Measured>()),
        "",
    );
    let abridged = reply([MEASURE_ABRIDGED, TRICKY_ABRIDGED], "", r#","abridged":true"#);
    every_size(r#"{"op":"describe"}"#, |_| whole.clone(), |_| abridged.clone(), r#""code":"oom""#);
}

/// The same in a batch, whose replies share the region.
#[test]
fn a_manifest_in_a_batch_is_abridged_where_the_other_replies_leave_too_little_room() {
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"0.0.1"}}"#;
    let size = ask(initialize, 3000).len() + 20;
    let alone = ask(initialize, size);
    let batch = ask(&format!(r#"[{initialize},{{"jsonrpc":"2.0","id":2,"method":"shutdown"}}]"#), size);
    assert!(!alone.contains("abridged") && batch.contains(r#""abridged":true"#), "{alone}\n{batch}");
    assert!(batch.ends_with(r#",{"jsonrpc":"2.0","id":2,"result":{}}]"#), "{batch}");
}

#[test]
fn a_handler_knows_what_its_wire_carries() {
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"limits","args":{},"context":{}}}"#;
    for size in [LEAST_REPLY, 1000, 4096] {
        let reply = ask(call, size);
        assert!(reply.contains(&format!(r#""message":"299 {}""#, size - 1)), "{reply}");
    }
}
