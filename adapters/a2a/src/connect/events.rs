//! The meaning of an agent's items: tasks, messages, statuses and artifacts as events of a turn.
//!
//! Not here: contents of artifacts (`artifacts`) and messages (`messages`), new messages of a history (`history`),
//! questions of a waiting task (`questions`), and the next request (`turn`).

use std::borrow::Cow;
use std::collections::HashSet;

use interlingua_adapter_kit::template::TextTemplate;
use interlingua_core::agent_event::{AgentError, AgentEvent, Awaits, ContentValue, JsonRef, ResponseEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use interlingua_core::{End, Fault};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::artifacts::Artifacts;
use super::content::{self, PartKind};
use super::held_texts::HeldStatus;
use super::options::{UpstreamOptions, UpstreamStatusText};
use super::replies::Replies;
use super::session::{LongCall, SessionState, storable};
use super::texts::{MessagePosition, is_no_text, message_digest, plain_text};
use super::wire::{self, ArtifactUpdate, Kind, Message, Task, filled};
use super::written::Mode;
use crate::dialect::WireFormat;
use crate::wire::{Part, TaskState};

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The first item of a stream that answers a message: it may show the task as it was before that message.
    Start,
    /// A stream.
    Stream,
    /// A body: the task as it is.
    Body,
}

/// Reads the items of one turn.
pub(super) struct ItemReader {
    pub(super) form: WireFormat,
    pub(super) status_text: UpstreamStatusText,
    follow_auth: bool,
    /// The id of the message that was sent: what stands before it in a history is not of this turn. Empty before that.
    pub(super) message_id: String,
    /// The task of this turn, once it is known.
    pub(super) task: Option<String>,
    /// The state for the next turn.
    pub(super) session: SessionState,
    pub(super) artifacts: Artifacts,
    /// Digests of the status messages that were read.
    pub(super) messages: HashSet<u64>,
    /// Long-running calls that were not emitted: whose they are is known when the task waits or ends.
    pub(super) long_running_calls: Vec<LongCall>,
    /// Messages that came instead of a task, or beside it.
    pub(super) replies: Replies,
    /// The current item arrived in a stream.
    pub(super) is_streamed: bool,
    /// The agent said something of a task.
    has_task: bool,
    /// Messages of statuses that an artifact may repeat.
    pub(super) held: Vec<HeldStatus>,
    /// Plain text of statuses.
    pub(super) plain: String,
    /// Something of the answer was emitted.
    pub(super) answered: bool,
    started: bool,
    /// The end of the turn was emitted.
    pub(super) ended: bool,
    /// Items of this turn's task.
    pub(super) items: u64,
    /// The task was subscribed to after a cut. A piece that came about then may be in the snapshot and in the stream:
    /// what the task says at its end is right.
    pub(super) was_taken_up: bool,
    /// Where pieces of text with escapes are written.
    unescaped: String,
    /// The shape of the frame that was read last, if all it did was to append a text. An item of that shape names the
    /// same task, context and artifact, so that reading it changes nothing else either, as long as nothing comes
    /// between.
    template: TextTemplate,
}

/// `metadata.agent_api` of a task or a status.
#[derive(Default, Deserialize)]
#[serde(default)]
struct AgentApi<'a> {
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    incomplete: Option<bool>,
    error: Option<NamedError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedError {
    code: Option<String>,
}

impl<'a> AgentApi<'a> {
    fn read(metadata: Option<&'a RawValue>) -> Self {
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            agent_api: AgentApi<'a>,
        }
        let outer = metadata.and_then(|raw| serde_json::from_str::<Outer<'_>>(raw.get()).ok());
        outer.map(|outer| outer.agent_api).unwrap_or_default()
    }
}

impl ItemReader {
    pub(super) fn new(options: &UpstreamOptions, session: SessionState) -> Self {
        let goes_on = session.task_id.is_some();
        let task = session.task_id.clone();
        let known = if goes_on { session.artifacts.clone() } else { Vec::new() };
        Self {
            form: WireFormat::V1,
            status_text: options.status_text,
            follow_auth: options.follow_auth,
            message_id: String::new(),
            task,
            session,
            artifacts: Artifacts::resumed(known),
            messages: HashSet::new(),
            long_running_calls: Vec::new(),
            replies: Replies::default(),
            is_streamed: false,
            has_task: false,
            held: Vec::new(),
            plain: String::new(),
            answered: false,
            started: false,
            ended: false,
            items: 0,
            was_taken_up: false,
            unescaped: String::new(),
            template: TextTemplate::default(),
        }
    }

