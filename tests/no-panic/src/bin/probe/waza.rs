//! `rigline::protocol::waza`, and `rigline::rpc`, which a server of one's own answers with. An extension's own evals are in
//! `engine` and `serve`.

use core::hint::black_box;

use rigline::frame::{Frame, Framer};
use rigline::json::Text;
use rigline::json::write::Writer;
use rigline::json::{Json, RawJson};
use rigline::protocol::waza::{
    Complete, Error, Eval, EvalList, EvalService, EvalSummary, Event, Log, Progress, Refusal, Reply, Request,
    RunRequest, RunState, Started, Status, Summary, Task, TaskList, TaskSummary, Validation, Verdict, answer,
    is_method, request, write_error, write_notification, write_refusal,
};
use rigline::rpc;

use crate::program::{bytes, keep, text};

pub(crate) fn all() {
    let (mut memory, mut reply) = (bytes::<64>(), bytes::<512>());
    let mut framer = Framer::new(&mut memory);
    framer.space().fill(black_box(b'x'));
    framer.commit(black_box(10));
    while let Some(frame) = framer.next_frame() {
        match frame {
            Frame::Line(line) => keep(rpc::answer(line, &mut reply, &mut |incoming, out| {
                keep(incoming.is_notification);
                serve(incoming.method, incoming.params, out);
            })),
            Frame::TooLong(fault) => keep(rpc::answer_too_long(fault, &mut reply)),
        }
    }
    keep(rpc::is_log_line(text().as_bytes()));
    tell(&mut Writer::new(&mut reply));
}

fn serve(method: Text<'_>, params: Json<'_>, out: &mut Writer<'_>) {
    keep(is_method(method));
    match request(method, params) {
        Ok(request) => {
            if let Request::Run(run) = &request {
                keep((run.path, run.executor, run.model, run.verbose, run.context_dir));
            }
            answer(&mut Service, &request, out);
        }
        Err(refusal) => write_refusal(out, refusal, method),
    }
    write_refusal(out, black_box(Refusal::UnknownMethod), method);
    for error in [
        Error::NotFound { path: method },
        Error::Invalid { errors: RawJson::NULL },
        Error::RunFailed(text()),
        Error::UnknownRun(method),
        Error::UnknownTask(method),
        Error::UnknownExecutor { name: method, known: RawJson::NULL },
        Error::Internal(text()),
    ] {
        write_error(out, &error);
    }
}

fn tell(out: &mut Writer<'_>) {
    let summary = Summary { total: black_box(3), passed: black_box(2), failed: black_box(1) };
    keep((summary.pass_rate(), black_box(RunState::Failed).as_str(), black_box(Verdict::Error).as_str()));
    let progress = Progress {
        run_id: Some(text()),
        event: black_box(Some(Event::TaskStart)),
        task_name: Some(text()),
        task_num: black_box(Some(1)),
        total_tasks: black_box(Some(1)),
        trial_num: black_box(Some(1)),
        total_trials: black_box(Some(1)),
        status: black_box(Some(Verdict::Passed)),
        duration_ms: black_box(Some(1)),
        ..Progress::default()
    };
    write_notification(out, "eval.progress", &progress);
    let log = Log { run_id: Some(text()), level: Some(text()), message: Some(text()), ..Log::default() };
    write_notification(out, "eval.log", &log);
    let complete =
        Complete { run_id: Some(text()), summary: Some(summary), error: Some(text()), ..Complete::default() };
    write_notification(out, text(), &complete);
}

/// Answers each way there is.
struct Service;

type Answered<'a> = Result<(), Error<'a>>;

impl EvalService for Service {
    fn list<'a>(&'a mut self, directory: Option<Text<'a>>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(directory);
        let eval = EvalSummary { path: Some(text()), name: Some(text()), ..EvalSummary::default() };
        reply.send(&EvalList { evals: Some(&[eval]), errors: Some(&[text()]), ..EvalList::default() });
        Ok(())
    }

    fn get<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(path);
        reply.send(&Eval { path: Some(text()), config: Some(RawJson::NULL), ..Eval::default() });
        Ok(())
    }

    fn validate<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(path);
        reply.send(&Validation { valid: black_box(Some(true)), errors: Some(&[text()]), ..Validation::default() });
        Ok(())
    }

    fn tasks<'a>(&'a mut self, path: Text<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(path);
        let task = TaskSummary { id: Some(text()), file: Some(text()), ..TaskSummary::default() };
        reply.send(&TaskList { tasks: Some(&[task]), ..TaskList::default() });
        Ok(())
    }

    fn task<'a>(&'a mut self, path: Text<'a>, task: Text<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep((path, task));
        reply.send(&Task { id: Some(text()), graders: Some(RawJson::NULL), ..Task::default() });
        Ok(())
    }

    fn run<'a>(&'a mut self, run: &RunRequest<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(run.path);
        reply.send(&Started { run_id: Some(text()), status: black_box(Some(RunState::Running)), ..Started::default() });
        Ok(())
    }

    fn status<'a>(&'a mut self, run: Text<'a>, reply: &mut Reply<'_, '_>) -> Answered<'a> {
        keep(run);
        reply.send(&Status { run_id: Some(text()), result: Some(Summary::default()), ..Status::default() });
        Ok(())
    }

    fn cancel<'a>(&'a mut self, run: Text<'a>, _: &mut Reply<'_, '_>) -> Answered<'a> {
        Err(Error::UnknownRun(run))
    }
}
