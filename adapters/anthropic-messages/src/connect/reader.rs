//! Events of the stream to events of the run: what each means, and how the answer ends.
//!
//! See `docs/protocols/anthropic-messages.md`. Which block a delta belongs to is decided in [`super::blocks`].

use std::collections::HashMap;

use interlingua_adapter_kit::end_reason::EndReason;
use interlingua_adapter_kit::template::TextTemplate;
use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_adapter_kit::wire_names::OriginalNames;
use interlingua_core::agent_event::{
    AgentError, AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
};
use interlingua_core::connector::{EventSink, TurnRequest};
use interlingua_core::model::MessageType;
use interlingua_core::model_error::{Complaint, garbage};
use interlingua_core::{ContentKind, End, Extra, Fault, FaultKind, Json, Losses};
use serde_json::value::RawValue;

use super::blocks::{BlockKind, Blocks, CallStart};
use super::hosted::{self, HostedCall, HostedOutput};
use super::usage::Usage;
use super::wire::{Block, Delta, Event, Message, StopDetails, parse_object};

/// Reads the events of one answer.
#[derive(Debug)]
pub(super) struct Reader {
    ids: TurnIds,
    blocks: Blocks,
    usage: Usage,
    started: bool,
    ended: bool,
    /// The reason for the end of the answer, in the server's words. The last one applies.
    stop_reason: Option<String>,
    /// The content in `message_start`, of servers that send the whole answer there.
    early_content: Option<Box<RawValue>>,
    /// The model's explanation for declining.
    explanation: Option<String>,
    /// All text so far, of an answer that may turn out to be a refusal. None: too long for one.
    said: Option<String>,
    /// Calls that the server made of itself, by its ids.
    hosted: HashMap<String, HostedCall>,
    /// The client's names of tools that the request had to rename.
    tool_names: OriginalNames,
    /// The shape of a piece of text, and the index in it.
    template: TextTemplate,
    template_index: Option<i64>,
    pub(super) losses: Losses,
}

/// The start of a block.
struct BlockStart<'a> {
    index: Option<i64>,
    kind: &'a str,
    block: &'a Block<'a>,
    /// The block as the server sent it.
    raw: &'a RawValue,
}

/// A refusal is not longer, in bytes.
const MAX_REFUSAL: usize = 4096;

