//! Chunks to events: which choice counts, what its fields mean, and how the answer ends.
//!
//! See `docs/protocols/chat-completions.md#reading-the-stream`.

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentError, AgentEvent, JsonRef, ResponseEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::AgentRequest;
use interlingua_core::{End, Extra, Fault, FaultKind, Json, Losses, opaque};
use serde_json::value::RawValue;

use super::besides::{Audio, Details, Entries, ExecutedTools};
use super::calls::Calls;
use super::chunk::{CallPiece, Choice, Chunk, Delta};
use super::finish::{Reason, to_usage};
use super::messages::Messages;
use super::options::ThinkTags;
use super::state::ReasoningField;
use super::think::Splitter;
use interlingua_core::held::Held;
use interlingua_core::lenient::List;
use interlingua_core::model_error::Complaint;
use interlingua_core::template::TextTemplate;
use interlingua_core::turn_ids::TurnIds;

/// The index of a call in the form before `tool_calls`, which knew but one.
const FUNCTION_CALL: i64 = -1;

/// Reads the chunks of one answer.
#[derive(Debug)]
pub(super) struct Reader {
    ids: TurnIds,
    started: bool,
    ended: bool,
    messages: Messages,
    calls: Calls,
    reason: Option<Reason>,
    /// The last one that was not `null`: some servers count in every chunk.
    usage: Option<Json>,
    reasoning: Option<ReasoningField>,
    held: Held,
    audio: Audio,
    details: Details,
    annotations: Entries,
    executed: ExecutedTools,
    /// The shape of a piece of text.
    template: TextTemplate,
    pub(super) losses: Losses,
}

impl Reader {
    /// `origin`: the author's name of opaque values; `losses`: those of the request.
    pub(super) fn new(request: &AgentRequest, tags: ThinkTags, origin: String, losses: Losses) -> Self {
        Self {
            ids: TurnIds::new(request),
            started: false,
            ended: false,
            messages: Messages::new(Splitter::new(tags)),
            calls: Calls::new(origin),
            template: TextTemplate::default(),
            losses,
            reason: None,
            usage: None,
            reasoning: None,
            held: Held::default(),
            audio: Audio::default(),
            details: Details::default(),
            annotations: Entries::default(),
            executed: ExecutedTools::default(),
        }
    }

    /// True if the answer can end here: the server said why.
    pub(super) const fn has_reason(&self) -> bool {
        self.reason.is_some()
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) const fn has_usage(&self) -> bool {
        self.usage.is_some()
    }

    /// The field that reasoning came in.
    pub(super) const fn reasoning_field(&self) -> Option<ReasoningField> {
        self.reasoning
    }

