//! The log line of a turn that has ended.
//!
//! Not here: requests that were refused before a turn started (`interlingua_server`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::answer::{self, Answer, AnswerBody};
use interlingua_core::filter::truncated;
use interlingua_core::loss::Losses;
use interlingua_core::pending::Pending;
use interlingua_core::run::RunError;
use interlingua_core::{Blame, Fault, FaultKind, error_class};

use super::trace;
use crate::runs::{ActiveRun, Prepared, Turn};
use interlingua_observe::{self as observe, Action, AuditEntry, RequestLog, TurnPart, finish_reason};
use interlingua_upstream::Trace;

/// The maximum length of a logged text from a client or an agent, in bytes.
const MAX_TEXT: usize = 512;

/// The result of a turn, for logs and metrics.
pub(super) struct TurnReport<'a> {
    /// A failure that the gateway detected.
    pub(super) fault: Option<&'a Fault>,
    /// The error that clients see.
    pub(super) error: Option<&'a RunError>,
    /// The error that the agent reported, unchanged.
    pub(super) agent_error: Option<&'a str>,
    /// Number of frames that the protocol does not define.
    pub(super) ignored: u64,
    /// The first of these frames.
    pub(super) first_ignored: Option<&'a str>,
    /// Parts of the request that the agent did not get, and parts of its answer that a run cannot represent.
    pub(crate) losses: Losses,
    pub(super) took: Duration,
}

impl TurnReport<'_> {
    /// Code, blame and message of the failure. `None`: the turn succeeded.
    fn failure(&self) -> Option<(&str, Blame, &str)> {
        match (self.fault, self.error) {
            (Some(fault), _) => Some((fault.code(), fault.kind.blame(), fault.message.as_str())),
            // A code that the gateway does not define is the fault of the agent.
            (None, Some(error)) => {
                let blame = error_class::of_run_code(&error.code).blame();
                Some((&error.code, blame, error.message.as_str()))
            }
            (None, None) => None,
        }
    }
}

/// The turn for the access log, spans and GenAI metrics.
fn turn_part(run: &ActiveRun, turn: &Turn, report: &TurnReport<'_>, request: &RequestLog) -> TurnPart {
    let (provider, losses) = (Arc::clone(&turn.agent.protocol), report.losses.as_slice().to_vec());
    if !request.is_wanted() {
        // For the line of the losses.
        let (run, agent) = (run.id().to_string(), turn.agent.name.clone());
        return TurnPart { run, agent, provider, losses, ..TurnPart::default() };
    }

    let failure = report.failure();
    let attempts = turn.attempts.take();
    let is_traced = request.is_sampled();
    run.view(|view| {
        let state = view.info.state;
        // In protocols in which each turn is a run, a run with open items has ended.
        let waits = state.is_waiting() || !view.pending.is_empty();
        let reason = finish_reason(state.as_str(), waits);
        TurnPart {
            run: run.id().to_string(),
            agent: turn.agent.name.clone(),
            agent_version: turn.agent.card.version.clone(),
            provider,
            server: attempts.endpoint.as_ref().and_then(|endpoint| endpoint.server().cloned()),
            session: loggable(&view.run().session_id).into_owned(),
            outcome: state.as_str(),
            code: failure.map(|(code, ..)| loggable(code).into_owned()),
            error_type: failure.map(|(code, ..)| own_code(code)),
            blame: failure.map(|(_, blame, _)| blame.as_str()),
            events: view.record.len(),
            queued: attempts.placed_at.map(|placed_at| placed_at.saturating_duration_since(turn.came_at)),
            began_at: turn.began_at,
            took: report.took,
            first_event: turn.first_event,
            usage: view.run().usage().and_then(observe::usage),
            retries: attempts.retries,
            first_retries: attempts.first_retries.into_iter().map(|retry| (retry.at, retry.reason)).collect(),
            losses,
            answers: turn.answers,
            waits_for: waits.then_some(view.pending.len()),
            finish_reason: reason,
            span: turn.trace.as_deref().map(|trace| trace.ids().1),
            tools: if is_traced { trace::tools(view, request.wants_content()) } else { Vec::new() },
            messages: request.wants_content().then(|| Box::new(trace::input_and_output(view, reason))),
        }
    })
}