impl Reader {
    pub(super) fn new(turn: &TurnRequest<'_>, origin: String, tool_names: OriginalNames, losses: Losses) -> Self {
        Self {
            ids: TurnIds::new(turn.request),
            blocks: Blocks::new(origin),
            usage: Usage::default(),
            started: false,
            ended: false,
            stop_reason: None,
            early_content: None,
            explanation: None,
            said: Some(String::new()),
            hosted: HashMap::new(),
            tool_names,
            template: TextTemplate::default(),
            template_index: None,
            losses,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// True if the answer can end here: the server said why.
    pub(super) const fn has_reason(&self) -> bool {
        self.stop_reason.is_some()
    }

    /// Reads an event that is a piece of text like the last one. False: it is another one.
    #[inline]
    pub(super) fn read_text(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<bool, Fault> {
        let Some(text) = self.template.text(data) else { return Ok(false) };
        remember(&mut self.said, text);
        self.blocks.text(BlockKind::Text, self.template_index, text, &mut self.ids, sink)?;
        Ok(true)
    }

    /// Reads an event. `data`: its JSON. `named`: the name of its frame, for servers that write no type.
    #[inline]
    pub(super) fn read(
        &mut self,
        event: &Event<'_>,
        data: &[u8],
        named: Option<&str>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        match event.kind.as_deref().or(named).unwrap_or_default() {
            "content_block_delta" => match &event.delta {
                Some(delta) => {
                    self.delta(event.index, delta, sink)?;
                    self.learn(event, delta, data);
                    Ok(())
                }
                None => sink.emit(&AgentEvent::Ignored),
            },
            "ping" => sink.emit(&AgentEvent::KeepAlive),
            _ if event.is_error() => self.fail(data, sink),
            "message_start" => self.message_start(event.message, sink),
            "content_block_start" => match event.content_block {
                Some(raw) => self.block_start(event.index, raw, sink),
                None => sink.emit(&AgentEvent::Ignored),
            },
            "content_block_stop" if self.blocks.stop(event.index) => Ok(()),
            "message_delta" => self.message_delta(event, sink),
            "message_stop" => {
                if let Some(metrics) = event.metrics {
                    self.usage.add_metrics(metrics);
                }
                self.start(None, sink)?;
                self.finish(sink)
            }
            "message" => self.whole(data, sink),
            "error" => self.fail(data, sink),
            _ if event.has_choices => Err(Fault::new(
                FaultKind::UpstreamGarbage,
                "the agent answers with Chat Completions, not with Anthropic Messages",
            )
            .with_detail("set protocol = \"chat-completions\" if its URL is right")),
            kind if Complaint::from_unknown_event(kind, data).is_some() => self.fail(data, sink),
            _ => sink.emit(&AgentEvent::Ignored),
        }
    }

    /// Learns the shape of an event that is a piece of text and nothing else.
    fn learn(&mut self, event: &Event<'_>, delta: &Delta<'_>, data: &[u8]) {
        if let (Some("text_delta"), Some(text)) = (delta.kind.as_deref(), &delta.text)
            && event.kind.is_some()
        {
            self.template.learn(data, text);
            self.template_index = event.index;
        }
    }

    fn start(&mut self, id: Option<&str>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if std::mem::replace(&mut self.started, true) {
            return Ok(());
        }
        sink.emit(&self.ids.start_answer(id))
    }

    fn message_start(&mut self, raw: Option<&RawValue>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let message: Message<'_> = raw.and_then(parse_object).unwrap_or_default();
        if let Some(usage) = message.usage {
            self.usage.add(usage);
        }
        if let Some(content) = message.content.filter(|content| content.get().len() > "[]".len()) {
            self.early_content = Some(content.to_owned());
            self.stop(message.stop_reason.as_deref(), message.stop_details);
        }
        self.start(message.id.as_deref(), sink)
    }

    #[inline]
    fn delta(&mut self, index: Option<i64>, delta: &Delta<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.start(None, sink)?;
        let (blocks, ids) = (&mut self.blocks, &mut self.ids);
        match delta.kind.as_deref().unwrap_or_default() {
            "text_delta" => {
                let text = delta.text.as_deref().unwrap_or_default();
                remember(&mut self.said, text);
                blocks.text(BlockKind::Text, index, text, ids, sink)
            }
            "thinking_delta" => {
                blocks.text(BlockKind::Thinking, index, delta.thinking.as_deref().unwrap_or_default(), ids, sink)
            }
            "input_json_delta" => {
                let piece = delta.partial_json.as_ref().map(|json| json.0.as_ref()).unwrap_or_default();
                if blocks.input(index, piece, sink)? {
                    return Ok(());
                }
                if !piece.is_empty() {
                    self.losses.lost(ContentKind::ClientCall, "the server sends a call's input without the call");
                }
                sink.emit(&AgentEvent::Ignored)
            }
            "signature_delta" => blocks.sign(index, delta.signature.as_deref().unwrap_or_default(), ids, sink),
            "citations_delta" => {
                let citation = delta.citation.map(Json::from_raw);
                match citation {
                    Some(citation) if blocks.cite(index, &citation)? => Ok(()),
                    _ => sink.emit(&AgentEvent::Ignored),
                }
            }
            _ => sink.emit(&AgentEvent::Ignored),
        }
    }

    fn block_start(&mut self, index: Option<i64>, raw: &RawValue, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(block) = parse_object::<Block<'_>>(raw) else { return sink.emit(&AgentEvent::Ignored) };
        self.start(None, sink)?;
        let kind = block.kind.as_deref().unwrap_or_default();
        match kind {
            "text" => self.text_block(index, &block, sink),
            "thinking" => {
                let (blocks, ids) = (&mut self.blocks, &mut self.ids);
                blocks.start(BlockKind::Thinking, index, ids, sink)?;
                blocks.text(BlockKind::Thinking, index, block.thinking.as_deref().unwrap_or_default(), ids, sink)?;
                match &block.signature {
                    Some(signature) => blocks.sign(index, signature, ids, sink),
                    None => Ok(()),
                }
            }
            "tool_use" | "server_tool_use" | "mcp_tool_use" => {
                self.call(&BlockStart { index, kind, block: &block, raw }, sink)
            }
            _ => self.whole_block(&BlockStart { index, kind, block: &block, raw }, sink),
        }
    }

    fn text_block(&mut self, index: Option<i64>, block: &Block<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.blocks.start(BlockKind::Text, index, &mut self.ids, sink)?;
        let text = block.text.as_deref().unwrap_or_default();
        remember(&mut self.said, text);
        self.blocks.text(BlockKind::Text, index, text, &mut self.ids, sink)?;
        let citations = block.citations.and_then(|raw| serde_json::from_str::<Vec<Json>>(raw.get()).ok());
        for citation in citations.unwrap_or_default() {
            self.blocks.cite(index, &citation)?;
        }
        Ok(())
    }

    fn call(&mut self, start: &BlockStart<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let BlockStart { index, kind, block, raw } = *start;
        let given = block.id.as_deref().unwrap_or_default();
        let call_id = self.ids.call(given);
        let sent = block.name.as_deref().unwrap_or_default();
        let is_client = kind == "tool_use";
        let name = if is_client { self.tool_names.original(sent) } else { sent };
        if !is_client {
            let call = HostedCall { call_id: call_id.clone(), name: name.to_owned() };
            self.hosted.insert(given.to_owned(), call);
        }

        let item: Option<Extra> = (!is_client).then(|| serde_json::from_str(raw.get()).ok()).flatten();
        self.blocks.count_held(item.as_ref().map_or(0, Extra::size))?;
        let start = CallStart {
            kind: match kind {
                "tool_use" => MessageType::FunctionCall,
                "mcp_tool_use" => MessageType::McpCall,
                _ => MessageType::PluginCall,
            },
            call_id,
            name,
            server_label: block.server_name.as_deref(),
            input: block.input.and_then(input_text),
            item,
        };
        self.blocks.start_call(index, start, &mut self.ids, sink)
    }

    /// A block that comes whole in its start.
    fn whole_block(&mut self, start: &BlockStart<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let BlockStart { index, kind, block, raw } = *start;
        self.blocks.end_before_next(index, &mut self.ids, sink)?;
        self.blocks.note_whole();
        let call = block.tool_use_id.as_deref().and_then(|id| self.hosted.get(id));
        let mut to = HostedOutput { origin: self.blocks.origin(), ids: &mut self.ids, losses: &mut self.losses, sink };
        if kind == "redacted_thinking" {
            hosted::redacted(block.data.as_deref().unwrap_or_default(), &mut to)
        } else if hosted::is_output(kind) {
            hosted::output(kind, block, raw, call, &mut to)
        } else if kind.is_empty() || !hosted::unknown(kind, raw, &mut to)? {
            sink.emit(&AgentEvent::Ignored)
        } else {
            Ok(())
        }
    }

    fn message_delta(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.start(None, sink)?;
        if let Some(usage) = event.usage {
            self.usage.add(usage);
        }
        if let Some(delta) = &event.delta {
            self.stop(delta.stop_reason.as_deref(), delta.stop_details);
        }
        Ok(())
    }

    fn stop(&mut self, reason: Option<&str>, details: Option<&RawValue>) {
        if let Some(reason) = reason {
            self.stop_reason = Some(reason.to_owned());
        }
        if let Some(details) = details.and_then(parse_object::<StopDetails<'_>>) {
            self.explanation = details.explanation.map(|text| text.into_owned()).or(self.explanation.take());
        }
    }

    /// An answer that came as one message.
    pub(super) fn whole(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let text = std::str::from_utf8(data).ok();
        let raw: Option<&RawValue> = text.and_then(|text| serde_json::from_str(text).ok());
        // Any other object, of a proxy or a web framework, would be an answer without text.
        let message: Option<Message<'_>> = raw.and_then(parse_object);
        let message = message.filter(|message| message.content.is_some() || message.stop_reason.is_some());
        let message = message.ok_or_else(|| garbage(data))?;
        self.start(message.id.as_deref(), sink)?;
        if let Some(usage) = message.usage {
            self.usage.add(usage);
        }

        if let Some(content) = message.content {
            self.whole_blocks(content, sink)?;
        }
        self.stop(message.stop_reason.as_deref().or(Some("end_turn")), message.stop_details);
        self.finish(sink)
    }

    /// The blocks of a whole message. Those that were streamed before are completed, not repeated.
    fn whole_blocks(&mut self, content: &RawValue, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let streamed = self.blocks.count();
        if let Ok(text) = serde_json::from_str::<String>(content.get()) {
            // The short form of a content that is one text.
            return if streamed == 0 {
                self.blocks.text(BlockKind::Text, Some(0), &text, &mut self.ids, sink)
            } else {
                Ok(())
            };
        }
        let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).unwrap_or_default();
        for (place, raw) in blocks.into_iter().enumerate() {
            let index = i64::try_from(place).ok();
            if place >= streamed {
                self.block_start(index, raw, sink)?;
                self.blocks.stop(index);
            } else if let Some(block) = parse_object::<Block<'_>>(raw) {
                let whole = block.text.as_deref().or(block.thinking.as_deref());
                self.blocks.complete(place, whole, block.input.and_then(input_text), &mut self.ids, sink)?;
            }
        }
        Ok(())
    }

    /// Emits the ends of what is complete, of an answer that breaks off.
    pub(super) fn flush(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.blocks.end_stopped(&mut self.ids, sink)
    }

    fn fail(&mut self, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let complaint = Complaint::parse(data).unwrap_or_default();
        // As if it were a status: nothing has begun.
        if let Some(fault) = complaint.not_now().filter(|_| !self.started) {
            return Err(fault);
        }
        let (code, message) = complaint.into_error();

        self.flush(sink)?;
        self.ended = true;
        let error = Some(AgentError::named(code, message));
        let usage = self.take_usage();
        sink.emit(&AgentEvent::Response(ResponseEvent {
            end: Some(End::Failed),
            error,
            usage,
            ..ResponseEvent::default()
        }))
    }

    /// The answer is complete: closes everything.
    pub(super) fn finish(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.ended {
            return Ok(());
        }

        if let Some(content) = self.early_content.take().filter(|_| !self.ids.has_messages()) {
            self.whole_blocks(&content, sink)?;
        }

        self.ended = true;
        let word = self.stop_reason.as_deref().unwrap_or_default();
        let reason = EndReason::parse(word).unwrap_or(EndReason::Complete);
        if reason == EndReason::Unknown {
            self.losses.changed(ContentKind::EndReason, "the server's word for the end of the answer is unknown");
            sink.emit(&AgentEvent::Ignored)?;
        }
        let has_output = self.ids.has_messages() || self.blocks.has_signed();
        let (end, error) = (reason.end(has_output), reason.error(word, has_output));

        let open_end = if end == End::Completed { End::Completed } else { End::Incomplete };
        self.blocks.finish(open_end, &mut self.ids, sink)?;
        if self.stop_reason.as_deref() == Some("refusal") {
            self.refusal(sink)?;
        }
        let usage = self.take_usage();
        let error = error.map(|(code, message)| AgentError::named(code, message));
        sink.emit(&AgentEvent::Response(ResponseEvent { end: Some(end), error, usage, ..ResponseEvent::default() }))
    }

    /// Emits the model's explanation for declining, unless it was sent as text before.
    fn refusal(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let said = self.said.take().filter(|_| self.blocks.has_text());
        let explanation = self.explanation.take();
        let is_said = explanation.is_none() || explanation.as_deref().map(str::trim) == said.as_deref().map(str::trim);
        if is_said && self.blocks.has_text() {
            self.losses.changed(ContentKind::Refusal, "its words come as text");
            return Ok(());
        }

        let words = explanation.unwrap_or_else(|| "The model declines to answer.".to_owned());
        let id = self.ids.message();
        let refusal = ContentEvent::new(&id, ContentUpdate::Final, ContentValue::Refusal(words.into()));
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(id.as_str().into()),
            kind: Some(MessageType::Message),
            end: Some(End::Completed),
            contents: vec![refusal],
            ..MessageEvent::default()
        }))
    }

    fn take_usage(&self) -> Option<JsonRef<'static>> {
        self.usage.to_json().map(JsonRef::Owned)
    }
}

/// Keeps the text of an answer while it is short enough to be a refusal.
fn remember(said: &mut Option<String>, text: &str) {
    if let Some(all) = said {
        if all.len() + text.len() > MAX_REFUSAL {
            *said = None;
        } else {
            all.push_str(text);
        }
    }
}

/// The input in a call's start: the JSON of an object, or what a text holds. None: an empty one.
fn input_text(raw: &RawValue) -> Option<String> {
    let text = serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned());
    let is_empty = text.trim().is_empty() || serde_json::from_str::<Extra>(&text).is_ok_and(|fields| fields.is_empty());
    (!is_empty).then_some(text)
}