    /// The hot path: a frame of the same shape as the last one, whose text is appended to the same artifact without
    /// parsing the rest again. False if it is anything else; then nothing was done.
    ///
    /// # Errors
    /// Those of the sink.
    #[inline]
    pub(super) fn read_text(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<bool, Fault> {
        let Some(text) = self.template.text(data) else { return Ok(false) };
        let is_read = self.artifacts.append_to_latest(text, sink)?;
        self.items += u64::from(is_read);
        Ok(is_read)
    }

    /// Something else happens than one more piece of the same text: the next frame is parsed.
    pub(super) fn forget_shape(&mut self) {
        self.template.forget();
    }

    /// The amount of content read so far, without repetitions: it grows when a task makes progress.
    pub(super) fn progress(&self) -> u64 {
        self.artifacts.emitted + self.replies.emitted + self.messages.len() as u64 + u64::from(self.started)
    }

    /// Reads an item. `data`: the frame or body that it came in.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn read(
        &mut self,
        item: Kind<'_>,
        data: &[u8],
        source: Source,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.ended {
            // A task's end is final, whatever the agent says after it.
            return sink.emit(&AgentEvent::Ignored);
        }
        let (task, context) = match &item {
            Kind::Task(task) => (filled(&task.id), filled(&task.context_id)),
            Kind::Message(message) => (filled(&message.task_id), filled(&message.context_id)),
            Kind::Status(update) => (filled(&update.task_id), filled(&update.context_id)),
            Kind::Artifact(update) => (filled(&update.task_id), filled(&update.context_id)),
        };
        let is_first = self.items == 0 && source != Source::Stream;
        if !self.learn(task, context, is_first) {
            // Another task's event: of a server that mixes up its subscribers.
            return sink.emit(&AgentEvent::Ignored);
        }
        self.items += 1;
        self.has_task |= !matches!(item, Kind::Message(_));

        match item {
            Kind::Task(task) => self.task(task, source, sink),
            Kind::Message(message) => self.reply(message, sink),
            Kind::Status(update) => self.status(update.status.unwrap_or_default(), update.metadata, source, sink),
            Kind::Artifact(update) => self.artifact(update, data, sink),
        }
    }

    /// More of an artifact.
    fn artifact(&mut self, update: ArtifactUpdate<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.start(sink)?;
        let Some(mut artifact) = update.artifact else { return sink.emit(&AgentEvent::Ignored) };
        let is_append = update.append == Some(true);
        if self.was_taken_up
            && is_append
            && let Some(text) = artifact.only_text(&mut self.unescaped)
            && self.artifacts.skip_repeated(filled(&artifact.artifact_id).unwrap_or_default(), text)
        {
            return Ok(());
        }
        if is_append
            && update.last_chunk != Some(true)
            && let Some(text) = artifact.only_text(&mut self.unescaped)
            && let Some(id) = filled(&artifact.artifact_id)
            && self.artifacts.append_text(id, text, sink)?
        {
            self.template.learn(data, text);
            return Ok(());
        }
        let mode = if is_append { Mode::Append } else { Mode::Replace };
        let parts = self.parts_of(&mut artifact);
        let id = filled(&artifact.artifact_id).unwrap_or_default();
        if !is_append || !self.artifacts.has(id) {
            self.compare_held(&parts, sink)?;
        }
        if !is_append && self.repeats_answer(id, &parts, &[]) {
            self.artifacts.add_known(id, &parts);
            return Ok(());
        }
        self.artifacts.read(id, &artifact, &parts, mode, self.task.as_deref(), sink)?;
        // A message that has ended could not be corrected any more.
        if update.last_chunk == Some(true) && !self.was_taken_up {
            self.artifacts.finish(filled(&artifact.artifact_id).unwrap_or_default(), sink)?;
        }
        Ok(())
    }

