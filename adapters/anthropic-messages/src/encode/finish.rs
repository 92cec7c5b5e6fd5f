//! The end of an answer (docs/protocols/anthropic-messages.md#ends): what the agent asks, why it ended, what it cost,
//! or what went wrong.

use std::sync::Arc;

use interlingua_adapter_kit::contents::LossScope;
use interlingua_adapter_kit::token_usage::TokenUsage;
use interlingua_core::Out;
use interlingua_core::answer::chat::{AskedItem, reason_line};
use interlingua_core::call::RunView;
use interlingua_core::event::End;
use interlingua_core::loss::ContentKind;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::Run;

use super::{BlockTarget, Encoder, EncoderState};
use crate::echo::Echo;
use crate::fault::ApiError;
use crate::losses;
use crate::options::Options;
use crate::serve::MountedRoute;
use crate::wire::{self, StopDetails, Usage};

/// Why an answer ended.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) reason: &'static str,
    pub(super) details: Option<StopDetails>,
}

impl Stop {
    /// The end of a run that did not fail. `refusal`: the agent's text when it declined.
    pub(super) fn of_run(run: &Run, end: End, refusal: &str, echo: &Echo, options: &Options) -> Self {
        let plain = |reason| Self { reason, details: None };
        let refused = || Self { reason: "refusal", details: Some(StopDetails::refusal(refusal)) };
        if end == End::Incomplete {
            let code = run.error().map(|error| error.code.to_ascii_lowercase()).unwrap_or_default();
            return match code.as_str() {
                "pause_turn" => plain("pause_turn"),
                _ if code.contains("context_window") || code.contains("context_length") => {
                    plain("model_context_window_exceeded")
                }
                _ if code.contains("content_filter") => refused(),
                _ => plain("max_tokens"),
            };
        }
        if !refusal.is_empty() {
            return refused();
        }

        plain(if asks_for_calls(&run.pending(), echo, options) { "tool_use" } else { "end_turn" })
    }
}

/// Whether the client has to run a call, or receives a question as a call.
fn asks_for_calls(pending: &[Pending], echo: &Echo, options: &Options) -> bool {
    let has_tools = pending.iter().any(|item| item.kind == PendingKind::Tool);
    let asked = options.asker().ask(pending, &|name| echo.declares(name));
    has_tools || asked.iter().any(|item| matches!(item, AskedItem::Call { .. }))
}

/// The token usage of the run; zeros if the agent reported none, since clients need numbers.
pub(super) fn usage(run: &Run) -> Usage {
    run.usage().and_then(TokenUsage::parse).map(|usage| Usage::from_agent(&usage)).unwrap_or_default()
}

impl EncoderState {
    /// The end of the run. Invariant: nothing is written after it.
    pub(super) fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        self.has_ended = true;
        let error = self.error(run, end);
        self.note_losses(run, error.is_some());
        if let Some(error) = error {
            if self.target == BlockTarget::Stream {
                error.write_event(self.request_id.as_deref(), out);
            }
            return;
        }

        self.blocks.end(out);
        self.release_held(out);
        self.ask(&run.agent, &run.pending(), out);
        let stop = Stop::of_run(run, end, &self.refusal, &self.echo, &self.shared.options);
        if self.target == BlockTarget::Stream {
            wire::message_end(stop.reason, stop.details.as_ref(), usage(run), out);
        }
    }

    /// Notes what the answer does not show.
    fn note_losses(&mut self, run: &Run, has_failed: bool) {
        let extent = LossScope::new(has_failed, self.target == BlockTarget::Stream);
        losses::note(run, extent, &self.echo, &self.shared, &mut self.losses);
        if extent == LossScope::UntilError {
            for _ in std::mem::take(&mut self.held) {
                self.losses.lost(ContentKind::ClientCall, "the agent failed before it was clear who runs the call");
            }
        }
    }

    /// The error that the client gets for a run that ended so.
    pub(super) fn error<'r>(&self, run: &'r Run, end: End) -> Option<ApiError<'r>> {
        let refuses = || {
            let is_asked = run.pending().iter().any(|item| item.kind != PendingKind::Tool);
            (is_asked && self.shared.refuses_questions()).then(ApiError::approval_required)
        };
        ApiError::from_run(end, run.error()).or_else(refuses)
    }

    /// Asks what is open.
    pub(super) fn ask(&mut self, agent: &str, pending: &[Pending], out: &mut Out) {
        let echo = std::mem::take(&mut self.echo);
        let shared = Arc::clone(&self.shared);
        let pending = shared.limited(agent, pending);
        for item in shared.options.asker().ask(&pending, &|name| echo.declares(name)) {
            match item {
                AskedItem::Text(text) => self.blocks.words(&text, out),
                AskedItem::Call { id, name, arguments } => {
                    self.blocks.begin_call(id, name, out);
                    self.blocks.push(arguments.text(), out);
                    self.blocks.end(out);
                }
            }
        }
        self.echo = echo;
    }
}

/// A message that asks what is open, and nothing else: the agent was not called. `asks_again`: why it does.
pub(crate) fn write_question(
    shared: &Arc<MountedRoute>,
    echo: &Echo,
    (view, asks_again): (RunView<'_>, Option<&str>),
    target: BlockTarget,
    id: &str,
    out: &mut Out,
) {
    let pending = view.pending;
    let mut encoder = Encoder::new(Arc::clone(shared), echo.clone(), &view.run().agent, target, None);
    let reason = if asks_for_calls(pending, echo, &shared.options) { "tool_use" } else { "end_turn" };
    if target == BlockTarget::Stream {
        wire::message_start(id, &echo.model, out);
    }
    if let Some(why) = asks_again {
        encoder.state.blocks.words(&reason_line(why), out);
    }
    encoder.state.ask(&view.run().agent, pending, out);
    match target {
        BlockTarget::Stream => wire::message_end(reason, None, Usage::default(), out),
        BlockTarget::Whole => {
            let content = encoder.state.blocks.into_whole();
            let answer = wire::Answer {
                id,
                model: &echo.model,
                content: &content,
                stop_reason: Some(reason),
                stop_details: None,
                usage: Usage::default(),
            };
            out.json(&answer);
        }
    }
}
