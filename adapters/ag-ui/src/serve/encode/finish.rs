//! The end of a run: its outcome and its token usage.

use interlingua_core::exchange::Flow;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::run::Run;
use interlingua_core::{End, Extra, Json, Out};

use super::super::events::{Event, Outcome, Usage};
use super::calls::Scene;
use super::{Encoder, interrupts, snapshot};

impl Encoder {
    /// Writes the end of a run.
    pub(super) fn finish(&mut self, run: &Run, end: End, out: &mut Out) {
        let usage = run.usage().and_then(Usage::from_native).map(|usage| [usage]);
        if matches!(end, End::Failed | End::Rejected) {
            // Open messages are incomplete, and stay so.
            self.has_ended = true;
            let fallback = if end == End::Rejected {
                ("REJECTED", "the agent rejected the request")
            } else {
                ("AGENT_ERROR", "the agent failed")
            };
            let error = run.error();
            let code = error.map_or(fallback.0, |error| error.code.as_str());
            let message = error.map(|error| error.message.as_str()).filter(|message| !message.is_empty());
            return self.writer.event(&Event::RunError { message: message.unwrap_or(fallback.1), code, usage }, out);
        }

        self.texts.close_all(&mut self.writer, out);
        let pending = run.pending();
        self.close(run, &pending, out);
        let is_cancelled = end == End::Canceled;
        let is_incomplete = end == End::Incomplete && pending.is_empty();
        self.write_end(run, (!is_cancelled).then_some(pending.as_slice()), is_incomplete, usage, out);
    }

    /// Writes what precedes the last event of a run that has not failed: calls that wait for approval, ends of open
    /// steps and subagents, the conversation, and interrupts in the older form.
    fn close(&mut self, run: &Run, pending: &[Pending], out: &mut Out) {
        let agent = self.route.agent_card(&run.agent).cloned();
        let Self { labels, texts, calls, writer, open_steps, .. } = self;
        let mut scene = Scene { labels, texts, writer, out };
        let approvals = pending.iter().filter(|item| item.kind == PendingKind::Approval);
        for item in approvals {
            let id = interrupts::call_id(item);
            if !calls.is_known(id, scene.labels) {
                calls.add(id, &item.name, &item.arguments, id, &mut scene);
            }
        }
        open_steps.close_all(scene.writer, scene.out);

        if let Some(before) = &self.conversation {
            let messages = snapshot::whole(before, run, &self.labels, &self.route.options);
            self.writer.event(&Event::MessagesSnapshot { messages: &messages }, out);
        }
        if self.route.options.legacy_on_interrupt.0 {
            for item in pending.iter().filter(|item| item.kind != PendingKind::Tool) {
                let value = interrupts::legacy_value(item, agent.as_deref());
                self.writer.event(&Event::Custom { name: "on_interrupt", value }, out);
            }
        }
    }

    /// Writes the last event of a run that has not failed. `pending`: `None` if it was cancelled.
    fn write_end(
        &mut self,
        run: &Run,
        pending: Option<&[Pending]>,
        is_incomplete: bool,
        usage: Option<[Usage; 1]>,
        out: &mut Out,
    ) {
        self.has_ended = true;
        let agent = self.route.agent_card(&run.agent);
        let is_v1 = self.labels.is_v1();
        let is_question = |item: &&Pending| item.kind != PendingKind::Tool;
        let outcome = match pending {
            None => is_v1.then_some(Outcome::Cancelled),
            Some(pending) if pending.iter().any(|item| is_question(&item)) => {
                let asked = pending.iter().filter(is_question);
                let interrupts = asked.map(|item| interrupts::interrupt(item, agent.map(AsRef::as_ref))).collect();
                Some(Outcome::Interrupt { interrupts })
            }
            // Older clients find them by themselves, and fail at a field that they do not know.
            Some(pending) if is_v1 && !pending.is_empty() => {
                let pending_tool_call_ids = pending.iter().map(|item| item.id.as_str()).collect();
                Some(Outcome::Success { pending_tool_call_ids })
            }
            Some(_) => None,
        };

        let event = Event::RunFinished {
            thread_id: &self.labels.thread,
            run_id: &self.labels.run,
            result: result(run, is_incomplete),
            outcome,
            usage,
        };
        self.writer.event(&event, out);
    }

    /// Writes the end of the last turn of a run that waits for its next one: a run of another protocol.
    pub(in crate::serve) fn pause(&mut self, run: &Run, out: &mut Out) -> Flow {
        let Some((end, _)) = run.outcome() else { return Flow::More };
        self.finish(run, end, out);
        Flow::Close
    }

    /// Writes again what a thread waits for: its run was not started, since nothing new was said.
    pub(in crate::serve) fn repeat_interrupt(&mut self, run: &Run, pending: &[Pending], out: &mut Out) {
        self.start(out);
        self.write_end(run, Some(pending), false, None, out);
    }
}

/// The result of a run: that of an agent of this protocol, or a note that its answer is incomplete.
fn result(run: &Run, is_incomplete: bool) -> Option<Json> {
    if let Some(result) = run.turn().and_then(|turn| turn.extra.get("result")).filter(|result| !result.is_null()) {
        return Some(result.clone());
    }
    if !is_incomplete {
        return None;
    }
    let mut result = Extra::new();
    result.push("status", Json::from_serialize("incomplete"));
    if let Some(error) = run.error() {
        result.push("reason", Json::from_serialize(&error.code));
        result.push("message", Json::from_serialize(&error.message));
    }
    Some(Json::from_serialize(&result))
}
