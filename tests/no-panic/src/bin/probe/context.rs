//! `rigline::{clock, context, extension, manifest}`: an extension that does all a handler can do.

use core::hint::black_box;
use core::task::Waker;
use core::time::Duration;

use rigline::Event;
use rigline::Sleep;
use rigline::json::de;
use rigline::json::write::Writer;
use rigline::protocol::Protocol;
use rigline::protocol::gevals::TaskContext;
use rigline::service::JobRun;
use rigline::{
    Call, Clock, Config, Context, Extension, Failure, FailureKind, Instant, Level, Manifest, Operation, Outcome, Phase,
    Schema,
};
use rigline::{Guarantee, ModuleKind};

use crate::program::{bytes, keep, show, text};

pub(crate) static MANIFEST: Manifest = Manifest::new("probe", "1.0.0")
    .description("Does everything")
    .kind(ModuleKind::Tool)
    .guarantees(&[Guarantee::NoNetwork])
    .requires(&["true"])
    .operations(&[
        Operation::new("all", Schema::ANY).description("Does everything"),
        Operation::new("one", Schema::text(r#"{"type":"object"}"#)),
    ]);

/// The protocols of the probe's engines.
#[cfg(feature = "protocols")]
pub(crate) const PROTOCOLS: &[&Protocol] = rigline::protocol::ALL;
#[cfg(not(feature = "protocols"))]
pub(crate) const PROTOCOLS: &[&Protocol] = &[rigline::protocol::GEVALS];

#[cfg(feature = "protocols")]
pub(crate) const EVALS: &[rigline::protocol::waza::BoardEval] = &[rigline::protocol::waza::BoardEval::new(
    "self-test",
    "probe",
    "1.0.0",
    &[rigline::protocol::waza::BoardTask::new("all", "All", "Does everything")],
)];

pub(crate) fn all() {
    match Manifest::try_new(text(), text()) {
        Ok(manifest) => keep(manifest.description(text()).requires(&[]).operations(&[])),
        Err(error) => show(&error),
    }
    keep((
        black_box(ModuleKind::Tool).name(),
        black_box(Guarantee::NoNetwork).name(),
        black_box(Guarantee::NoNetwork).capability(),
    ));
    Operation::new(text(), Schema::OBJECT).description(text()).params.write(&mut Writer::new(&mut bytes::<32>()));
    show(&black_box(Schema::OBJECT));

    let now = Instant::from_nanos(black_box(1)).after_nanos(black_box(2)).after(black_box(Duration::from_secs(1)));
    keep((now.as_nanos(), now.nanos_since(black_box(Instant::default())), now > Instant::default()));
    let clock: &dyn Clock = &Ticks;
    keep(clock.now());
    (&clock).idle();
    (&clock).wake_at(now, Waker::noop());

    keep(Outcome::DONE == black_box(Outcome::message(text())));
    for failure in
        [Failure::UNKNOWN_OPERATION, Failure::new(black_box(FailureKind::Internal), text()).with_code(text())]
    {
        keep(failure.kind());
        show(&failure);
    }
}

/// A clock that the compiler knows nothing about.
pub(crate) struct Ticks;

impl Clock for Ticks {
    fn now(&self) -> Instant {
        Instant::from_nanos(black_box(0))
    }
}

/// Does all a handler can do.
pub(crate) struct Probe;

impl Extension for Probe {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.sleep(Duration::from_nanos(black_box(1))).await;
        Sleep::until(&Ticks, black_box(Instant::default())).await;
        handle(call, cx)
    }

    async fn configure(&mut self, config: Config<'_>, cx: &mut Context<'_>) -> Result<(), Failure> {
        cx.sleep(Duration::from_nanos(black_box(1))).await;
        configure(config)
    }

    async fn on_event(&mut self, event: Event<'_>, cx: &mut Context<'_>) {
        cx.sleep(Duration::from_nanos(black_box(1))).await;
        crate::event::seen(event);
        cx.info("event");
    }

    async fn run_job<'a>(&mut self, job: JobRun<'a>, cx: &mut Context<'a>) {
        job.run(self, cx).await;
    }

    async fn run_task(&mut self, eval: usize, task: usize, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
        cx.sleep(Duration::from_nanos(black_box(1))).await;
        keep((eval, task));
        if black_box(true) { cx.done(text()) } else { Err(cx.failure(FailureKind::Failed, text())) }
    }

    async fn safe_state(&mut self) {
        keep(bytes::<1>());
    }
}

/// All a handler can do without waiting.
pub(crate) fn handle(mut call: Call<'_>, cx: &mut Context<'_>) -> Result<Outcome, Failure> {
    keep((call.index, call.operation()));
    show(&call.args_json());
    keep((call.context.timeout_nanos, call.context.protocol().name()));
    let context = TaskContext::of(&call.context);
    keep(context.workdir.map(|text| text.raw()));
    keep(context.phase == Phase::Setup);
    #[cfg(feature = "protocols")]
    {
        keep(rigline::protocol::amplifier::session_id(&call.context).is_some());
        keep(rigline::protocol::namel3ss::Invocation::of(&call.context).sandbox);
    }
    cx.progress(black_box(1), black_box(None), text());
    for (name, value) in context.env() {
        show(&name);
        show(&value);
    }
    if let Some(agent) = context.agent {
        keep((agent.prompt, agent.output));
    }

    #[derive(serde::Deserialize)]
    struct Args<'a> {
        text: &'a str,
        number: u8,
    }
    let args: Args<'_> = call.args()?;

    cx.log(black_box(Level::Info), args.text);
    cx.log_with(Level::Warn, format_args!("{}", args.number), &black_box(7));
    cx.debug("debug");
    cx.info(text());
    cx.warn("warn");
    cx.error("error");
    keep((cx.now(), cx.deadline(), Level::Debug.name()));

    cx.output("number", &args.number)?;
    cx.output(text(), args.text)?;
    match black_box(args.number) {
        0 => cx.done(format_args!("{}", args.number)),
        1 => cx.failed(text()),
        2 => Err(cx.failure(black_box(FailureKind::Unreachable), text())),
        3 => Err(Failure::from(de::from_empty::<u8>().err().ok_or(Failure::UNKNOWN_OPERATION)?)),
        4 => Err(black_box(Failure::UNKNOWN_OPERATION)),
        _ => Ok(Outcome::message(text())),
    }
}

pub(crate) fn configure(mut config: Config<'_>) -> Result<(), Failure> {
    show(&config.json());
    keep(config.get::<u8>()?);
    Ok(())
}

/// An extension with nothing but what it must have.
pub(crate) struct Least;

impl Extension for Least {
    fn manifest(&self) -> &'static Manifest {
        &MANIFEST
    }

    async fn call(&mut self, _: Call<'_>, _: &mut Context<'_>) -> Result<Outcome, Failure> {
        Ok(Outcome::DONE)
    }
}