    /// Reads a chunk that is a piece of text like the last one. False: it is another one.
    #[inline]
    pub(super) fn read_text(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<bool, Fault> {
        // The text may stand in the template's memory.
        let mut template = std::mem::take(&mut self.template);
        let read = template.text(data).map(|text| self.text(text, sink));
        self.template = template;
        read.transpose().map(|read| read.is_some())
    }

    /// A piece of the content.
    #[inline]
    fn text(&mut self, text: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if !text.is_empty() {
            self.calls.close_whole(&mut self.ids, sink)?;
            self.settle();
        }
        self.messages.content(text, &mut self.ids, sink)
    }

    /// Reads a chunk, or a whole completion. `data`: its JSON.
    pub(super) fn read(&mut self, chunk: Chunk<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let other = chunk.other_protocol().filter(|_| !self.started && chunk.choices.is_none());
        if let Some(protocol) = other {
            let message = "the agent does not answer with Chat Completions";
            return Err(Fault::new(FaultKind::UpstreamGarbage, message)
                .with_detail(format_args!("set protocol = \"{protocol}\" if its URL is right")));
        }

        let is_error = chunk.is_error();
        if !is_error && chunk.choices.is_none() && chunk.usage().is_none() {
            // JSON of another kind, such as a ping, or an error in fields of its own.
            return match Complaint::from_unknown_object(data) {
                Some(complaint) => self.fail(complaint, sink),
                None => sink.emit(&AgentEvent::Ignored),
            };
        }

        self.read_usage(&chunk);
        if !is_error || self.started {
            self.start(chunk.id.as_deref(), sink)?;
        }

        for (name, sources) in [("citations", chunk.citations), ("search_results", chunk.search_results)] {
            if let Some(sources) = sources {
                // The whole list comes again with every chunk.
                self.messages.of_text.set(name, Json::from_raw(sources));
            }
        }

        if !is_error && let Some(text) = plain_text(&chunk) {
            self.template.learn(data, text);
            return self.text(text, sink);
        }

        if let Some(choice) = self.choose(chunk.choices.unwrap_or_default(), sink)? {
            self.choice(choice, sink)?;
        }

        if is_error {
            let complaint = Complaint::parse(data).unwrap_or_default();
            return self.fail(complaint, sink);
        }
        Ok(())
    }

    /// Reads what a chunk says of tokens, and nothing else.
    pub(super) fn read_usage(&mut self, chunk: &Chunk<'_>) {
        if let Some(usage) = chunk.usage() {
            self.usage = Some(Json::from_raw(usage));
        }
    }

    fn start(&mut self, id: Option<&str>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.started {
            return Ok(());
        }

        self.started = true;
        if let Some(id) = id {
            self.ids.set_answer(id);
        }

        let id = id.map(Cow::Borrowed);
        sink.emit(&AgentEvent::Response(ResponseEvent { id, started: true, ..ResponseEvent::default() }))
    }

    /// The choice that counts. The index of a single one does not: old servers count tokens with it.
    fn choose<'a>(&self, choices: List<Choice<'a>>, sink: &mut dyn EventSink) -> Result<Option<Choice<'a>>, Fault> {
        if choices.rest.is_empty() {
            return Ok(choices.first);
        }

