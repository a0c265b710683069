//! Public errors.

use core::error::Error;
use core::fmt::Debug;

use rigline::EventError;
use rigline::NotSemantic;
use rigline::client::{Malformed, NonProtocolKind, RpcError, StartError};
use rigline::engine::TooSmall;
use rigline::frame::TooLong;
use rigline::json::DecimalError;
use rigline::json::NumberError;
use rigline::json::RawError;
use rigline::json::ser::SerError;
use rigline::json::write::TooLarge;
use rigline::json::{
    Json, RawJson,
    check::SyntaxError,
    de::{self, DecodeError},
};
use rigline::protocol::{Code, Refusal, waza};
use rigline::serve::ServeError;
use rigline::{ConvertDurationError, ParseDurationError};

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
