//! Public errors.

use core::error::Error;
use core::fmt::Debug;

use rigline::EventError;
use rigline::NotSemantic;
use rigline::client::{Malformed, MalformedKind, NonProtocolKind, RpcError, StartError, Unquoted};
use rigline::engine::{Engine, Memory, Step, TooSmall};
use rigline::exchange::Served;
use rigline::frame::TooLong;
use rigline::json::DecimalError;
use rigline::json::NumberError;
use rigline::json::RawError;
use rigline::json::ser::SerError;
use rigline::json::write::TooLarge;
use rigline::json::{
    Decimal, Json, RawJson,
    check::{SyntaxError, SyntaxErrorKind},
    de::{self, DecodeError},
};
use rigline::protocol::{self, Code, Refusal, waza};
use rigline::serve::{ServeError, blocking, whole};
use rigline::{Context, ConvertDurationError, LogSink, ParseDurationError};

use crate::common::{FakeClock, MANIFEST, Rig};

#[test]
fn every_public_error_is_an_error() {
    fn is_error<E: Error + Debug>() {}
    is_error::<ConvertDurationError>();
    is_error::<DecimalError>();
    is_error::<DecodeError>();
    is_error::<EventError>();
    is_error::<Malformed<'_>>();
    is_error::<NonProtocolKind>();
    is_error::<NotSemantic>();
    is_error::<NumberError>();
    is_error::<ParseDurationError>();
    is_error::<RawError>();
    is_error::<Refusal>();
    is_error::<RpcError<'_>>();
    is_error::<SerError>();
    is_error::<ServeError<()>>();
    is_error::<StartError>();
    is_error::<SyntaxError>();
    is_error::<TooLarge>();
    is_error::<TooLong>();
    is_error::<TooSmall>();
    is_error::<de::DecodeErrorKind>();
    is_error::<waza::Error<'_>>();
    is_error::<waza::Refusal>();
}