    /// The parts of an artifact that are part of the answer.
    fn parts_of<'a>(&mut self, artifact: &mut wire::Artifact<'a>) -> Vec<Part<'a>> {
        let mut parts = artifact.take_parts(self.form);
        self.take_long_running_calls(&mut parts);
        parts
    }

    /// True for an artifact that is a text which was emitted before: under the id of another artifact, or of a message.
    /// `listed`: the artifacts beside it.
    fn repeats_answer(&mut self, id: &str, parts: &[Part<'_>], listed: &[&str]) -> bool {
        let is_answer = |part: &Part<'_>| !is_no_text(part) && content::kind(part) == PartKind::Plain;
        if parts.is_empty() || !parts.iter().all(is_answer) || self.artifacts.has(id) {
            return false;
        }
        let text = plain_text(parts);
        self.replies.repeat(&text) || self.artifacts.repeats_pieces(&text, |id| listed.contains(&id))
    }

    /// Whether a status of a task that was subscribed to after a cut may be the last one of its stream, so that the
    /// task itself must be requested.
    pub(super) fn is_to_be_confirmed(&self, item: &Kind<'_>) -> bool {
        let Kind::Status(update) = item else { return false };
        let state = update.status.as_ref().and_then(wire::Status::state);
        self.was_taken_up && !matches!(state, None | Some(TaskState::Submitted | TaskState::Working))
    }

    /// Takes over the ids of an item. False if it belongs to another task.
    fn learn(&mut self, task: Option<&str>, context: Option<&str>, is_first: bool) -> bool {
        if let Some(task) = task.filter(|task| self.task.as_deref() != Some(task)).and_then(storable) {
            match &self.task {
                // The first answer to a message says which task it went to.
                Some(_) if !is_first => return false,
                _ => {
                    if self.session.task_id.as_deref() != Some(task.as_str()) {
                        self.session.forget_task();
                        self.artifacts = Artifacts::default();
                    }
                    self.session.last_task_id = Some(task.clone());
                    self.task = Some(task);
                }
            }
        }
        // A task stays in its context, even if the agent names another one for the answer to its question.
        let is_known = self.session.context_id.is_some() && self.task.is_some() && self.task == self.session.task_id;
        let is_new = |context: &&str| !is_known && self.session.context_id.as_deref() != Some(*context);
        if let Some(context) = context.filter(is_new).and_then(storable) {
            self.session.context_id = Some(context);
        }
        true
    }

    /// The message goes to a task of its own.
    pub(super) fn abandon_task(&mut self) {
        self.task = None;
        self.session.forget_task();
        self.artifacts = Artifacts::default();
    }

    /// The agent works.
    pub(super) fn start(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        let id = self.task.as_deref().map(Cow::Borrowed);
        sink.emit(&AgentEvent::Response(ResponseEvent { id, started: true, ..ResponseEvent::default() }))
    }

    /// Emits the content of a complete task that was not emitted before.
    fn task(&mut self, task: Task<'_>, source: Source, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let mut artifacts = task.artifacts.unwrap_or_default();
        let mut parts: Vec<Vec<Part<'_>>> =
            artifacts.iter_mut().map(|artifact| artifact.take_parts(self.form)).collect();
        let ids: Vec<&str> =
            artifacts.iter().map(|artifact| filled(&artifact.artifact_id).unwrap_or_default()).collect();
        // Messages that earlier items held back precede those of this one.
        for parts in &parts {
            self.compare_held(parts, sink)?;
        }
        self.release_statuses(sink)?;

        if let Some(history) = task.history {
            // Some servers put the message of the last status into the history, too: it is read with that status.
            let status = task.status.as_ref().filter(|status| status.state() != Some(TaskState::Working));
            let current = status.and_then(|status| status.message).map(message_digest);
            self.missed(history, current, sink)?;
        }
        let is_settled = !matches!(
            task.status.as_ref().and_then(wire::Status::state),
            None | Some(TaskState::Submitted | TaskState::Working)
        );
        // A snapshot has no order between its status and its artifacts. The pieces of a text that is still growing
        // follow this snapshot, so that a call or an output in the status must precede the text, not interrupt it.
        if !is_settled && let Some(raw) = task.status.as_ref().and_then(|status| status.message) {
            self.status_message(raw, true, sink)?;
        }
        // The history lists the calls that run while the task waits.
        parts.iter_mut().for_each(|parts| self.take_long_running_calls(parts));
        let mode = if self.was_taken_up && is_settled { Mode::Replace } else { Mode::Snapshot };
        for ((artifact, parts), id) in artifacts.iter().zip(&parts).zip(&ids) {
            self.compare_held(parts, sink)?;
            if self.repeats_answer(id, parts, &ids) {
                self.artifacts.add_known(id, parts);
            } else {
                self.artifacts.read(id, artifact, parts, mode, self.task.as_deref(), sink)?;
            }
        }
        if !is_settled && !is_repeated_later(task.metadata) {
            self.release_statuses(sink)?;
        }
        self.status(task.status.unwrap_or_default(), task.metadata, source, sink)
    }

    fn status(
        &mut self,
        status: wire::Status<'_>,
        metadata: Option<&RawValue>,
        source: Source,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let state = status.state();
        let message = status.message;
        if matches!(state, Some(state) if state != TaskState::Submitted) {
            self.start(sink)?;
        }

        match state {
            None | Some(TaskState::Submitted | TaskState::Working) => {
                if let Some(usage) = AgentApi::read(metadata).usage {
                    sink.emit(&usage_event(usage))?;
                }
                if let Some(metadata) = metadata {
                    self.agno_progress(metadata, sink)?;
                }
                message.map_or(Ok(()), |raw| self.status_message(raw, is_repeated_later(metadata), sink))
            }
            Some(TaskState::InputRequired | TaskState::AuthRequired) if self.is_stale(message, source) => Ok(()),
            Some(TaskState::AuthRequired) if self.follow_auth => {
                message.map_or(Ok(()), |raw| self.shown_message(raw, sink))
            }
            Some(TaskState::InputRequired) => self.wait(Awaits::Input, message, metadata, sink),
            Some(TaskState::AuthRequired) => self.wait(Awaits::Auth, message, metadata, sink),
            Some(TaskState::Completed) => self.complete(message, metadata, sink),
            Some(TaskState::Canceled) => self.finish(End::Canceled, None, metadata, None, sink),
            Some(TaskState::Failed) => self.fail(End::Failed, message, metadata, sink),
            Some(TaskState::Rejected) => self.fail(End::Rejected, message, metadata, sink),
        }
    }

    /// True for a task that is shown as it was before the message reached it.
    fn is_stale(&self, message: Option<&RawValue>, source: Source) -> bool {
        let waited = self.task.is_some() && self.task == self.session.task_id;
        source == Source::Start && waited && message.map(message_digest) == self.session.status_message
    }

    /// The task waits: the turn has ended, and the next message continues the task.
    fn wait(
        &mut self,
        awaits: Awaits,
        message: Option<&RawValue>,
        metadata: Option<&RawValue>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if let Some(mut message) = message.and_then(wire::message) {
            self.compare_held(&message.take_parts(self.form), sink)?;
        }
        self.settle_statuses(false, sink)?;
        if let Some(raw) = message {
            self.ask(raw, awaits, sink)?;
        }
        self.ask_long_running_calls(sink)?;
        self.session.status_message = message.map(message_digest);
        self.session.task_id.clone_from(&self.task);
        self.session.keep_artifacts(self.artifacts.known());
        self.finish(End::Completed, None, metadata, Some(awaits), sink)
    }

    fn complete(
        &mut self,
        message: Option<&RawValue>,
        metadata: Option<&RawValue>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let mut is_answered = self.answered || self.artifacts.emitted > 0;
        if let Some(raw) = message
            && let Some(mut message) = wire::message(raw)
            && self.mark_read(raw)
        {
            let parts = message.take_parts(self.form);
            self.compare_held(&parts, sink)?;
            self.settle_statuses(false, sink)?;
            // Many agents repeat in the end what they streamed before.
            let text = plain_text(&parts);
            let is_repeated = self.artifacts.have_text(&text) || self.replies.repeat(&text);
            if !is_repeated || parts.iter().any(is_no_text) {
                self.emit_parts(&message, &parts, MessagePosition::Answer, sink)?;
            }
            is_answered |= !parts.is_empty();
        }
        // Agents that say everything in statuses, and nothing else.
        let is_answer = !is_answered && self.status_text == UpstreamStatusText::Auto && !self.plain.is_empty();
        self.settle_statuses(is_answer, sink)?;
        if is_answer {
            let text = std::mem::take(&mut self.plain);
            let value = ContentValue::Text(Cow::Borrowed(text.as_str()));
            let id = format!("{}-answer", self.task.as_deref().unwrap_or("task"));
            sink.emit(&AgentEvent::whole(&id, MessageType::Message, Role::Assistant, value))?;
        }
        self.finish(End::Completed, None, metadata, None, sink)
    }

    fn fail(
        &mut self,
        end: End,
        message: Option<&RawValue>,
        metadata: Option<&RawValue>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let mut code = AgentApi::read(metadata).error.and_then(|error| error.code);
        let mut text = String::new();
        if let Some(mut message) = message.and_then(wire::message) {
            text = plain_text(&message.take_parts(self.form));
            code = code.or_else(|| AgentApi::read(message.metadata).error.and_then(|error| error.code));
        }
        let error = match (end, text.is_empty()) {
            // Nothing was said, and there are better words for that than any of these.
            (_, true) if code.is_none() => None,
            (End::Rejected, _) => Some((code.unwrap_or_default(), text)),
            _ => Some((code.unwrap_or_else(|| "A2A_TASK_FAILED".to_owned()), text)),
        };
        self.finish(end, error, metadata, None, sink)
    }

    fn finish(
        &mut self,
        end: End,
        error: Option<(String, String)>,
        metadata: Option<&RawValue>,
        awaits: Option<Awaits>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        self.ended = true;
        self.settle_statuses(false, sink)?;
        if awaits.is_none() {
            self.release_long_running_calls(sink)?;
            self.session.forget_task();
        }
        let found = AgentApi::read(metadata);
        let is_cut = end == End::Completed && found.incomplete == Some(true);
        sink.emit(&AgentEvent::Response(ResponseEvent {
            end: Some(if is_cut { End::Incomplete } else { end }),
            error: error.map(|(code, message)| AgentError::Named { code: code.into(), message: message.into() }),
            awaits,
            usage: found.usage.map(JsonRef::Borrowed),
            ..ResponseEvent::default()
        }))
    }

    /// A message instead of a task: the whole answer, or a piece of it in a stream. Some agents stream a message piece
    /// by piece, each under the same id, and a task that ends with it.
    fn reply(&mut self, mut message: Message<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.is_streamed && message.is_from_user() {
            // Some servers repeat the message that was sent.
            return sink.emit(&AgentEvent::Ignored);
        }
        self.start(sink)?;
        self.release_statuses(sink)?;
        let parts = message.take_parts(self.form);
        if !self.is_streamed {
            self.emit_parts(&message, &parts, MessagePosition::Reply, sink)?;
            return self.finish(End::Completed, None, message.metadata, None, sink);
        }
        self.answered |= self.replies.read(&message, &parts, sink)?;
        Ok(())
    }

    /// The stream has ended. True if messages without a task were the whole answer: the turn is complete.
    ///
    /// # Errors
    /// Those of the sink.
    pub(super) fn end_replies(&mut self, sink: &mut dyn EventSink) -> Result<bool, Fault> {
        if self.ended || self.has_task || !self.replies.were_read() {
            return Ok(false);
        }
        let usage = self.replies.usage();
        self.finish(End::Completed, None, usage.as_deref(), None, sink)?;
        Ok(true)
    }
}

