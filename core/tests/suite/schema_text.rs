//! Schemas as text, defaults of bounded strings, and two halves as one stream: small parts that
//! larger tests do not look at one by one.

use std::convert::Infallible;

use embedded_io::{ErrorType, Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::params::SchemaNode;
use rigline::serve::blocking::{Halves, Server};
use rigline::{Clock, Context, Extension as _, Failure, Instant, Outcome, Outputs, Params, Schema};

#[derive(Params)]
#[allow(dead_code, reason = "only its schema and its defaults are looked at")]
struct Bounded {
    /// A text that a board can hold.
    #[param(default = "idle")]
    mode: heapless::String<8>,
    /// How cold it is.
    #[param(default = -40)]
    degrees: i64,
}

#[derive(Outputs)]
#[allow(dead_code, reason = "the test reads its schema alone")]
struct Reading<T> {
    /// The value.
    value: T,
}

#[test]
fn the_length_of_a_schema_is_that_of_its_text() {
    for schema in [
        Schema::ANY,
        Schema::OBJECT,
        Schema::text(r#"{"type":"string"}"#),
        Schema::of::<Bounded>(),
        Schema::of_outputs::<Reading<u16>>(),
    ] {
        assert_eq!(schema.len(), schema.to_string().len(), "{schema}");
        assert!(schema.len() > 1);
    }
}

/// Rendered here, and not by the compiler.
#[test]
fn the_bounds_of_an_integer_are_written_digit_by_digit() {
    for (minimum, maximum, text) in [
        (0, 0, r#"{"type":"integer","minimum":0,"maximum":0}"#),
        (-1, 9, r#"{"type":"integer","minimum":-1,"maximum":9}"#),
        (-128, 10, r#"{"type":"integer","minimum":-128,"maximum":10}"#),
        (-9_007, 65_535, r#"{"type":"integer","minimum":-9007,"maximum":65535}"#),
        (
            i128::from(i64::MIN),
            u128::from(u64::MAX),
            r#"{"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615}"#,
        ),
    ] {
        let node = SchemaNode::Integer { minimum, maximum };
        assert_eq!(node.len(), text.len(), "{text}");
        assert_eq!(&node.render::<100>(0)[..text.len()], text.as_bytes());
    }
}

struct Bench;

#[rigline::extension(name = "bench", version = "1.0.0", description = "Tells its arguments")]
impl Bench {
    /// Tell the arguments.
    #[operation]
    async fn tell(&mut self, args: Bounded, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.done(format_args!("{} at {}", args.mode, args.degrees))
    }
}

struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> Instant {
        Instant::default()
    }
}

/// Takes what is written, a few bytes at a time.
#[derive(Default)]
struct Kept(Vec<u8>, usize);

impl ErrorType for Kept {
    type Error = Infallible;
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let count = bytes.len().min(7);
        self.0.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        self.1 += 1;
        Ok(())
    }
}

#[test]
fn a_text_in_bounded_memory_has_its_default() {
    for (args, told) in
        [("{}", "idle at -40"), (r#"{"mode":"busy"}"#, "busy at -40"), (r#"{"degrees":3}"#, "idle at 3")]
    {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"execute","params":{{"operation":"tell","args":{args},"context":{{}}}}}}"#
        );
        let (mut request, mut reply) = ([0; 512], [0; 1024]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(Bench.manifest(), memory).unwrap();
        let mut halves = Halves { reader: line.as_bytes(), writer: Kept::default() };
        Server::new(&mut Bench, &mut engine, &NoTime).serve(&mut halves).unwrap();
        let reply = String::from_utf8(halves.writer.0).unwrap();
        assert!(reply.contains(&format!(r#""message":"{told}""#)), "{args}: {reply}");
        assert_eq!(halves.writer.1, 1, "flushed once a line");
    }
}

#[test]
fn two_halves_read_and_write_what_each_of_them_does() {
    let mut halves = Halves { reader: &b"0123456789"[..], writer: Kept::default() };
    let mut buffer = [0; 4];
    for wanted in [&b"0123"[..], b"4567", b"89", b""] {
        let count = halves.read(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], wanted);
    }
    assert_eq!(halves.write(b"abcdefghij").unwrap(), 7);
    halves.flush().unwrap();
    assert_eq!((halves.writer.0, halves.writer.1), (b"abcdefg".to_vec(), 1));
}

#[derive(Params)]
#[allow(dead_code, reason = "the test reads its schema alone")]
struct Scaled {
    /// A count.
    #[param(maximum = 1.5e12)]
    count: u64,
    /// A depth.
    #[param(minimum = -12e+10, maximum = 2500e-2)]
    depth: i64,
}

#[test]
fn bounds_with_an_exponent_are_the_numbers_that_they_say() {
    let schema: serde_json::Value = serde_json::from_str(&Schema::of::<Scaled>().to_string()).unwrap();
    let properties = &schema["properties"];
    let decode = |text: &str| {
        let mut text = text.as_bytes().to_vec();
        rigline::json::de::from_checked::<Scaled>(&mut text).map(|scaled| (scaled.count, scaled.depth)).ok()
    };
    assert_eq!(properties["count"]["maximum"].as_f64(), Some(1.5e12), "{schema}");
    assert_eq!(properties["depth"]["minimum"].as_f64(), Some(-1.2e11), "{schema}");
    assert_eq!(properties["depth"]["maximum"].as_f64(), Some(25.0), "{schema}");
    for (text, expected) in [
        (r#"{"count":1500000000000,"depth":25}"#, Some((1_500_000_000_000, 25))),
        (r#"{"count":1500000000001,"depth":25}"#, None),
        (r#"{"count":0,"depth":26}"#, None),
        (r#"{"count":0,"depth":-120000000000}"#, Some((0, -120_000_000_000))),
        (r#"{"count":0,"depth":-120000000001}"#, None),
    ] {
        assert_eq!(decode(text), expected, "{text}");
    }
}

/// The description makes the lengths of the schemas differ in many bits, and has characters that a piece may cut.
#[derive(Params)]
#[allow(dead_code, reason = "the test reads its schema alone")]
struct Wide<T> {
    /// é€😀 é€😀é€😀 é€😀é€😀é€😀 é€😀é€😀é€😀é€😀 é€😀é€😀é€😀é€😀é€😀 é€😀é€😀é€😀é€😀é€😀é€😀
    value: T,
}

/// The compiler cuts the text of a generic type's schema into pieces.
#[test]
fn a_generic_types_schema_is_the_text_of_its_node() {
    let mut lengths = Vec::new();
    macro_rules! assert_whole {
        ($($type:ty)*) => {$(
            let schema = Schema::of::<$type>();
            let text: [u8; 4096] = <$type as Params>::SCHEMA.render(0);
            let text = std::str::from_utf8(&text).unwrap().trim_end_matches('\0');
            assert_eq!(schema.to_string(), text);
            assert_eq!(schema.len(), text.len());
            let mut memory = [0; 4096];
            let mut out = rigline::json::write::Writer::new(&mut memory);
            schema.write(&mut out);
            assert_eq!(out.as_written(), text.as_bytes());
            lengths.push(text.len());
        )*};
    }
    assert_whole! {
        Wide<bool> Wide<char> Wide<u8> Wide<i8> Wide<u16> Wide<i16> Wide<u32> Wide<u64> Wide<i64> Wide<u128> Wide<i128> Wide<f32> Wide<f64>
        Wide<&str> Wide<Option<bool>> Wide<[u8; 3]> Wide<[u8; 12]> Wide<Wide<bool>> Wide<Wide<Wide<u8>>> Wide<Wide<Wide<Wide<i16>>>>
        Wide<rigline::GoDuration> Wide<heapless::Vec<bool, 1>> Wide<heapless::String<7>> Wide<heapless::String<70>> Wide<heapless::String<700>>
    }
    for bit in 0..11 {
        let lengths = lengths.iter().filter(|length| **length >> bit & 1 == 1);
        assert!((1..25).contains(&lengths.count()), "bit {bit} is set in some lengths, and not in all");
    }
}
