//! Events of the agent to events of the run: which part of the reader each is for.
//!
//! Not here: texts ([`super::texts`]), calls ([`super::calls`]), questions ([`super::asks`]), snapshots
//! ([`super::snapshot`]), and what only this protocol has ([`super::kept`]).

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentError, AgentEvent, JsonRef, ResponseEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::{ContentKind, Loss};
use interlingua_core::model::MessageType;
use interlingua_core::model_error::{Complaint, garbage};
use interlingua_core::{End, Fault, Json};

use super::asks::{AgentQuestion, AnswerForm, CONFIRMATION, Scene};
use super::calls::{Call, Calls};
use super::context::{Context, TurnState};
use super::finish::{Outcome, read_usage};
use super::frame::{Fields, Head};
use super::kept::StoredEvents;
use super::options::{Reasoning, UnansweredCalls, UpstreamOptions};
use super::snapshot::{SnapshotReader, Start, learn_from_state};
use super::texts::{Opening, Texts};

/// Maximum number of custom events with questions that are stored until the run ends.
const MAX_ASKED: usize = 64;

/// The options that the reader needs.
#[derive(Debug)]
pub(super) struct Rules {
    reasoning: Reasoning,
    confirm_calls: Vec<String>,
    input_calls: Vec<String>,
    unanswered_calls: UnansweredCalls,
}

impl Rules {
    pub(super) fn new(options: &UpstreamOptions) -> Self {
        Self {
            reasoning: options.reasoning,
            confirm_calls: options.confirm_calls.clone(),
            input_calls: options.input_calls.clone(),
            unanswered_calls: options.unanswered_calls,
        }
    }
}

/// Reads the events of one turn.
pub(super) struct Reader {
    pub(super) rules: Rules,
    /// The thread's id.
    pub(super) thread: String,
    /// Where the answer begins in snapshots.
    pub(super) start: Start,
    /// Names of calls that were approved for this turn, with their ids.
    pub(super) approved: Vec<(String, String)>,
    pub(super) shared: TurnState,
    pub(super) calls: Calls,
    pub(super) kept: StoredEvents,
    pub(super) texts: Texts,
    /// The questions of custom events.
    pub(super) asked: Vec<AgentQuestion>,
    pub(super) is_started: bool,
    pub(super) has_ended: bool,
    /// Where a fragment with escapes is written.
    pub(super) unescaped: String,
}

impl Reader {
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(super) fn losses(&self) -> &[Loss] {
        self.shared.losses.as_slice()
    }

    /// Reads one event.
    ///
    /// # Errors
    /// Those of the sink, and of data that is no event.
    pub(super) fn read(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        // One check of the whole costs less than one per text.
        let text = std::str::from_utf8(data).map_err(|_| garbage(data))?;
        let head = Head::parse(text).ok_or_else(|| garbage(data))?;
        if self.has_ended {
            return sink.emit(&AgentEvent::Ignored);
        }

        let kind = head.kind();
        let (message, is_delta) = match kind.as_ref() {
            "TEXT_MESSAGE_CONTENT" => (Some(MessageType::Message), true),
            "REASONING_MESSAGE_CONTENT" | "THINKING_TEXT_MESSAGE_CONTENT" => (Some(MessageType::Reasoning), true),
            "TOOL_CALL_ARGS" => (None, true),
            _ => (None, false),
        };
        if is_delta {
            return self.delta(message, &head, sink);
        }

        let event = Fields::parse(text).ok_or_else(|| garbage(data))?;
        self.event(&kind, text, &event, sink)
    }

    /// A piece of a text, or of arguments.
    #[inline]
    fn delta(&mut self, message: Option<MessageType>, head: &Head<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.begin(None, sink)?;
        let mut context = Context { sink, shared: &mut self.shared };
        context.release()?;
        self.calls.end_chunks(&mut context)?;
        self.texts.end_chunks(message.as_ref().map(|_| head.message_id()).as_deref(), &mut context)?;
        let delta = head.delta(&mut self.unescaped);
        match message {
            Some(MessageType::Reasoning) if self.rules.reasoning == Reasoning::Drop => drop_reasoning(&mut context),
            Some(kind) => self.texts.push(kind, &head.message_id(), delta, &mut context),
            None => {
                self.texts.forget_latest();
                self.calls.push(&head.call_id(), delta, &mut context)
            }
        }
    }