#[test]
fn errors_of_protocols_say_what_their_replies_say() {
    const REFUSAL: Refusal = Refusal::new(Code::Number(-32602), "args", "expected an object");
    assert_eq!(REFUSAL.to_string(), "args: expected an object");
    assert_eq!(Refusal::new(Code::Name(""), "", "no").to_string(), "no");
    let run = Json::parse(br#""r\u0031""#).unwrap().text().unwrap();
    let texts = |error: waza::Error<'_>| error.to_string();
    assert_eq!(texts(waza::Error::UnknownRun(run)), "runId: unknown run r1");
    assert_eq!(texts(waza::Error::RunFailed("busy")), "busy");
    assert_eq!(texts(waza::Error::Invalid { errors: RawJson::NULL }), "Validation failed");
    let refused = waza::request(run, Json::NULL).unwrap_err();
    assert_eq!((refused, refused.to_string().as_str()), (waza::Refusal::UnknownMethod, "Method not found"));
}

/// The sentences that users read, one by one: a text that is lost or exchanged is seen here.
#[test]
fn each_error_has_its_own_sentence() {
    let too_large = TooLarge { needed: 12, capacity: 10 };
    let syntax = SyntaxError { kind: SyntaxErrorKind::BadNumber, offset: 7 };
    let deep = SyntaxError { kind: SyntaxErrorKind::TooDeep { limit: 128 }, offset: 128 };
    let malformed = |fault, text| Malformed { id: None, fault, text };
    let decimal = "0.0001".parse::<Decimal<3>>().unwrap_err();
    let sentences: &[(&dyn Error, &str)] = &[
        (&too_large, "the text needs 12 bytes, and 10 fit"),
        (&syntax, "invalid number at byte 7"),
        (&deep, "nesting deeper than 128 at byte 128"),
        (&EventError::Syntax(syntax), "not JSON: invalid number at byte 7"),
        (&EventError::NotAnObject, "an event must be an object"),
        (&EventError::Missing { member: "event" }, "event: required, but missing"),
        (&EventError::WrongType { member: "ts", expected: "a string" }, "ts: expected a string"),
        (&StartError::TooManyPending, "too many requests wait for their replies"),
        (&StartError::TooLarge(too_large), "the text needs 12 bytes, and 10 fit"),
        (&NonProtocolKind::NotJson(syntax), "not JSON: invalid number at byte 7"),
        (&NonProtocolKind::NotAnObject, "JSON, but not an object"),
        (&NonProtocolKind::NotAMessage, "JSON, but not a JSON-RPC message"),
        (&malformed(MalformedKind::SeveralLines, b"{"), "multi-line JSON: a message must be on one line"),
        (&malformed(MalformedKind::Syntax(syntax), b"{\"a\": -NaN}"), "not JSON: invalid number at byte 7 (-NaN)"),
        (&malformed(MalformedKind::Syntax(syntax), b"{\"a\":  }"), "not JSON: invalid number at byte 7"),
        (&NotSemantic, "not a semantic version such as 1.2.0"),
        (&TooSmall::Request, "the request region is empty"),
        (&TooSmall::Protocols, "the list of protocols is empty"),
        (&TooSmall::Reply { size: 9 }, "a reply region of 9 bytes is below the least size of 560"),
        (&TooLong { limit: 10, dropped: 12 }, "a line of 12 bytes is over the limit of 10 bytes"),
        (&decimal, "the text is not a decimal number, or has too many digits"),
        (&NumberError::NotInteger, "the number is not an integer"),
        (&NumberError::OutOfRange, "the number is out of range"),
        (&RawError::NotUtf8, "the text is not UTF-8"),
        (&RawError::LineBreak, "the text has a line break"),
        (&SerError::TooLarge(too_large), "the text needs 12 bytes, and 10 fit"),
        (&SerError::NotFinite, "NaN and infinite numbers cannot be written as JSON"),
        (&SerError::KeyNotString, "a map's key is not a string"),
        (&SerError::Custom, "the value cannot be written"),
        (&ServeError::Read(5), "reading failed: 5"),
        (&ServeError::Write(6), "writing failed: 6"),
        (&ServeError::<u8>::WriteZero, "the transport accepted zero bytes"),
        (&waza::Refusal::Params { member: "path", fault: "expected a string" }, "path: expected a string"),
        (&waza::Error::PathNotAllowed("outside"), "outside"),
        (&waza::Error::Internal("broken"), "broken"),
        (&ConvertDurationError::Negative, "a negative duration cannot be converted"),
        (&ConvertDurationError::TooLong, "a duration is beyond 2562047h47m16.854775807s"),
        (&ParseDurationError::Empty, "a duration must not be empty"),
        (&ParseDurationError::UnknownUnit, "a duration has a unit other than ns, us, ms, s, m and h"),
    ];
    for (error, sentence) in sentences {
        assert_eq!(&error.to_string(), sentence, "{error:?}");
    }
    for kind in [SyntaxErrorKind::BadEscape, SyntaxErrorKind::Empty, SyntaxErrorKind::NotUtf8] {
        assert_eq!(kind.to_string(), kind.text());
    }
}

#[test]
fn a_value_is_shown_to_a_person_without_quotes_and_to_a_programmer_with_them() {
    for (text, plain, debug) in [
        ("null", "", "null"),
        (r#""a\u0042""#, "aB", r#""a\u0042""#),
        ("[1,2]", "[1,2]", "[1,2]"),
        ("\"\"", "", "\"\""),
    ] {
        let json = Json::parse(text.as_bytes()).unwrap();
        let unquoted = Unquoted(json);
        assert_eq!((unquoted.to_string().as_str(), format!("{unquoted:?}")), (plain, format!("{json:?}")), "{text}");
        assert_eq!(json.to_string(), text);
        assert!(format!("{json:?}").contains(debug), "{json:?}");
        assert_eq!(unquoted.is_empty(), plain.is_empty(), "{text}");
        assert_eq!(RawJson::from_checked_str(text).unwrap().to_string(), text);
    }
    let text = Json::parse(br#""a\u0042""#).unwrap().text().unwrap();
    assert_eq!((text.to_string().as_str(), format!("{text:?}").as_str()), ("aB", r#""a\u0042""#));
}

/// A log or a failed assertion of a program that uses the core shows at least this.
#[test]
fn what_cannot_show_its_parts_shows_its_name() {
    struct NoLogs;

    impl LogSink for NoLogs {
        fn room(&mut self) -> &mut [u8] {
            &mut []
        }

        fn commit(&mut self, _: usize) {}

        fn dropped(&mut self) {}
    }

    let named = |value: &dyn Debug, name: &str| {
        let text = format!("{value:?}");
        assert!(text.starts_with(name) && text.len() > name.len(), "{name}: {text}");
    };
    assert_eq!(format!("{:?}", protocol::GEVALS), "gevals");
    let served = Served::new(&MANIFEST, protocol::ALL, (9, 9)).unwrap();
    named(&served, "Served");
    let (mut request, mut reply) = ([0; 1024], [0; 1024]);
    let memory = Memory { request: &mut request, reply: &mut reply };
    let mut engine = Engine::new(&MANIFEST, memory).unwrap();
    named(&engine, "Engine");
    let clock = std::rc::Rc::new(FakeClock::default());
    named(&whole::Runner::new(&*clock, &|_| {}, &mut []), "Runner");
    named(&blocking::Server::new(&mut Rig::new(&clock), &mut engine, &*clock), "Server");
    #[cfg(feature = "async")]
    named(&rigline::serve::asynch::Server::new(&mut Rig::new(&clock), &mut engine, &*clock), "Server");
    let line = br#"{"jsonrpc":"2.0","id":1,"method":"execute","params":{"operation":"say","args":{},"context":{}}}
"#;
    engine.space()[..line.len()].copy_from_slice(line);
    engine.commit(line.len());
    let Step::Run(run) = engine.step() else { panic!("no call") };
    named(&run.background, "Background");
    let mut logs = NoLogs;
    let context = Context::new(run.reply, &mut logs, &*clock, None);
    named(&context, "Context");
    named(&context.sleep(core::time::Duration::from_millis(1)), "Sleep");
}
