//! Telling a run (sections 4, 5 and 9): which steps concern the text, which the calls, and how a stream ends.
//!
//! Only what [`interlingua_core::event`] calls stable is read off the run, so the same steps make the same bytes live
//! and on every replay.

use std::sync::Arc;

use interlingua_core::exchange::Flow;
use interlingua_core::model::MessageType;
use interlingua_core::pending::PendingKind;
use interlingua_core::run::Run;
use interlingua_core::sequencer::MessageSequencer;
use interlingua_core::{End, Event, Out, Step};

use crate::calls::Calls;
use crate::memory::Memory;
use crate::send::write_interrupt;
use crate::text::Text;
use crate::{Reasoning, Route, wire};

/// Writes the stream of one run.
pub(crate) struct Encoder {
    route: Arc<Route>,
    /// Texts have no ids, so they are told one after the other.
    order: MessageSequencer,
    text: Text,
    calls: Calls,
}

impl Encoder {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            order: MessageSequencer::new(),
            text: Text::default(),
            calls: Calls::default(),
        }
    }

    /// Begins a stream in a conversation.
    pub(crate) fn begin(&mut self, memory: Memory) {
        self.calls = Calls::after(memory);
    }

    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let Some((_, message)) = step.message() else {
            let Event::RunFinished { end } = step.event else { return Flow::More };
            self.tell_text(step, out);
            self.finish(step.run, end, out);
            return Flow::Close;
        };
        let options = &self.route.options;
        match &message.announced {
            _ if step.slot().is_some_and(|(_, slot)| slot.call.is_some()) => self.calls.encode_call(&step, out),
            kind if kind.is_call() => self.calls.encode_bare_call(&step, out),
            kind if kind.is_output() => self.calls.encode_output(&step, options.unwrap_tool_output, out),
            MessageType::Message => self.tell_text(step, out),
            MessageType::Reasoning => match options.reasoning {
                Reasoning::Drop => {}
                Reasoning::Text => self.tell_text(step, out),
                Reasoning::Event => self.text.encode_reasoning(&step, out),
            },
            _ => {}
        }
        Flow::More
    }

    fn tell_text(&mut self, step: Step<'_>, out: &mut Out) {
        let (text, calls, options) = (&mut self.text, &mut self.calls, &self.route.options);
        self.order.push(step, |step| text.encode(&step, calls, options, out));
    }

    fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        let waits = run.pending().into_iter().find(|item| item.kind != PendingKind::Tool);
        match (end, waits) {
            (End::Completed | End::Incomplete, Some(item)) => write_interrupt(&self.route, &run.agent, &item, out),
            (End::Completed | End::Incomplete, None) => {
                self.calls.finish(out);
                // A complaint on the way is not told, unless nothing else is.
                if !self.said_anything()
                    && let Some(error) = complaint(run)
                {
                    wire::Event::Error { error }.write(out);
                }
            }
            (End::Failed | End::Rejected, _) => {
                self.calls.finish(out);
                let untold =
                    if end == End::Rejected { "the agent turned the request away" } else { "the agent failed" };
                let error = run.error().map_or(untold, |error| error.message.as_str());
                wire::Event::Error { error }.write(out);
            }
            (End::Canceled, _) => {
                self.calls.finish(out);
                if !self.said_anything() {
                    wire::Event::Error { error: "canceled" }.write(out);
                }
            }
        }
        wire::done(out);
    }

    const fn said_anything(&self) -> bool {
        self.text.said_anything() || self.calls.said_anything()
    }
}

/// What the agent complained of while it went on.
fn complaint(run: &Run) -> Option<&str> {
    let failed = run.messages.iter().filter(|message| {
        message.announced == MessageType::Error || matches!(message.end, Some(End::Failed | End::Rejected))
    });
    failed.filter_map(|message| message.message.as_deref()).next_back()
}