    /// The agent works.
    fn begin(&mut self, id: Option<Cow<'_, str>>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if std::mem::replace(&mut self.is_started, true) {
            return Ok(());
        }
        sink.emit(&AgentEvent::Response(ResponseEvent { id, started: true, ..ResponseEvent::default() }))
    }

    fn event(&mut self, kind: &str, text: &str, event: &Fields<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        match kind {
            "RUN_STARTED" => {
                return if self.is_started {
                    sink.emit(&AgentEvent::Ignored)
                } else {
                    self.begin(event.text("runId"), sink)
                };
            }
            "RUN_ERROR" => return self.fail(event, sink),
            // Servers of other protocols write errors so.
            kind if kind.is_empty() || kind == "error" || kind.ends_with("Error") => return self.untyped(text, sink),
            _ => {}
        }

        self.begin(None, sink)?;
        let mut context = Context { sink, shared: &mut self.shared };
        match kind {
            // They say nothing about where a message ends.
            "RAW" => {
                context.release_output()?;
                return self.kept.keep_raw(text, event, &mut context);
            }
            "REASONING_START" | "THINKING_START" | "REASONING_END" | "THINKING_END" => {
                return context.sink.emit(&AgentEvent::KeepAlive);
            }
            "REASONING_ENCRYPTED_VALUE" => return self.seal(text, event, sink),
            "STATE_SNAPSHOT" | "STATE_DELTA" | "STEP_STARTED" | "STEP_FINISHED" | "ACTIVITY_SNAPSHOT"
            | "ACTIVITY_DELTA" | "SUBAGENT_STARTED" | "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" | "CUSTOM" => {
                return self.beside(kind, text, event, sink);
            }
            _ => {}
        }

        if kind == "TOOL_CALL_START" {
            context.drop_repetition();
        }
        context.release()?;
        self.message_event(kind, text, event, sink)
    }

    /// Events of texts, calls, and the run's end.
    fn message_event(
        &mut self,
        kind: &str,
        text: &str,
        event: &Fields<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let mut context = Context { sink, shared: &mut self.shared };
        let id = event.text("messageId").unwrap_or_default();
        let is_text_chunk = matches!(kind, "TEXT_MESSAGE_CHUNK" | "REASONING_MESSAGE_CHUNK");
        self.texts.end_chunks(is_text_chunk.then_some(&*id), &mut context)?;
        if kind != "TOOL_CALL_CHUNK" {
            self.calls.end_chunks(&mut context)?;
        }
        if kind.starts_with("TOOL_CALL_") {
            self.texts.forget_latest();
        }

        let call = event.text("toolCallId").unwrap_or_default();
        match kind {
            "TEXT_MESSAGE_START" => self.texts.start(Opening::from_event(MessageType::Message, event), &mut context),
            "TEXT_MESSAGE_END" => self.texts.end(&MessageType::Message, &id, &mut context),
            "TEXT_MESSAGE_CHUNK" => self.texts.chunk(MessageType::Message, event, &mut context),
            "REASONING_MESSAGE_START"
            | "THINKING_TEXT_MESSAGE_START"
            | "REASONING_MESSAGE_END"
            | "THINKING_TEXT_MESSAGE_END"
            | "REASONING_MESSAGE_CHUNK"
                if self.rules.reasoning == Reasoning::Drop =>
            {
                drop_reasoning(&mut context)
            }
            "REASONING_MESSAGE_START" | "THINKING_TEXT_MESSAGE_START" => {
                self.texts.start(Opening::from_event(MessageType::Reasoning, event), &mut context)
            }
            "REASONING_MESSAGE_END" | "THINKING_TEXT_MESSAGE_END" => {
                self.texts.end(&MessageType::Reasoning, &id, &mut context)
            }
            "REASONING_MESSAGE_CHUNK" => self.texts.chunk(MessageType::Reasoning, event, &mut context),
            "TOOL_CALL_START" => self.calls.start(event, &mut context),
            "TOOL_CALL_END" => self.calls.end(&call, &mut context),
            "TOOL_CALL_CHUNK" => self.calls.chunk(event, &mut context),
            "TOOL_CALL_RESULT" => {
                note_other_call(&self.approved, &self.calls, &call, &mut context);
                self.calls.result(event, &mut context)
            }
            "MESSAGES_SNAPSHOT" => {
                let keeps_reasoning = self.rules.reasoning == Reasoning::Keep;
                let Self { start, texts, calls, .. } = self;
                SnapshotReader { start, texts, calls, keeps_reasoning, context }.read(&event.list("messages"))
            }
            "RUN_FINISHED" => self.finish(event, sink),
            _ => {
                context.sink.emit(&AgentEvent::Ignored)?;
                self.kept.keep(text, event, &mut context)
            }
        }
    }

    /// Reads an event that is no part of the answer.
    fn beside(&mut self, kind: &str, text: &str, event: &Fields<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let mut context = Context { sink, shared: &mut self.shared };
        context.release_output()?;
        match kind {
            "CUSTOM" if event.text("name").as_deref() == Some("on_interrupt") => {
                // An outcome may say the same later, and better.
                if self.asked.len() < MAX_ASKED {
                    context.shared.count_held(text.len())?;
                    self.asked.push(AgentQuestion::from_event(event, &self.thread));
                }
                return context.sink.emit(&AgentEvent::KeepAlive);
            }
            "STATE_SNAPSHOT" => {
                self.calls.has_state = true;
                if let Some(snapshot) = event.get("snapshot").filter(|_| self.calls.iter().any(Call::lacks_arguments)) {
                    learn_from_state(snapshot, &mut self.calls, &mut context)?;
                }
            }
            "STEP_STARTED" => self.calls.has_state = true,
            _ => {}
        }
        self.kept.keep(text, event, &mut context)
    }

    /// A value that only the agent can read, for a message or a call.
    fn seal(&mut self, text: &str, event: &Fields<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let mut context = Context { sink, shared: &mut self.shared };
        let entity = super::ids::key(&event.text("entityId").unwrap_or_default());
        if let Some(value) = event.get("encryptedValue").map(Json::from_raw) {
            if context.seal_held(&entity, &value) || self.texts.seal(&entity, &value, &context) {
                return context.sink.emit(&AgentEvent::KeepAlive);
            }
            if event.text("subtype").as_deref() != Some("message") && self.calls.seal(&entity, &value, &context) {
                return context.sink.emit(&AgentEvent::KeepAlive);
            }
        }

        context.shared.losses.lost(ContentKind::Opaque, "it comes after its message has ended");
        self.kept.keep(text, event, &mut context)
    }

    /// A frame without a type.
    fn untyped(&mut self, text: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(complaint) = Complaint::from_unknown_object(text.as_bytes()) else {
            return sink.emit(&AgentEvent::Ignored);
        };
        self.close_open(sink)?;
        self.has_ended = true;
        let (code, message) = complaint.into_error();
        end_failed(&code, &message, None, sink)
    }

    /// The run failed.
    fn fail(&mut self, event: &Fields<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.close_open(sink)?;
        self.has_ended = true;
        let code = event.text("code").unwrap_or_default();
        let message = event.text("message").unwrap_or(Cow::Borrowed("the agent failed"));
        end_failed(&code, &message, read_usage(event), sink)
    }

    /// Ends what has ended, of a run that fails: the rest is half.
    fn close_open(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        Context { sink, shared: &mut self.shared }.release()
    }

    /// The stream broke off. What came stands.
    pub(super) fn flush(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.has_ended { Ok(()) } else { self.close_open(sink) }
    }

    /// The run is complete, or waits for something.
    fn finish(&mut self, event: &Fields<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let outcome = Outcome::read(event);
        let mut context = Context { sink, shared: &mut self.shared };
        self.texts.finish(&mut context)?;
        context.release()?;
        let asked = match &outcome {
            Outcome::Interrupt(interrupts) => interrupts
                .iter()
                .enumerate()
                .filter_map(|(place, raw)| AgentQuestion::from_outcome(raw, place))
                .collect(),
            Outcome::Success(_) => std::mem::take(&mut self.asked),
            Outcome::Cancelled => Vec::new(),
        };
        self.ask(&outcome, &asked, sink)?;

        let usage = read_usage(event).map(JsonRef::Owned);
        let result = event.get("result");
        let end = if matches!(outcome, Outcome::Cancelled) { End::Canceled } else { End::Completed };
        self.has_ended = true;
        sink.emit(&AgentEvent::Response(ResponseEvent {
            end: Some(end),
            usage,
            extra: result.map(|result| (Cow::Borrowed("result"), result)).into_iter().collect(),
            ..ResponseEvent::default()
        }))
    }

    /// Ends the calls, and emits what the agent waits for.
    fn ask(&mut self, outcome: &Outcome<'_>, asked: &[AgentQuestion], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Self { rules, calls, start, shared, .. } = self;
        let context = &mut Context { sink, shared };
        let is_asked_by_call = |call: &Call| {
            let is_in = |names: &[String]| !call.is_declared && names.contains(&call.name);
            if call.name == CONFIRMATION {
                Some(AnswerForm::Confirmed)
            } else if is_in(&rules.confirm_calls) {
                Some(AnswerForm::Confirmation)
            } else if is_in(&rules.input_calls) {
                Some(AnswerForm::Values)
            } else {
                None
            }
        };
        let is_complete = matches!(outcome, Outcome::Success(_));
        let is_concerned = |call: &Call| asked.iter().any(|asked| asked.call_id() == Some(&call.key));
        let is_clients = |call: &Call| match outcome {
            _ if is_concerned(call) || is_asked_by_call(call).is_some() => false,
            Outcome::Success(Some(named)) => named.contains(&call.key),
            Outcome::Success(None) if !call.is_declared => {
                asked.is_empty() && rules.unanswered_calls == UnansweredCalls::Tool
            }
            _ => call.is_declared,
        };
        calls.finish(context, is_clients)?;

        let latest = context.shared.latest_message().map(str::to_owned);
        let after = latest.or_else(|| start.after.clone()).or_else(|| (!start.is_answer).then(String::new));
        let scene = Scene::new(calls, after);
        for asked in asked {
            asked.emit(calls, &scene, context)?;
        }
        let waiting = calls.iter().filter(|call| is_complete && !call.is_answered && !call.was_shown_before());
        let waiting: Vec<AgentQuestion> =
            waiting.filter_map(|call| Some(AgentQuestion::of_call(call, is_asked_by_call(call)?))).collect();
        for asked in waiting {
            asked.emit(calls, &scene, context)?;
        }
        Ok(())
    }
}

fn drop_reasoning(context: &mut Context<'_>) -> Result<(), Fault> {
    context.shared.losses.lost(ContentKind::Reasoning, "left out by the agent's option reasoning");
    context.sink.emit(&AgentEvent::KeepAlive)
}

/// Notes that the agent ran another call of a tool than the one that was approved. LangGraph's tool node may.
fn note_other_call(approved: &[(String, String)], calls: &Calls, id: &str, context: &mut Context<'_>) {
    let Some(call) = calls.get(&super::ids::key(id)).filter(|call| call.was_shown_before() && !call.is_answered) else {
        return;
    };
    let is_approved = approved.iter().any(|(id, _)| *id == call.key);
    if !is_approved && approved.iter().any(|(_, name)| *name == call.name) {
        context
            .shared
            .losses
            .changed(ContentKind::Approval, "the agent ran another call of the tool than the one that was approved");
    }
}

fn end_failed(code: &str, message: &str, usage: Option<Json>, sink: &mut dyn EventSink) -> Result<(), Fault> {
    sink.emit(&AgentEvent::Response(ResponseEvent {
        end: Some(End::Failed),
        error: Some(AgentError::named(code, message)),
        usage: usage.map(JsonRef::Owned),
        ..ResponseEvent::default()
    }))
}
