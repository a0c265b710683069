//! The cases of the gevals extension protocol 0.0.1, and of what its real host does.

mod calls;
mod common;
mod ends;
mod lines;
mod manifest;
mod output;
mod requests;

use crate::check::{Case, Suite, cases, names, run_on_bench};

/// All conformance cases, in the order in which they run.
#[rustfmt::skip]
pub const CASES: &[Case] = cases! {
    "handshake", "gevals: Initialize", Host, manifest::handshake;
    "manifest.name", "gevals: Manifest Fields", Standard, |bench| manifest::manifest_string(bench, "name");
    "manifest.version", "gevals: Manifest Fields", Standard, manifest::manifest_version;
    "manifest.protocol-version", "gevals: Manifest Fields", Host, manifest::manifest_protocol_version;
    "manifest.description", "gevals: Manifest Fields", Standard, manifest::manifest_description;
    "manifest.requires", "gevals: Requirement Object", Standard, manifest::manifest_requires;
    "manifest.operations", "gevals: Operation Object", Host, manifest::manifest_operations;
    "manifest.schemas", "gevals: Operation Object", Host, manifest::manifest_schemas;
    "manifest.size", "peers: the host reads 65,535 bytes", Host, manifest::manifest_size;
    "initialize.twice", "gevals: Lifecycle", Standard, manifest::initialize_twice;
    "initialize.no-version", "gevals: Initialize", Standard, manifest::initialize_no_version;
    "id.integer", "JSON-RPC 2.0 §5", Host, |bench| requests::ids(bench, &["1", "0", "-5", "2147483648", "1501691352102"], false);
    "id.string", "JSON-RPC 2.0 §5", Standard, |bench| requests::ids(bench, requests::STRING_IDS, false);
    "id.large", "JSON-RPC 2.0 §5", Standard, |bench| requests::ids(bench, &["9007199254740993", "18446744073709551616", "-9223372036854775809"], true);
    "id.fraction", "JSON-RPC 2.0 §4", Standard, |bench| requests::ids(bench, &["1.5", "1e3", "1.0"], true);
    "id.null", "JSON-RPC 2.0 §4", Standard, |bench| requests::ids(bench, &["null"], false);
    "id.invalid", "JSON-RPC 2.0 §5.1", Standard, requests::invalid_ids;
    "method.unknown", "gevals: Standard Error Codes", Standard, requests::unknown_method;
    "operation.unknown", "gevals: Error Categories", Host, calls::unknown_operation;
    "operation.missing", "gevals: Execute", Standard, calls::missing_operation;
    "arguments.missing", "gevals: Error Categories", Standard, calls::missing_argument;
    "arguments.wrong-type", "gevals: Standard Error Codes", Standard, calls::wrong_argument;
    "execute.result", "gevals: Result Fields", Host, calls::results;
    "execute.as-the-host-sends", "peers: args null, phase empty", Host, calls::as_the_host_sends;
    "execute.unknown-members", "peers: unknown members are ignored", Standard, calls::unknown_members;
    "execute.before-initialize", "gevals: One-Shot Mode", Standard, calls::before_initialize;
    "notification.silence", "JSON-RPC 2.0 §4.1", Standard, requests::notifications;
    "reply.silence", "peers: the host sends replies", Host, requests::replies;
    "bad-json", "gevals: Error Categories", Standard, lines::bad_json;
    "bad-json.recovery", "gevals: Transport", Standard, lines::recovery;
    "bad-utf8", "gevals: Transport", Standard, lines::bad_utf8;
    "invalid-request", "JSON-RPC 2.0 §5.1", Standard, requests::invalid_requests;
    "batch", "JSON-RPC 2.0 §6", Standard, requests::batch;
    "line.over-long", "gevals: Transport", Standard, lines::over_long;
    "line.at-the-limit", "rigline: Limits", Standard, lines::at_the_limit;
    "line.crlf", "RFC 8259 §2", Standard, lines::crlf;
    "line.byte-order-mark", "RFC 8259 §8.1", Standard, lines::byte_order_mark;
    "line.blank", "gevals: Transport", Standard, lines::blank_lines;
    "line.split", "gevals: Transport", Host, lines::split;
    "line.merged", "gevals: Transport", Standard, lines::merged;
    "nesting", "RFC 8259 §9", Standard, lines::nesting;
    "one-shot", "gevals: One-Shot Mode", Standard, ends::one_shot;
    "one-shot.no-newline", "gevals: One-Shot Mode", Standard, ends::one_shot_without_newline;
    "shutdown.reply", "gevals: Shutdown", Host, ends::shutdown_reply;
    "shutdown.params", "JSON-RPC 2.0 §4", Standard, ends::shutdown_params;
    "shutdown.exit", "gevals: Shutdown", Host, ends::shutdown_exit;
    "end-of-input", "gevals: One-Shot Mode", Standard, ends::end_of_input;
    "log.form", "gevals: Log", Host, output::log_form;
    "log.level", "gevals: Log", Standard, output::log_level;
    "stdout.clean", "gevals: Transport", Host, output::clean;
};

/// The suite, for the registry of protocols.
pub(super) const SUITE: Suite = Suite {
    names: || names(CASES),
    has_transcripts: false,
    run: |settings, report| Box::pin(run_on_bench(CASES, settings, report)),
};
