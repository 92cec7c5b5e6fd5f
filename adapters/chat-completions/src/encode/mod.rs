//! Encodes steps as chunks (docs/protocols/chat-completions.md#stream): one deterministic state machine for each run.
//!
//! The one message of an answer has a text, a reasoning and calls, which grow independently. Each is fed by messages of
//! the run one after the other, in the order of their beginning ([`Lane`]); messages of different lanes may overlap.
//!
//! The same machine produces a whole answer: it then collects instead of writing. So the joined deltas of a stream
//! equal the text of a whole answer, and equal the history that a client sends back.
//!
//! Here: lanes, dispatch and the end. `texts` encodes text and reasoning, `calls` calls and their outputs, `asks`
//! questions to a person, `frames` the bytes of chunks, `answer` whole answers.

pub(crate) mod answer;
mod asks;
mod calls;
mod fields;
mod frames;
mod texts;

use std::sync::Arc;

use interlingua_adapter_kit::answer_parts::{MessageShape, is_filtered};
use interlingua_adapter_kit::contents::LossScope;
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_adapter_kit::openai_error::ErrorObject;
use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_adapter_kit::token_usage::TokenUsage;
use interlingua_core::call::RunView;
use interlingua_core::event::{End, Event};
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::pending::Pending;
use interlingua_core::run::{Message, Run};
use interlingua_core::step::Step;
use interlingua_core::{Fault, Json, Out, RunId};
use serde_json::json;

use crate::echo::Echo;
use crate::options::{Reasoning, ToolItems};
use crate::serve::MountedRoute;
use crate::{ids, losses, tags};
use answer::{Answer, Completion, ReasoningFields};
use fields::{Field, SentText};
use frames::{Envelope, Frames};

/// Encodes one run.
pub(crate) struct Encoder {
    shared: Arc<MountedRoute>,
    echo: Echo,
    envelope: Envelope,
    /// `None`: the answer is collected.
    frames: Option<Frames>,
    answer: Answer,
    /// The number of audios that a later one replaced in the answer.
    replaced_audios: usize,
    /// Messages before this one belong to turns that the client was shown already.
    first_message: usize,
    /// By the index of the message.
    lanes: Vec<Lane>,
    sequencers: [MessageSequencer; 3],
    emitted: [EmittedText; 3],
    joined: [SentText; 3],
    /// Characters of the text so far, for the places of annotations.
    characters: usize,
    calls: calls::Calls,
    losses: Losses,
}

/// The part of the answer that a message feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Text = 0,
    Reasoning = 1,
    Calls = 2,
    Hidden,
}

