//! Chunks to events: which choice counts, what its fields mean, and how the answer ends.
//!
//! See `docs/protocols/chat-completions.md#reading-the-stream`.

use std::borrow::Cow;

use interlingua_core::agent_event::{AgentError, AgentEvent, JsonRef, ResponseEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::model::AgentRequest;
use interlingua_core::{ContentKind, End, Extra, Fault, FaultKind, Json, Losses, opaque};
use serde_json::value::RawValue;

use super::besides::{Audio, Details, Entries, ExecutedTools};
use super::call::Output;
use super::calls::Calls;
use super::chunk::{CallPiece, Choice, Chunk, Delta, ThinkingText};
use super::messages::Messages;
use super::options::ThinkTags;
use super::snapshot::StreamedText;
use super::state::ReasoningField;
use super::think::Splitter;
use super::usage::to_usage;
use interlingua_adapter_kit::end_reason::EndReason;
use interlingua_adapter_kit::held::BufferedBytes;
use interlingua_adapter_kit::template::TextTemplate;
use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_adapter_kit::wire_names::OriginalNames;
use interlingua_core::lenient::List;
use interlingua_core::model_error::Complaint;

/// The index of a call in the form before `tool_calls`, which knew but one.
const FUNCTION_CALL: i64 = -1;

/// Reads the chunks of one answer.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) ids: TurnIds,
    started: bool,
    ended: bool,
    pub(super) messages: Messages,
    pub(super) calls: Calls,
    /// The end reason, and the server's own word for it.
    reason: Option<(EndReason, String)>,
    /// The text and the reasoning of deltas so far.
    pub(super) said: StreamedText,
    pub(super) reasoned: StreamedText,
    pub(super) refused: StreamedText,
    /// The number of images so far.
    pub(super) images: usize,
    /// The answer came in deltas so far.
    pub(super) has_deltas: bool,
    /// The index of the choice that counts, and of the last chunk.
    choice: Option<i64>,
    last_choice: Option<i64>,
    /// Chunks share an index, so that it is no counter of tokens.
    repeats_index: bool,
    /// The last one that was not `null`: some servers count in every chunk.
    usage: Option<Json>,
    reasoning: Option<ReasoningField>,
    pub(super) held: BufferedBytes,
    pub(super) audio: Audio,
    pub(super) details: Details,
    /// Thinking blocks in the form of LiteLLM.
    pub(super) blocks: Details,
    pub(super) annotations: Entries,
    pub(super) executed: ExecutedTools,
    /// The shape of a piece of text.
    template: TextTemplate,
    pub(super) losses: Losses,
}

impl Reader {
    /// `origin`: the author's name of opaque values; `names` and `losses`: those of the request.
    pub(super) fn new(
        request: &AgentRequest,
        tags: ThinkTags,
        origin: String,
        names: OriginalNames,
        losses: Losses,
    ) -> Self {
        Self {
            ids: TurnIds::new(request),
            started: false,
            ended: false,
            messages: Messages::new(Splitter::new(tags)),
            calls: Calls::new(origin, names),
            template: TextTemplate::default(),
            losses,
            reason: None,
            said: StreamedText::default(),
            reasoned: StreamedText::default(),
            refused: StreamedText::default(),
            images: 0,
            has_deltas: false,
            choice: None,
            last_choice: None,
            repeats_index: false,
            usage: None,
            reasoning: None,
            held: BufferedBytes::default(),
            audio: Audio::default(),
            details: Details::default(),
            blocks: Details::default(),
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
        // The text may borrow from the template's memory.
        let mut template = std::mem::take(&mut self.template);
        let read = template.text(data).map(|text| {
            // A shape includes the index of the choice.
            self.repeats_index = true;
            self.text(text, sink)
        });
        self.template = template;
        read.transpose().map(|read| read.is_some())
    }

    /// A piece of the content.
    #[inline]
    fn text(&mut self, text: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if !text.is_empty() {
            self.close_calls(sink)?;
            self.settle();
            self.said.add(text);
            self.has_deltas = true;
        }
        self.messages.content(text, &mut self.ids, sink)
    }

    #[inline]
    fn close_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let Self { calls, ids, losses, held, .. } = self;
        calls.close_whole(&mut Output { ids, losses, held, sink })
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

        if !is_error && let Some((index, text)) = plain_text(&chunk) {
            if !self.track_choice(index) {
                return sink.emit(&AgentEvent::Ignored);
            }
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
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        sink.emit(&self.ids.start_answer(id))
    }

    /// The choice that counts. The index of a single one does not: old servers count tokens with it.
    fn choose<'a>(&mut self, choices: List<Choice<'a>>, sink: &mut dyn EventSink) -> Result<Option<Choice<'a>>, Fault> {
        if choices.rest.is_empty() {
            let Some(choice) = choices.first else { return Ok(None) };
            let is_own = self.track_choice(choice.index) || (has_calls(&choice) && self.calls.is_empty());
            if !is_own {
                sink.emit(&AgentEvent::Ignored)?;
            }
            return Ok(Some(choice).filter(|_| is_own));
        }