/// True for metadata of ADK, or of a framework made from it: an artifact repeats the message of such a status.
fn is_repeated_later(metadata: Option<&RawValue>) -> bool {
    metadata.is_some_and(|metadata| metadata.get().contains("_event_id\""))
}

fn usage_event(usage: &RawValue) -> AgentEvent<'_> {
    AgentEvent::Response(ResponseEvent { usage: Some(JsonRef::Borrowed(usage)), ..ResponseEvent::default() })
}

#[cfg(test)]
mod tests {
    use interlingua_core_testkit::Recorder;

    use super::super::wire::Item;
    use super::*;

    fn piece(artifact: &str, append: bool, text: &str) -> String {
        let artifact = format!(r#"{{"artifactId":"{artifact}","parts":[{{"text":"{text}"}}]}}"#);
        format!(r#"{{"artifactUpdate":{{"taskId":"T","artifact":{artifact},"append":{append}}}}}"#)
    }

    #[test]
    fn only_a_piece_like_the_last_one_is_read_without_parsing_it() {
        let options: UpstreamOptions = serde_json::from_str("{}").expect("options");
        let mut reader = ItemReader::new(&options, SessionState::default());
        let mut recorder = Recorder::new(Vec::new());
        let steps = [
            (piece("a", false, "one"), false),
            (piece("a", true, "two"), false),
            (piece("a", true, "three"), true),
            (piece("a", true, ""), false),
            (piece("a", true, r#"say \"four\""#), false),
            (piece("a", true, "five"), true),
            (piece("b", false, "one"), false),
            (piece("a", true, "six"), false),
            (piece("b", true, "two"), false),
            (piece("b", true, "three"), true),
        ];

        for (frame, is_known) in steps {
            let data = frame.as_bytes();
            assert_eq!(reader.read_text(data, &mut recorder).expect("a record"), is_known, "{frame}");
            if !is_known {
                reader.forget_shape();
                let item = serde_json::from_slice::<Item<'_>>(data).ok().and_then(Item::into_kind).expect("an item");
                reader.read(item, data, Source::Stream, &mut recorder).expect("a record");
            }
        }
        assert_eq!(reader.items, 10);
        let texts: Vec<String> = recorder.record().run().messages.iter().map(|message| message.text()).collect();
        assert_eq!(texts, [r#"onetwothreesay "four"fivesix"#, "onetwothree"]);
    }
}