/// A code that the gateway defines, or `_OTHER` for any other code.
fn own_code(code: &str) -> &'static str {
    FaultKind::ALL.iter().map(|kind| kind.code()).find(|own| *own == code).unwrap_or("_OTHER")
}

/// The ids of the items that a turn answers, with their decisions.
pub(super) fn decisions(prepared: &Prepared) -> Vec<(String, &'static str)> {
    if !prepared.decided {
        return Vec::new();
    }

    let input = prepared.input.as_ref().unwrap_or(&prepared.request.input);
    let given: Vec<Answer> = input.iter().flat_map(answer::native).collect();
    let of_item = |item: &Pending| match given.iter().find(|answer| answer.id == item.id).map(|answer| &answer.given) {
        Some(AnswerBody::Decided { decision, .. }) => decision.as_str(),
        _ => "answer",
    };
    prepared.answered.iter().map(|item| (item.id.clone(), of_item(item))).collect()
}

/// Adds decisions to the audit log, without texts. Called once the decisions are stored.
pub(super) fn audit_decisions(turn: &Turn, run: &ActiveRun, decisions: &[(String, &'static str)]) {
    let Some(request) = &turn.request else { return };
    for (item, decision) in decisions {
        let target = format!("{} {}", run.id(), loggable(item));
        request.audit(AuditEntry::new(Action::Decision).target(target).detail(*decision));
    }
}

/// Writes the log line of a turn, and adds the turn to the access log of its request.
pub(crate) fn turn_ended(run: &ActiveRun, turn: &mut Turn, report: &TurnReport<'_>) {
    let (session, protocol, outcome) =
        run.view(|view| (view.run().session_id.clone(), view.info.protocol.clone(), view.info.state.as_str()));
    let request = turn.request.take();
    if let Some(request) = &request {
        request.set_turn(turn_part(run, turn, report, request));
    }

    let request = request.as_ref().map(|request| request.id());
    let session = loggable(&session);
    let first_ignored = report.first_ignored.map(loggable);
    let agent_error = report.agent_error.map(loggable);
    let (trace, span) = (turn.trace.as_deref().map(Trace::trace_id), turn.trace.as_deref().map(Trace::span_id));
    let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
    let (code, blame, message) = match report.failure() {
        Some(failure) => failure,
        None => {
            tracing::info!(
                run = %run.id(), agent = %run.agent.name, session = &*session, route = &*turn.route,
                protocol = &*protocol, request, took_ms, outcome, ignored_frames = report.ignored,
                first_ignored = first_ignored.as_deref(), agent_error = agent_error.as_deref(), trace, span, "turn ended"
            );
            return;
        }
    };

    let detail = report.fault.and_then(|fault| fault.detail.as_deref()).map(loggable);
    tracing::warn!(
        run = %run.id(), agent = %run.agent.name, session = &*session, route = &*turn.route, protocol = &*protocol,
        request, code = &*loggable(code), blame = blame.as_str(), status = report.fault.and_then(|fault| fault.upstream_status),
        cause = &*loggable(message), detail = detail.as_deref(), agent_error = agent_error.as_deref(),
        ignored_frames = report.ignored, first_ignored = first_ignored.as_deref(), trace, span, took_ms, outcome,
        "turn failed"
    );
}

/// Shortens an external text to [`MAX_TEXT`] and replaces control characters, so that it fits on one line.
fn loggable(text: &str) -> Cow<'_, str> {
    let start = truncated(text, MAX_TEXT);
    if start.len() == text.len() && !text.contains(|c: char| c.is_control()) {
        return Cow::Borrowed(text);
    }
    let mut line: String = start.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if start.len() < text.len() {
        line.push('…');
    }
    Cow::Owned(line)
}
