//! The async world: transports that are ready when chance has it, and an executor that polls only
//! what was woken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use embedded_io::{ErrorKind, ErrorType};
use embedded_io_async::{Read, Write};
use rigline::engine::{Engine, Memory};
use rigline::serve::{End, ServeError, asynch};
use rigline::{Clock, Instant, Manifest};

use super::{FakeClock, MANIFEST, MS, PLAIN, Random, Rig, Setup};

/// The events of a reader, in order; at the end of it, the end of input.
#[derive(Debug, Clone)]
pub enum In {
    Bytes(Vec<u8>),
    /// Nothing before this many milliseconds.
    At(u64),
    Fail,
    /// Nothing any more.
    Silence,
}

pub fn line(text: impl AsRef<[u8]>) -> In {
    In::Bytes([text.as_ref(), b"\n"].concat())
}

/// A wire between two that are polled by hand: a read waits until there is something, and nobody is
/// woken for it.
#[derive(Debug, Clone, Default)]
pub struct Wire(pub Rc<RefCell<VecDeque<u8>>>);

impl ErrorType for Wire {
    type Error = Infallible;
}

impl Read for Wire {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, Infallible> {
        poll_fn(|_| {
            let mut bytes = self.0.borrow_mut();
            let count = buf.len().min(bytes.len());
            for (place, byte) in buf.iter_mut().zip(bytes.drain(..count)) {
                *place = byte;
            }
            if count == 0 { Poll::Pending } else { Poll::Ready(Ok(count)) }
        })
        .await
    }
}

impl Write for Wire {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, Infallible> {
        self.0.borrow_mut().extend(buf);
        Ok(buf.len())
    }

    async fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// State that all waiting tasks share.
#[derive(Debug)]
struct World {
    clock: Rc<FakeClock>,
    parked: RefCell<Vec<Waker>>,
    chance: Option<RefCell<(Random, usize)>>,
}

impl World {
    /// Whether what is asked for must be waited for first.
    fn is_pending(&self, waker: &Waker) -> bool {
        let pending = self.chance.as_ref().is_some_and(|chance| chance.borrow_mut().0.below(3) == 0);
        if pending {
            self.parked.borrow_mut().push(waker.clone());
        }
        pending
    }

    fn cut(&self, most: usize) -> usize {
        self.chance.as_ref().map_or(most, |chance| {
            let (random, longest) = &mut *chance.borrow_mut();
            most.min(random.below(*longest) + 1)
        })
    }

    /// Polls `future` when it was woken, and only then. When nothing is awake, an event happens;
    /// then time goes on.
    fn run<F: Future>(&self, future: F) -> F::Output {
        struct Flag(AtomicBool);
        impl Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(flag.clone());
        let mut future = pin!(future);
        loop {
            if flag.0.swap(false, Ordering::Relaxed) {
                if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return output;
                }
                continue;
            }
            let parked = std::mem::take(&mut *self.parked.borrow_mut());
            if parked.is_empty() {
                assert!(self.clock.ring(), "everybody waits for nothing");
            }
            parked.into_iter().for_each(Waker::wake);
        }
    }
}

struct Reader<'w> {
    world: &'w World,
    script: VecDeque<In>,
}

impl ErrorType for Reader<'_> {
    type Error = ErrorKind;
}

impl Read for Reader<'_> {
    async fn read(&mut self, buf: &mut [u8]) -> Result<usize, ErrorKind> {
        assert!(!buf.is_empty(), "a read of nothing looks like the end of input");
        poll_fn(|task| {
            loop {
                match self.script.front_mut() {
                    None => return Poll::Ready(Ok(0)),
                    Some(In::Silence) => return Poll::Pending,
                    Some(In::Fail) => return Poll::Ready(Err(ErrorKind::ConnectionReset)),
                    Some(In::At(at)) => {
                        let at = Instant::from_nanos(*at * MS);
                        if self.world.clock.now() < at {
                            self.world.clock.wake_at(at, task.waker());
                            return Poll::Pending;
                        }
                    }
                    Some(In::Bytes(bytes)) if bytes.is_empty() => {}
                    Some(In::Bytes(bytes)) => {
                        if self.world.is_pending(task.waker()) {
                            return Poll::Pending;
                        }
                        let count = self.world.cut(bytes.len().min(buf.len()));
                        buf[..count].copy_from_slice(&bytes[..count]);
                        bytes.drain(..count);
                        return Poll::Ready(Ok(count));
                    }
                }
                self.script.pop_front();
            }
        })
        .await
    }
}

struct Writer<'w> {
    world: &'w World,
    output: Vec<u8>,
    lines: Vec<(u64, String)>,
    fails: Option<usize>,
}

impl ErrorType for Writer<'_> {
    type Error = ErrorKind;
}

