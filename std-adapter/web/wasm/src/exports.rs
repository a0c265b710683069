//! The functions that JavaScript calls.
#![allow(unsafe_code, reason = "without `no_mangle` a function has no name outside; it is the only unsafe code here")]

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rigline::frame::LineEnds;
use rigline::json::check::check;

use crate::client::WasmSession;
use crate::decoder::{self, Decoder, FaultKind};

/// The state of an instance.
struct Instance {
    /// The bytes that JavaScript has written.
    buffer: Vec<u8>,
    decoder: Decoder,
    session: WasmSession,
    /// A text for JavaScript.
    text: String,
}

impl Instance {
    /// Not inlined: every function that JavaScript calls would have a copy.
    #[cold]
    #[inline(never)]
    fn new() -> Self {
        Self {
            buffer: Vec::new(),
            decoder: Decoder::new(decoder::LIMIT, LineEnds::Lf),
            session: WasmSession::new(0),
            text: String::new(),
        }
    }
}

static INSTANCE: Mutex<Option<Instance>> = Mutex::new(None);

/// The instance. WebAssembly without threads never waits here.
struct Held(MutexGuard<'static, Option<Instance>>);

impl Held {
    fn with<T>(act: impl FnOnce(&mut Instance) -> T) -> T {
        let mut held = Self(INSTANCE.lock().unwrap_or_else(PoisonError::into_inner));
        act(held.0.get_or_insert_with(Instance::new))
    }
}

/// Room for `size` bytes, and where it is. What stood there is gone.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn buffer(size: usize) -> *mut u8 {
    Held::with(|instance| {
        instance.buffer.resize(size, 0);
        instance.buffer.as_mut_ptr()
    })
}

/// Begins a new stream with lines of up to `limit` bytes. A lone CR ends a line if `serial` is not 0.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn reset(limit: usize, serial: u32) {
    let ends = if serial == 0 { LineEnds::Lf } else { LineEnds::Serial };
    Held::with(|instance| instance.decoder = Decoder::new(limit, ends));
}

/// Decodes what stands in the buffer; returns the number of [records].
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn feed() -> usize {
    Held::with(|Instance { buffer, decoder, .. }| {
        decoder.feed(buffer);
        decoder.count()
    })
}

/// The input has ended; returns the number of [records].
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn finish() -> usize {
    Held::with(|Instance { decoder, .. }| {
        decoder.finish();
        decoder.count()
    })
}

/// Where the records of the last call are: [`FIELDS`](crate::decoder::FIELDS) words each.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn records() -> *const u32 {
    Held::with(|instance| instance.decoder.records().as_ptr())
}

/// Where those lines are that do not stand in the buffer as a whole.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn spilled() -> *const u8 {
    Held::with(|instance| instance.decoder.spilled().as_ptr())
}

/// Checks the JSON text in the buffer: the number of the fault's kind in the upper half, 0 if there is none, and the place in the lower.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn validate() -> u64 {
    Held::with(|instance| match check(&instance.buffer) {
        Ok(()) => 0,
        Err(error) => u64::from(FaultKind::of(error.kind) as u32) << 32 | error.offset as u64,
    })
}

/// Makes [`text`] the name of a fault's kind, a newline, and the fault in words; returns its length. `length` and `limit` are those of a
/// line that is too long.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn fault(kind: u32, length: usize, limit: usize) -> usize {
    Held::with(|Instance { text, .. }| {
        text.clear();
        if let Some(kind) = FaultKind::from_number(kind) {
            let _ = write!(text, "{}\n{}", kind.name(), kind.reason(length, limit));
        }
        text.len()
    })
}

/// Where the text for JavaScript is.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn text() -> *const u8 {
    Held::with(|instance| instance.text.as_ptr())
}

/// Begins a client's session, whose ids begin behind `base`.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn client(base: u32) {
    Held::with(|instance| instance.session = WasmSession::new(base));
}

/// Makes [`text`] the line of a request: in the buffer stand its method, of `method` bytes, and its parameters behind it. Gives its id; 0
/// when too many requests are out, or the buffer holds something else than that.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn request(method: usize) -> u32 {
    Held::with(|Instance { buffer, session, text, .. }| session.request(buffer, method, text).unwrap_or_default())
}

/// Says what the line in the buffer is, which may be several messages; returns the number of [`incoming`] records.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn receive() -> usize {
    Held::with(|Instance { buffer, session, text, .. }| session.receive(buffer, text))
}

/// Where the records of the last [`receive`] are: [`FIELDS`](crate::client::FIELDS) words each.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn incoming() -> *const u32 {
    Held::with(|instance| instance.session.records().as_ptr())
}

/// How many bytes stand at [`spilled`].
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn spilled_length() -> usize {
    Held::with(|instance| instance.decoder.spilled().len())
}

/// How many bytes [`text`] has.
#[cfg_attr(target_arch = "wasm32", unsafe(no_mangle))]
pub extern "C" fn text_length() -> usize {
    Held::with(|instance| instance.text.len())
}
