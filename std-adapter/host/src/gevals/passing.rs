//! The parts of gevals that a relay passes on.

use rigline::FailureKind;
use rigline::json::{Json, Text};
use rigline::protocol::gevals;

use crate::host::{Agent, CallContext, Manifest};
use crate::lines::on_one_line;

pub(crate) use rigline::protocol::gevals::{OPERATION_FAILED as FAILED, TIMEOUT};

/// The context of a gevals call, for another end that is told of it.
pub(crate) fn context(context: &rigline::CallContext<'_>) -> Option<Box<CallContext>> {
    let task = gevals::TaskContext::of(context);
    let text = |text: Option<Text<'_>>| text.map(|text| text.to_string());
    let is_told = context.protocol() == rigline::protocol::GEVALS
        || task.workdir.is_some()
        || task.agent.is_some()
        || task.phase != rigline::Phase::default()
        || task.env().next().is_some();
    is_told.then(|| {
        Box::new(CallContext {
            workdir: text(task.workdir),
            phase: task.phase,
            env: task.env().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            timeout: None,
            agent: task.agent.map(|agent| Agent {
                prompt: text(agent.prompt).unwrap_or_default(),
                output: text(agent.output).unwrap_or_default(),
            }),
        })
    })
}

/// The members of a manifest, but for its limits, as they came; none if it is not one of this protocol.
pub(crate) fn members(manifest: &Manifest) -> Option<String> {
    let json = Json::parse(manifest.text.as_bytes()).ok().filter(|_| manifest.protocol_version == gevals::VERSION)?;
    let members = json.members().filter(|(name, _)| *name != *"limits");
    let members = members.map(|(name, value)| format!("\"{}\":{}", name.raw(), on_one_line(value.as_str())));
    Some(members.collect::<Vec<_>>().join(","))
}

/// The kind of a failure with this code.
pub(crate) fn kind(code: Option<i32>) -> FailureKind {
    code.and_then(gevals::failure_kind).unwrap_or(FailureKind::Unreachable)
}