impl Write for Writer<'_> {
    async fn write(&mut self, buf: &[u8]) -> Result<usize, ErrorKind> {
        assert!(!buf.is_empty());
        poll_fn(|task| if self.world.is_pending(task.waker()) { Poll::Pending } else { Poll::Ready(()) }).await;
        let mut count = self.world.cut(buf.len());
        if let Some(after) = self.fails {
            count = count.min(after - self.output.len());
            if count == 0 {
                return Err(ErrorKind::BrokenPipe);
            }
        }
        for byte in &buf[..count] {
            self.output.push(*byte);
            if *byte == b'\n' {
                let start =
                    self.output[..self.output.len() - 1].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                let line = String::from_utf8(self.output[start..self.output.len() - 1].to_vec()).unwrap();
                self.lines.push((self.world.clock.now().as_nanos() / MS, line));
            }
        }
        Ok(count)
    }

    async fn flush(&mut self) -> Result<(), ErrorKind> {
        poll_fn(|task| if self.world.is_pending(task.waker()) { Poll::Pending } else { Poll::Ready(()) }).await;
        Ok(())
    }
}

#[derive(Debug)]
pub struct Outcome {
    pub output: Vec<u8>,
    /// Whole lines, and the millisecond in which each was out.
    pub lines: Vec<(u64, String)>,
    pub events: Vec<String>,
    pub result: Result<End, ServeError<ErrorKind>>,
}

/// A session over the async driver.
#[derive(Debug, Clone)]
pub struct Session {
    pub setup: Setup,
    pub script: Vec<In>,
    /// When to stop, in milliseconds.
    pub stop: Option<u64>,
    /// After how many bytes writing fails.
    pub fails: Option<usize>,
    pub manifest: &'static Manifest,
    /// The end of the input ends a call of a session.
    pub ends_calls: bool,
    pub keeps_outputs: bool,
    /// The input after a pause. The end of `script` is the pause then.
    pub resumed: Option<Vec<In>>,
    /// The input of another connection behind this one, of which nothing is told.
    pub next: Option<Vec<In>>,
    /// Whether the transport takes the log line with this number at once, of those that it is offered.
    pub takes: Option<fn(usize) -> bool>,
}

impl Session {
    pub fn new(script: Vec<In>) -> Self {
        Self {
            setup: PLAIN,
            script,
            stop: None,
            fails: None,
            manifest: &MANIFEST,
            ends_calls: true,
            keeps_outputs: false,
            resumed: None,
            next: None,
            takes: None,
        }
    }

    pub fn serve(self) -> Outcome {
        let Self { setup, script, stop, fails, manifest, ends_calls, keeps_outputs, resumed, next, takes } = self;
        let clock = Rc::new(FakeClock::with_tick(setup.tick * MS));
        let chance = setup.cuts.map(|(seed, longest)| RefCell::new((Random(seed | 1), longest)));
        let world = World { clock: clock.clone(), parked: RefCell::default(), chance };
        let mut rig = Rig::new(&clock);
        let (mut request, mut reply, mut log) = (vec![0; setup.request], vec![0; setup.reply], vec![0; setup.log]);
        let memory = Memory { request: &mut request, reply: &mut reply };
        let mut engine = Engine::new(manifest, memory).unwrap().with_line_ends(setup.ends);
        let mut reader = Reader { world: &world, script: script.into() };
        let mut writer = Writer { world: &world, output: Vec::new(), lines: Vec::new(), fails };
        let stop = async {
            match stop {
                Some(at) => rigline::Sleep::until(&*clock, Instant::from_nanos(at * MS)).await,
                None => pending().await,
            }
        };
        if let Some(resumed) = resumed {
            let server = asynch::Server::new(&mut rig, &mut engine, &*clock).transport(setup.kind).log_buffer(&mut log);
            let result = world.run(server.serve_part(&mut reader, &mut writer));
            if result != Ok(End::Input) {
                assert!(!engine.is_session_open());
                return Outcome { output: writer.output, lines: writer.lines, events: rig.events.all(), result };
            }
            rig.events.push("pause");
            engine.resume();
            reader.script = resumed.into();
        }
        if let Some(next) = next {
            let server = asynch::Server::new(&mut rig, &mut engine, &*clock).transport(setup.kind).log_buffer(&mut log);
            let _ = world.run(server.serve(&mut reader, &mut writer));
            (writer.output, writer.lines) = (Vec::new(), Vec::new());
            reader.script = next.into();
        }
        let (events, offered) = (rig.events.clone(), Cell::new(0));
        let send_log = |line: &[u8]| {
            let number = offered.replace(offered.get() + 1);
            let takes = takes.is_some_and(|takes| takes(number));
            if takes {
                events.push(format!("took {}", str::from_utf8(line).unwrap()));
            }
            takes
        };
        let result = world.run(
            asynch::Server::new(&mut rig, &mut engine, &*clock)
                .transport(setup.kind)
                .log_buffer(&mut log)
                .stop(stop)
                .end_of_input_ends_calls(ends_calls)
                .keep_outputs(keeps_outputs)
                .send_log(&send_log)
                .serve(&mut reader, &mut writer),
        );
        assert!(!engine.is_session_open());
        let Writer { output, lines, .. } = writer;
        Outcome { output, lines, events: rig.events.all(), result }
    }
}