/// The end of an answer.
enum Ending<'r> {
    Finish(&'static str),
    Error(ErrorObject<'r>),
}

impl Encoder {
    /// An encoder for a stream.
    pub(crate) fn stream(shared: Arc<MountedRoute>, echo: Echo, run: &Run) -> Self {
        let mut encoder = Self::collecting(shared, echo, run.id, run.created_at);
        encoder.frames = Some(Frames::new(&encoder.envelope));
        encoder
    }

    fn collecting(shared: Arc<MountedRoute>, echo: Echo, run: RunId, created_at: u64) -> Self {
        let envelope = Envelope {
            id: ids::completion(run),
            created: created_at / 1000,
            model: echo.model.clone(),
            include_usage: echo.include_usage,
            service_tier: echo.service_tier,
        };
        Self {
            shared,
            echo,
            envelope,
            frames: None,
            answer: Answer::default(),
            replaced_audios: 0,
            first_message: 0,
            lanes: Vec::new(),
            sequencers: Default::default(),
            emitted: Default::default(),
            joined: Default::default(),
            characters: 0,
            calls: calls::Calls::default(),
            losses: Losses::new(),
        }
    }

    /// The content that the answer does not show, once its run has ended.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    /// Writes the whole answer of a run. Returns what it does not show.
    ///
    /// # Errors
    /// The run failed: the error, as an HTTP response.
    pub(crate) fn write_whole(shared: Arc<MountedRoute>, echo: Echo, view: RunView<'_>, out: &mut Out) -> Losses {
        let run = view.run();
        let mut encoder = Self::collecting(shared, echo, run.id, run.created_at);
        let ending = encoder.collect(view, out);
        match ending {
            Ending::Error(error) => error.write(None, out),
            Ending::Finish(reason) => encoder.write_completion(reason, run.usage().and_then(usage).as_ref(), out),
        }
        encoder.losses
    }

    /// The completion of a run, with the metadata that it has now. `None`: the run is no stored completion.
    pub(crate) fn stored(shared: Arc<MountedRoute>, view: RunView<'_>) -> Option<Json> {
        if !tags::is_completion(view.info) {
            return None;
        }

        let run = view.run();
        let mut encoder = Self::collecting(shared, Echo::from_labels(&view.info.labels)?, run.id, run.created_at);
        let Ending::Finish(reason) = encoder.collect(view, &mut Out::new()) else { return None };
        let (metadata, usage) = (tags::metadata(&view.info.tags), run.usage().and_then(usage));
        let completion = encoder.completion(reason).with_usage(usage.as_ref()).with_metadata(Some(&metadata));
        Some(Json::from_serialize(&completion))
    }

    /// The answer of a run's last turn, as its client was shown it.
    pub(crate) fn answer_of(shared: Arc<MountedRoute>, echo: Echo, view: RunView<'_>) -> Answer {
        let run = view.run();
        let mut encoder = Self::collecting(shared, echo, run.id, run.created_at);
        encoder.first_message = run.turns.last().map_or(0, |turn| turn.first_message);
        encoder.collect(view, &mut Out::new());
        encoder.answer
    }

    /// Goes through all steps of a run, and ends it as it stands.
    fn collect<'r>(&mut self, view: RunView<'r>, out: &mut Out) -> Ending<'r> {
        for step in view.record.steps(0) {
            if !matches!(step.event, Event::RunFinished { .. }) {
                self.encode(step, out);
            }
        }
        let run = view.run();
        // Between two turns, which only runs of other protocols have, the last one counts.
        let end = run.outcome().map_or(End::Completed, |(end, _)| end);
        self.conclude(run, end, out)
    }

    /// Writes an answer that asks these items, in a session that waits for them.
    pub(crate) fn write_questions(
        shared: Arc<MountedRoute>,
        echo: Echo,
        (id, now, agent): (RunId, u64, &str),
        (items, reason): (&[Pending], Option<&str>),
        stream: bool,
        out: &mut Out,
    ) {
        let mut encoder = Self::collecting(shared, echo, id, now);
        if stream {
            encoder.frames = Some(Frames::new(&encoder.envelope));
            encoder.begin(out);
        }
        let refused = encoder.ask_again(agent, items, reason, out);
        let ending = refused.map_or_else(|| Ending::Finish(encoder.reason()), Ending::Error);
        match (ending, stream) {
            (ending, true) => encoder.end(&ending, None, out),
            (Ending::Error(error), false) => error.write(None, out),
            (Ending::Finish(reason), false) => encoder.write_completion(reason, None, out),
        }
    }

    fn write_completion(&self, reason: &'static str, usage: Option<&Json>, out: &mut Out) {
        let metadata = Some(&self.echo.metadata).filter(|metadata| !metadata.is_empty());
        out.json(&self.completion(reason).with_usage(usage).with_metadata(metadata));
    }

    fn completion(&self, reason: &'static str) -> Completion<'_> {
        Completion::new(&self.envelope, &self.answer, self.reasoning_fields(), self.echo.functions, reason)
    }

    fn reasoning_fields(&self) -> ReasoningFields {
        let option = self.shared.options.reasoning;
        ReasoningFields {
            reasoning_content: matches!(option, Reasoning::ReasoningContent | Reasoning::Both),
            reasoning: matches!(option, Reasoning::Reasoning | Reasoning::Both),
        }
    }

    #[inline]
    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let message = match step.event {
            Event::ContentDelta { message, .. }
            | Event::ContentReplaced { message, .. }
            | Event::ContentStarted { message, .. }
            | Event::ContentFinished { message, .. }
            | Event::MessageFinished { message } => message as usize,
            Event::MessageStarted { message } => {
                self.start_message(message as usize, &step);
                message as usize
            }
            _ => return self.milestone(&step, out),
        };

        let Some(&lane) = self.lanes.get(message) else { return Flow::More };
        let Some(sequencer) = self.sequencers.get_mut(lane as usize) else { return Flow::More };
        let mut sequencer = std::mem::take(sequencer);
        sequencer.push(step, |step| match lane {
            Lane::Text | Lane::Reasoning => self.text_step(lane, step, out),
            Lane::Calls => self.call_step(step, out),
            Lane::Hidden => {}
        });
        self.sequencers[lane as usize] = sequencer;
        Flow::More
    }

    /// Steps that belong to no message.
    fn milestone(&mut self, step: &Step<'_>, out: &mut Out) -> Flow {
        match step.event {
            Event::RunStarted => self.begin(out),
            Event::RunFinished { end } => {
                let ending = self.conclude(step.run, end, out);
                self.end(&ending, step.run.usage().and_then(usage).as_ref(), out);
                return Flow::Close;
            }
            _ => {}
        }
        Flow::More
    }

    fn start_message(&mut self, index: usize, step: &Step<'_>) {
        if self.lanes.len() <= index {
            self.lanes.resize(index + 1, Lane::Hidden);
        }
        if let Some((_, message)) = step.message().filter(|_| index >= self.first_message) {
            self.lanes[index] = self.lane(message);
        }
    }

    /// The lane of a message. Depends on its announced type and role, which never change.
    fn lane(&self, message: &Message) -> Lane {
        let of_tools = match self.shared.options.tool_items {
            ToolItems::Text => Lane::Text,
            ToolItems::Reasoning if self.shared.options.reasoning != Reasoning::Hide => Lane::Reasoning,
            ToolItems::Reasoning | ToolItems::Hide => Lane::Calls,
        };
        match MessageShape::from_message(message) {
            MessageShape::Text | MessageShape::Error => Lane::Text,
            MessageShape::Reasoning if self.shared.options.reasoning == Reasoning::Hide => Lane::Hidden,
            MessageShape::Reasoning => Lane::Reasoning,
            MessageShape::FunctionCall => Lane::Calls,
            MessageShape::AgentCall | MessageShape::Output => of_tools,
            _ => Lane::Hidden,
        }
    }

    /// The first chunk. No other chunk contains the role.
    fn begin(&self, out: &mut Out) {
        if let Some(frames) = &self.frames {
            frames.delta(&json!({ "role": "assistant", "content": "", "refusal": null }), out);
        }
    }

    fn conclude<'r>(&mut self, run: &'r Run, end: End, out: &mut Out) -> Ending<'r> {
        let failed = ErrorObject::from_run(end, run.error());
        let ending = failed.map_or_else(|| self.finish(run, end, out), Ending::Error);
        self.note_losses(run, LossScope::new(matches!(ending, Ending::Error(_)), self.frames.is_some()));
        ending
    }

    /// Notes what the answer does not show.
    fn note_losses(&mut self, run: &Run, extent: LossScope) {
        losses::note(run, extent, &self.echo, &self.shared.options, &mut self.losses);
        if extent == LossScope::ErrorOnly {
            return;
        }
        for _ in 0..self.replaced_audios {
            self.losses.lost(ContentKind::AudioOut, "an answer has one audio: the last one");
        }
        if extent == LossScope::Whole {
            return;
        }
        let late = [
            (ContentKind::ClientCall, self.calls.held()),
            (ContentKind::Annotation, self.answer.annotations.len()),
            (ContentKind::ImageOut, self.answer.images.len()),
            (ContentKind::AudioOut, usize::from(self.answer.audio.is_some())),
        ];
        for (kind, count) in late {
            for _ in 0..count {
                self.losses.lost(kind, "it comes with the end of an answer, and the answer failed");
            }
        }
    }

    /// Encodes the end of a run: held calls, questions, and the fields of the answer as a whole.
    fn finish<'r>(&mut self, run: &'r Run, end: End, out: &mut Out) -> Ending<'r> {
        self.release_calls(out);
        if let Some(refused) = self.ask(&run.agent, &run.pending(), out) {
            return Ending::Error(refused);
        }
        if let Some(frames) = &self.frames {
            // Readers that fold deltas need an index in each entry of a list.
            if !self.answer.annotations.is_empty() {
                let indexed = self.answer.annotations.iter().enumerate().map(|(index, note)| indexed(index, note));
                frames.delta(&json!({ "annotations": indexed.collect::<Vec<_>>() }), out);
            }
            if !self.answer.images.is_empty() {
                frames.delta(&json!({ "images": self.answer.images }), out);
            }
            if let Some(audio) = &self.answer.audio {
                frames.delta(&json!({ "audio": { "id": audio.id, "transcript": audio.transcript } }), out);
                frames.delta(&json!({ "audio": { "data": audio.data } }), out);
                frames.delta(&json!({ "audio": { "expires_at": audio.expires_at } }), out);
            }
        }
        Ending::Finish(if end == End::Incomplete { incomplete_reason(run) } else { self.reason() })
    }

    /// Why an answer ended that is complete.
    fn reason(&self) -> &'static str {
        match (self.calls.shown(), self.echo.functions) {
            (0, _) => "stop",
            (_, true) => "function_call",
            (_, false) => "tool_calls",
        }
    }

    fn end(&self, ending: &Ending<'_>, usage: Option<&Json>, out: &mut Out) {
        match (ending, &self.frames) {
            (Ending::Finish(reason), Some(frames)) => frames.finish(reason, usage, out),
            (Ending::Error(error), Some(_)) => frames::error(error, out),
            (_, None) => {}
        }
    }

    /// Ends a stream for a reason outside the run.
    pub(crate) fn interrupt(fault: &Fault, out: &mut Out) {
        let mut error = ErrorObject::from_fault(fault);
        if fault.kind == interlingua_core::FaultKind::ShuttingDown {
            error.code = Some("server_shutting_down");
        }
        frames::error(&error, out);
    }

    fn note_change(&mut self, kind: ContentKind, how: &'static str) {
        self.losses.changed(kind, how);
    }

    /// Adds a text to a field of the answer. `place`: the message and the content that it belongs to.
    #[inline]
    fn write(&mut self, field: Field, place: (u32, u32), text: &str, out: &mut Out) {
        if text.is_empty() {
            return;
        }
        let joined = &mut self.joined[field as usize];
        if joined.place != Some(place) {
            let is_other = joined.place.is_some_and(|(message, _)| message != place.0);
            joined.place = Some(place);
            if is_other {
                let shared = Arc::clone(&self.shared);
                self.put(field, &shared.options.separator, out);
            }
            self.joined[field as usize].start = self.characters;
        }
        self.put(field, text, out);
    }

    #[inline]
    fn put(&mut self, field: Field, text: &str, out: &mut Out) {
        if text.is_empty() {
            return;
        }
        if field == Field::Content {
            self.characters += text.chars().count();
        }
        let Some(frames) = &self.frames else {
            match field {
                Field::Content => self.answer.content.push_str(text),
                Field::Refusal => self.answer.refusal.push_str(text),
                Field::Reasoning => self.answer.reasoning.push_str(text),
            }
            return;
        };
        match (field, self.shared.options.reasoning) {
            (Field::Content, _) => frames.text(b"{\"content\":", text, out),
            (Field::Refusal, _) => frames.text(b"{\"refusal\":", text, out),
            (Field::Reasoning, Reasoning::Reasoning) => frames.text(b"{\"reasoning\":", text, out),
            (Field::Reasoning, Reasoning::Both) => {
                frames.delta(&json!({ "reasoning_content": text, "reasoning": text }), out);
            }
            (Field::Reasoning, _) => frames.text(b"{\"reasoning_content\":", text, out),
        }
    }
}

/// The entry of a list in a delta.
fn indexed(index: usize, entry: &Json) -> Json {
    let mut fields: interlingua_core::Extra = entry.decode().unwrap_or_default();
    fields.set("index", Json::from_serialize(&index));
    Json::from_serialize(&fields)
}

/// Why an answer is not whole: a closed set of two.
fn incomplete_reason(run: &Run) -> &'static str {
    if is_filtered(run) { "content_filter" } else { "length" }
}

/// Usage under the names of this protocol.
fn usage(reported: &Json) -> Option<Json> {
    let usage = TokenUsage::parse(reported)?;
    let mut value = json!({
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
    });
    if let Some(cached) = usage.cached {
        value["prompt_tokens_details"] = json!({ "cached_tokens": cached });
    }
    if let Some(reasoning) = usage.reasoning {
        value["completion_tokens_details"] = json!({ "reasoning_tokens": reasoning });
    }
    Some(Json::from_serialize(&value))
}