        let mut all: Vec<Choice<'a>> = choices.into_iter().collect();
        let main = all.iter().position(|choice| choice.index == Some(0)).unwrap_or(0);
        let mut main = all.swap_remove(main);
        for other in all {
            let has_calls = |choice: &Choice<'_>| {
                choice
                    .delta
                    .as_ref()
                    .is_some_and(|delta| delta.tool_calls.first.is_some() || delta.function_call.is_some())
            };
            if has_calls(&other) && !has_calls(&main) && self.calls.is_empty() {
                // Proxies put the text into one choice and the calls into another.
                if let Some(delta) = other.delta {
                    let into = main.delta.get_or_insert_default();
                    into.tool_calls = delta.tool_calls;
                    into.function_call = delta.function_call;
                }
            } else {
                // Another sample of the answer, which was not asked for.
                sink.emit(&AgentEvent::Ignored)?;
            }
        }
        Ok(Some(main))
    }

    fn choice(&mut self, choice: Choice<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if let Some(delta) = choice.delta {
            self.delta(delta, sink)?;
        }

        if let Some(word) = choice.finish_reason {
            let (reason, is_known) = Reason::parse(&word);
            if !is_known {
                sink.emit(&AgentEvent::Ignored)?;
            }
            // Servers that send two mean the first, unless the second says that something is missing.
            self.reason = Some(self.reason.map_or(reason, |first| first.or_worse(reason)));
        }
        Ok(())
    }

    #[inline]
    fn delta(&mut self, delta: Delta<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.reasoning(&delta, sink)?;
        if delta.content.first.is_some() {
            self.calls.close_whole(&mut self.ids, sink)?;
            self.settle();
        }

        for part in delta.content {
            let (ids, messages) = (&mut self.ids, &mut self.messages);
            for thought in part.thinking {
                messages.reasoning(thought.text.as_deref().unwrap_or_default(), ids, sink)?;
            }
            match (part.text, part.is_reasoning) {
                (Some(text), true) => messages.reasoning(&text, ids, sink)?,
                (Some(text), false) => messages.content(&text, ids, sink)?,
                (None, _) => {}
            }
            if let Some(url) = part.image_url {
                messages.image(&url, ids, sink)?;
            }
        }

        if let Some(refusal) = delta.refusal {
            self.messages.refusal(&refusal, &mut self.ids, sink)?;
        }

        for url in delta.images.into_iter().filter_map(|image| image.image_url) {
            self.messages.image(&url, &mut self.ids, sink)?;
        }

        if let Some(audio) = delta.audio {
            self.messages.content(audio.transcript.as_deref().unwrap_or_default(), &mut self.ids, sink)?;
            self.audio(audio.data.as_deref().unwrap_or_default(), sink)?;
        }

        if let Some(annotations) = delta.annotations {
            self.annotations.push(annotations, &mut self.held)?;
        }

        if let Some(tools) = delta.executed_tools {
            self.executed.push(tools, &mut self.held)?;
            if self.executed.is_ready() {
                self.executed_tools(sink)?;
            }
        }

        self.tool_calls(delta.tool_calls, delta.function_call, sink)
    }

    fn reasoning(&mut self, delta: &Delta<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // Versions in transition send the same text in both.
        let first = delta.reasoning_content.as_deref().map(|text| (ReasoningField::ReasoningContent, text));
        let found = first.or_else(|| delta.reasoning.as_deref().map(|text| (ReasoningField::Reasoning, text)));
        let mut details = String::new();
        if let Some(list) = delta.reasoning_details {
            details = self.details.push(list, &mut self.held)?;
        }

        let text = match found {
            Some((field, text)) => {
                self.reasoning.get_or_insert(field);
                text
            }
            // The details repeat what another field says.
            None if self.reasoning.is_none() => &details,
            None => "",
        };

        if text.is_empty() {
            return Ok(());
        }

        self.calls.close_whole(&mut self.ids, sink)?;
        self.messages.reasoning(text, &mut self.ids, sink)
    }

    fn audio(&mut self, data: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.held.add(data.len())?;
        if self.audio.push(data) { Ok(()) } else { sink.emit(&AgentEvent::Ignored) }
    }

    fn tool_calls(
        &mut self,
        calls: List<CallPiece<'_>>,
        function_call: Option<super::chunk::Function<'_>>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if calls.first.is_none() && function_call.is_none() {
            return Ok(());
        }

        self.messages.flush(&mut self.ids, sink)?;
        self.settle();
        self.messages.close(End::Completed, sink)?;
        self.calls.begin_chunk();
        for piece in calls {
            self.calls.piece(&piece, &mut self.ids, sink)?;
        }

        if let Some(function) = function_call {
            let piece = CallPiece { index: Some(FUNCTION_CALL), function, ..CallPiece::default() };
            self.calls.piece(&piece, &mut self.ids, sink)?;
        }
        Ok(())
    }

    fn executed_tools(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.messages.close(End::Completed, sink)?;
        if let Some(unnamed) = self.executed.emit(&mut self.ids, sink)? {
            self.messages.of_text.set("executed_tools", unnamed);
        }
        Ok(())
    }

    /// Hands details and sources that came so far to the messages they are about.
    fn settle(&mut self) {
        if let Some(details) = self.details.take() {
            append(&mut self.messages.of_reasoning, "reasoning_details", details);
            self.messages.of_reasoning.set(opaque::ORIGIN, Json::from_serialize(self.calls.origin()));
        }

        if let Some(annotations) = self.annotations.take() {
            let annotations = annotations.iter().map(flat_annotation).collect();
            append(&mut self.messages.of_text, "annotations", annotations);
        }
    }

    /// Emits what was held back, of an answer that breaks off.
    pub(super) fn flush(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.messages.flush(&mut self.ids, sink)
    }

    /// The server says that it failed.
    pub(super) fn fail(&mut self, complaint: Complaint, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // As if it were a status: nothing has begun.
        if let Some(fault) = complaint.not_now().filter(|_| !self.started) {
            return Err(fault);
        }

        self.flush(sink)?;
        self.ended = true;
        let (code, message) = complaint.into_error();
        let error = Some(AgentError::named(code, message));
        let usage = self.take_usage();
        let end = Some(End::Failed);
        sink.emit(&AgentEvent::Response(ResponseEvent { end, error, usage, ..ResponseEvent::default() }))
    }

    /// The answer is complete: closes everything.
    pub(super) fn finish(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.ended {
            return Ok(());
        }

        self.flush(sink)?;
        if let Some(audio) = self.audio.take() {
            self.messages.audio(&audio, &mut self.ids, sink)?;
        }

        self.settle();

        let has_output = self.messages.spoke() || !self.calls.is_empty();
        let reason = match self.reason {
            Some(reason) => reason,
            None if has_output => {
                // LightLLM never gives a reason. The end mark says that the answer is whole.
                sink.emit(&AgentEvent::Ignored)?;
                Reason::Stop
            }
            None => {
                let message = "the agent ended its answer without saying anything";
                return Err(Fault::new(FaultKind::UpstreamTruncated, message));
            }
        };

        self.ended = true;
        let end = reason.end();
        let open_end = if end == End::Completed { End::Completed } else { End::Incomplete };
        self.calls.finish(open_end, &mut self.ids, sink)?;
        self.messages.finish(open_end, &mut self.ids, sink)?;
        self.executed_tools(sink)?;

        let rest = std::mem::take(&mut self.messages.of_text);
        self.emit_end(end, reason, &rest, sink)
    }

    fn emit_end(&mut self, end: End, reason: Reason, rest: &Extra, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let error = reason.error().map(|(code, message)| AgentError::named(code, message));
        let extra: Vec<(Cow<'_, str>, &RawValue)> =
            rest.iter().map(|(name, value)| (Cow::Borrowed(name), value.raw())).collect();
        let usage = self.take_usage();
        let end = Some(end);
        sink.emit(&AgentEvent::Response(ResponseEvent { end, error, usage, extra, ..ResponseEvent::default() }))
    }

    fn take_usage(&mut self) -> Option<JsonRef<'static>> {
        self.usage.take().map(|usage| JsonRef::Owned(to_usage(&usage)))
    }
}