        let mut all: Vec<Choice<'a>> = choices.into_iter().collect();
        let main = all.iter().position(|choice| choice.index == Some(0)).unwrap_or(0);
        let mut main = all.swap_remove(main);
        for other in all {
            if has_calls(&other) && !has_calls(&main) && self.calls.is_empty() {
                // Proxies put the text into one choice and the calls into another.
                if let Some(delta) = other.delta.or_else(|| other.message.map(|message| *message)) {
                    let into = match &mut main.message {
                        Some(message) => &mut **message,
                        None => main.delta.get_or_insert_default(),
                    };
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

    /// True if a chunk with this index belongs to the answer: the index is that of the first chunk, or no index of an
    /// answer but a counter, which never has the same value twice.
    fn track_choice(&mut self, index: Option<i64>) -> bool {
        let (Some(index), Some(own), Some(last)) = (index, self.choice, self.last_choice) else {
            self.choice = self.choice.or(index);
            self.last_choice = index.or(self.last_choice);
            return true;
        };
        self.repeats_index |= index <= last;
        self.last_choice = Some(index);
        index == own || !self.repeats_index
    }

    fn choice(&mut self, choice: Choice<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let is_last = choice.finish_reason.is_some();
        if let Some(delta) = choice.delta {
            self.has_deltas |= delta.says_anything();
            self.delta(delta, sink)?;
        }
        if let Some(message) = choice.message {
            self.whole(*message, is_last, sink)?;
        }
        if let Some(text) = choice.text {
            self.whole(Delta::of_text(text), is_last, sink)?;
        }

        if let Some(word) = choice.finish_reason
            && let Some(reason) = EndReason::parse(&word)
        {
            if reason == EndReason::Unknown {
                self.losses.changed(ContentKind::EndReason, "the server's word for the end of the answer is unknown");
                sink.emit(&AgentEvent::Ignored)?;
            }
            // Servers that send two mean the first, unless the second says that something is missing.
            if self.reason.as_ref().is_none_or(|(first, _)| reason > *first) {
                self.reason = Some((reason, word.into_owned()));
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn delta(&mut self, delta: Delta<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.reasoning(&delta, sink)?;
        if delta.content.first.is_some() {
            self.close_calls(sink)?;
            self.settle();
        }

        for part in delta.content {
            let (ids, messages) = (&mut self.ids, &mut self.messages);
            for thought in part.thinking {
                let thought = thought.text.as_deref().unwrap_or_default();
                self.reasoned.add(thought);
                messages.reasoning(thought, ids, sink)?;
            }
            match part.text {
                Some(text) if part.is_reasoning || delta.is_thought => {
                    // Gemini marks such a text, and puts tags around it as well.
                    let text = text.strip_prefix("<thought>").unwrap_or(&text);
                    let text = text.strip_suffix("</thought>").unwrap_or(text);
                    self.reasoned.add(text);
                    messages.reasoning(text, ids, sink)?;
                }
                Some(text) => {
                    self.said.add(&text);
                    messages.content(&text, ids, sink)?;
                }
                None => {}
            }
            if let Some(url) = part.image_url {
                self.images += 1;
                messages.image(&url, ids, sink)?;
            }
        }

        if let Some(refusal) = delta.refusal {
            self.refused.add(&refusal);
            self.messages.refusal(&refusal, &mut self.ids, sink)?;
        }

        for url in delta.images.into_iter().filter_map(|image| image.image_url) {
            self.images += 1;
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
        let mut details = String::new();
        if let Some(list) = delta.reasoning_details {
            details = self.details.push(list, &mut self.held)?;
        }
        if let Some(list) = delta.thinking_blocks {
            let blocks = self.blocks.push(list, &mut self.held)?;
            if details.is_empty() {
                details = blocks;
            }
        }
        if let Some(opaque) = delta.reasoning_opaque {
            self.held.add(opaque.get().len())?;
            self.messages.of_reasoning.set("reasoning_opaque", Json::from_raw(opaque));
        }

        let fields = [
            (ReasoningField::ReasoningContent, &delta.reasoning_content),
            (ReasoningField::Reasoning, &delta.reasoning),
            (ReasoningField::ReasoningText, &delta.reasoning_text),
        ];
        let mut found = fields.into_iter().filter_map(|(field, text)| Some((field, text.as_deref()?)));
        let other = thoughts(&delta.thinking);
        let text = match found.next() {
            Some((field, text)) => {
                self.reasoning.get_or_insert(field);
                // Versions in transition send the same text in two fields.
                let is_same = found.all(|(_, second)| second == text) && (other.is_empty() || other == text);
                if !is_same {
                    self.losses.lost(ContentKind::Reasoning, "the server sends two different texts; the first counts");
                }
                text
            }
            None if !other.is_empty() => &other,
            // The details repeat what another field says.
            None if self.reasoning.is_none() => &details,
            None => "",
        };

        if text.is_empty() {
            return Ok(());
        }

        self.close_calls(sink)?;
        self.reasoned.add(text);
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

        self.before_calls(sink)?;
        let Self { calls: all, ids, losses, held, .. } = self;
        let mut out = Output { ids, losses, held, sink };
        all.begin_chunk();
        for piece in calls {
            all.piece(&piece, &mut out)?;
        }

        if let Some(function) = function_call {
            let piece = CallPiece { index: Some(FUNCTION_CALL), function, ..CallPiece::default() };
            all.piece(&piece, &mut out)?;
        }
        Ok(())
    }

    /// Closes the messages of text and reasoning.
    pub(super) fn before_calls(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.messages.flush(&mut self.ids, sink)?;
        self.settle();
        self.messages.close(End::Completed, sink)
    }

    fn executed_tools(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.messages.close(End::Completed, sink)?;
        if let Some(unnamed) = self.executed.emit(&mut self.ids, sink)? {
            self.messages.of_text.set("executed_tools", unnamed);
        }
        Ok(())
    }

    /// Adds the details and sources so far to the messages they belong to.
    #[inline]
    fn settle(&mut self) {
        if self.messages.of_reasoning.is_empty()
            && self.details.is_empty()
            && self.blocks.is_empty()
            && self.annotations.is_empty()
        {
            return;
        }

        let of_reasoning = &mut self.messages.of_reasoning;
        for (name, entries) in [("reasoning_details", self.details.take()), ("thinking_blocks", self.blocks.take())] {
            if let Some(entries) = entries {
                append(of_reasoning, name, entries);
            }
        }
        if !of_reasoning.is_empty() {
            of_reasoning.set(opaque::ORIGIN, Json::from_serialize(self.calls.origin()));
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

        let reason = self.reason.take();
        let end = reason.as_ref().map_or(EndReason::Complete, |(reason, _)| *reason).end(true);
        let open_end = if end == End::Completed { End::Completed } else { End::Incomplete };
        {
            let Self { calls, ids, losses, held, .. } = self;
            calls.finish(open_end, &mut Output { ids, losses, held, sink })?;
        }

        let has_output = self.messages.spoke() || !self.calls.is_empty();
        let (reason, word) = match reason {
            Some(reason) => reason,
            None if has_output => {
                // LightLLM never gives a reason. The end mark says that the answer is whole.
                sink.emit(&AgentEvent::Ignored)?;
                (EndReason::Complete, String::new())
            }
            None => {
                let message = "the agent ended its answer without saying anything";
                return Err(Fault::new(FaultKind::UpstreamTruncated, message));
            }
        };

        self.ended = true;
        let (mut end, mut error) = (reason.end(has_output), reason.error(&word, has_output));
        if end == End::Completed && !has_output && self.calls.has_nameless() {
            end = End::Failed;
            error = Some((String::new(), "the agent calls a tool and does not name it"));
        }
        self.messages.finish(open_end, &mut self.ids, sink)?;
        self.executed_tools(sink)?;

        let rest = std::mem::take(&mut self.messages.of_text);
        self.emit_end(end, error, &rest, sink)
    }

    fn emit_end(
        &mut self,
        end: End,
        error: Option<(String, &'static str)>,
        rest: &Extra,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let error = error.map(|(code, message)| AgentError::named(code, message));
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

fn has_calls(choice: &Choice<'_>) -> bool {
    let has_calls = |delta: &Delta<'_>| delta.tool_calls.first.is_some() || delta.function_call.is_some();
    choice.delta.as_ref().is_some_and(has_calls) || choice.message.as_deref().is_some_and(has_calls)
}

/// The text of thoughts, joined.
fn thoughts(list: &List<ThinkingText<'_>>) -> String {
    let all = list.first.iter().chain(&list.rest);
    all.filter_map(|thought| thought.text.as_deref()).collect()
}

/// The text of a chunk that has nothing else, without escapes, and the index of its choice.
fn plain_text<'t>(chunk: &'t Chunk<'_>) -> Option<(Option<i64>, &'t str)> {
    let Chunk { choices: Some(List { first: Some(choice), rest }), .. } = chunk else { return None };
    let Choice { index, delta: Some(delta), message: None, text: None, finish_reason: None, usage: None } = choice
    else {
        return None;
    };
    let is_alone = rest.is_empty()
        && chunk.usage.is_none()
        && chunk.groq_usage.is_none()
        && chunk.citations.is_none()
        && chunk.search_results.is_none();
    delta.plain_text().filter(|_| is_alone).map(|text| (*index, text))
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
