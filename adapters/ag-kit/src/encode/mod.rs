//! Encodes a run as a stream (docs/protocols/ag-kit.md#events, docs/protocols/ag-kit.md#order-rules,
//! docs/protocols/ag-kit.md#from-the-agent-to-the-client): which steps go to the text, which to the calls, and how the
//! stream ends.
//!
//! Only data that [`interlingua_core::event`] calls stable is read from the run, so that the same steps produce the
//! same bytes live and on every replay.

pub(crate) mod calls;
pub(crate) mod interrupt;
pub(crate) mod text;

use std::sync::Arc;

use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::MessageType;
use interlingua_core::pending::PendingKind;
use interlingua_core::run::Run;
use interlingua_core::{End, Event, Out, Step};

use crate::encode::calls::Calls;
use crate::encode::interrupt::write_interrupt;
use crate::encode::text::Text;
use crate::serve::memory::Memory;
use crate::{Reasoning, Route, losses, wire};

/// Writes the stream of one run.
pub(crate) struct Encoder {
    route: Arc<Route>,
    /// Text events have no message id, so messages are sent one after the other.
    sequencer: MessageSequencer,
    text: Text,
    calls: Calls,
    losses: Losses,
}

impl Encoder {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            sequencer: MessageSequencer::new(),
            text: Text::default(),
            calls: Calls::default(),
            losses: Losses::new(),
        }
    }

    /// The content that the stream did not show.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    /// Starts a stream with the calls known from the conversation.
    pub(crate) fn begin(&mut self, memory: Memory) {
        self.calls = Calls::after(memory);
    }

    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let Some((_, message)) = step.message() else {
            let Event::RunFinished { end } = step.event else { return Flow::More };
            self.encode_text(step, out);
            self.finish(step.run, end, out);
            losses::note(step.run, &self.route.options, &mut self.losses);
            return Flow::Close;
        };

        let options = &self.route.options;
        match &message.announced {
            _ if step.slot().is_some_and(|(_, slot)| slot.call.is_some()) => self.calls.encode_call(&step, out),
            kind if kind.is_call() => self.calls.encode_bare_call(&step, out),
            kind if kind.is_output() => self.calls.encode_output(&step, options.unwrap_tool_output, out),
            MessageType::Message => self.encode_text(step, out),
            MessageType::Reasoning => match options.reasoning {
                Reasoning::Drop => {}
                Reasoning::Text => self.encode_text(step, out),
                Reasoning::Event => self.text.encode_reasoning(&step, out),
            },
            _ => {}
        }

        Flow::More
    }

    fn encode_text(&mut self, step: Step<'_>, out: &mut Out) {
        let (text, calls, options) = (&mut self.text, &mut self.calls, &self.route.options);
        self.sequencer.push(step, |step| text.encode(&step, calls, options, out));
    }

    fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        let (calls, others): (Vec<_>, Vec<_>) =
            run.pending().into_iter().partition(|item| item.kind == PendingKind::Tool);
        let waits = others.into_iter().next();
        match (end, waits) {
            (End::Completed | End::Incomplete, Some(item)) => write_interrupt(&self.route, &run.agent, &item, out),
            (End::Completed | End::Incomplete, None) => {
                self.calls.finish(Some(&calls.into_iter().map(|call| call.id).collect()), out);
                // An error that did not end the run is sent only if there is no other output.
                if !self.has_output()
                    && let Some(error) = nonfatal_error(run)
                {
                    wire::Event::Error { error }.write(out);
                }
            }

            (End::Failed | End::Rejected, _) => {
                self.calls.finish(None, out);
                let default_message =
                    if end == End::Rejected { "the agent rejected the request" } else { "the agent failed" };
                let error = run.error().map_or(default_message, |error| error.message.as_str());
                wire::Event::Error { error }.write(out);
            }
            (End::Canceled, _) => {
                self.calls.finish(None, out);
                if !self.has_output() {
                    wire::Event::Error { error: "canceled" }.write(out);
                }
            }
        }

        wire::done(out);
    }

    const fn has_output(&self) -> bool {
        self.text.has_output() || self.calls.has_output()
    }
}

/// The message of the last error that the agent reported without ending the run.
fn nonfatal_error(run: &Run) -> Option<&str> {
    let failed = run.messages.iter().filter(|message| {
        message.announced == MessageType::Error || matches!(message.end, Some(End::Failed | End::Rejected))
    });
    failed.filter_map(|message| message.message.as_deref()).next_back()
}