/// The text of a chunk that has nothing else, without escapes.
fn plain_text<'t>(chunk: &'t Chunk<'_>) -> Option<&'t str> {
    let Chunk { choices: Some(List { first: Some(choice), rest }), .. } = chunk else { return None };
    let Choice { delta: Some(delta), finish_reason: None, usage: None, .. } = choice else { return None };
    let is_alone = rest.is_empty()
        && chunk.usage.is_none()
        && chunk.groq_usage.is_none()
        && chunk.citations.is_none()
        && chunk.search_results.is_none();
    delta.plain_text().filter(|_| is_alone)
}

/// A source in the form that the gateway's protocols share, without the object around it; others stay as they are.
fn flat_annotation(annotation: &Json) -> Json {
    let fields: Extra = annotation.decode().unwrap_or_default();
    let Some(citation) = fields.get("url_citation").and_then(Json::decode::<Extra>) else { return annotation.clone() };
    let mut flat = Extra::new();
    flat.push("type", Json::from_serialize("url_citation"));
    flat.merge(citation);
    Json::from_serialize(&flat)
}

/// Appends entries to a list among metadata.
fn append(metadata: &mut Extra, name: &str, entries: Vec<Json>) {
    let mut all: Vec<Json> = metadata.get(name).and_then(Json::decode).unwrap_or_default();
    all.extend(entries);
    metadata.set(name, Json::from_serialize(&all));
}
