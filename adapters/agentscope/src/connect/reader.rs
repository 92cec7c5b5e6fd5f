//! The events of one reply, out of all events of a session's stream.
//!
//! A stream begins with the events that the service still remembers: the end of an earlier reply, or all of this one.
//! [`Reader`] skips events of other turns, and after a cut the events it read before. Not here: requests (`turn`), and
//! replies that are read from the session's messages (`whole`).

use std::borrow::Cow;

use interlingua_core::agent_event::{
    AgentEvent, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::json_string::lent;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::pending::{Decision, Pending, PendingKind};
use interlingua_core::{End, Fault, Json};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answers::ItemSource;
use super::calls::{Calls, OutputEnd};
use super::errors::reply_error;
use super::kept::StoredEvents;
use super::media::{self, MediaBlock, Source};
use super::wire::{Event, ReplyError, TextDelta, Usage, asked_calls, object, word};

/// The events to skip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// Everything until another reply begins.
    UntilReply,
    /// Everything until the service reports that it has one of these answers.
    UntilAnswer,
    /// The events that were read before the stream was cut.
    UntilLast,
    /// Nothing.
    Nothing,
}

/// The condition for the reply to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuation {
    /// More of the stream.
    Events,
    /// The session's messages: the stream no longer contains the reply, or does not say whether the reply continues.
    Messages,
    /// The next message: this reply is complete, and is not all.
    NextReply,
}

/// Reads one reply.
pub(super) struct Reader {
    pub(super) skip: Skip,
    pub(super) wants: Continuation,
    /// The reply. Empty: it is not known yet.
    pub(super) reply: String,
    /// A reply of before.
    pub(super) old_reply: String,
    /// Ids of answers that the stream has not shown yet.
    pub(super) awaited: Vec<String>,
    /// Ends with these ids are not about this turn.
    pub(super) old_ends: Vec<String>,
    /// The event that was read last.
    pub(super) last: String,
    /// The number of events read.
    pub(super) progress: u64,
    /// The number of blocks of the reply so far, including those of earlier turns.
    pub(super) blocks: usize,
    /// The number of blocks of earlier turns.
    pub(super) blocks_before: usize,
    /// The token usage of earlier turns of the reply.
    pub(super) usage_before: Usage,
    /// The token usage of this turn.
    pub(super) usage: Usage,
    pub(super) calls: Calls,
    /// Where pieces of text with escapes are written.
    unescaped: String,
    open_media: Vec<MediaBlock>,
    pub(super) emitted_media: Vec<String>,
    pub(super) kept: StoredEvents,
    pub(super) losses: Losses,
    /// The turn ended with questions.
    pub(super) is_waiting: bool,
    /// The end of the turn was emitted.
    pub(super) ended: bool,
    /// A message follows this reply.
    pub(super) has_next: bool,
}

impl Reader {
    pub(super) fn new(kept: StoredEvents) -> Self {
        Self {
            skip: Skip::UntilReply,
            wants: Continuation::Events,
            reply: String::new(),
            old_reply: String::new(),
            awaited: Vec::new(),
            old_ends: Vec::new(),
            last: String::new(),
            progress: 0,
            blocks: 0,
            blocks_before: 0,
            usage_before: Usage::default(),
            usage: Usage::default(),
            calls: Calls::default(),
            unescaped: String::new(),
            open_media: Vec::new(),
            emitted_media: Vec::new(),
            kept,
            losses: Losses::new(),
            is_waiting: false,
            ended: false,
            has_next: false,
        }
    }

    /// Reads an event. `data`: unchanged.
    pub(super) fn read(&mut self, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.wants != Continuation::Events || self.ended {
            return Ok(());
        }
        if self.accept_event(word(&event.kind), word(&event.id), word(&event.reply_id)) {
            self.apply(event, data, sink)
        } else {
            sink.emit(&AgentEvent::KeepAlive)
        }
    }

    /// Reads a piece of a block of text.
    pub(super) fn read_delta(&mut self, event: &TextDelta<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.wants != Continuation::Events || self.ended {
            return Ok(());
        }
        if self.accept_event(event.kind, event.id, event.reply_id) {
            let text = event.delta.0.and_then(|delta| lent(delta, &mut self.unescaped));
            sink.emit(&AgentEvent::text(event.block_id, text.unwrap_or_default()))
        } else {
            sink.emit(&AgentEvent::KeepAlive)
        }
    }

    /// True for what is about this turn, and was not read before. It is remembered as read.
    fn accept_event(&mut self, kind: &str, id: &str, reply: &str) -> bool {
        if self.skip_event(kind, id, reply) {
            return false;
        }
        // Another client's, or of the service's own accord.
        if !reply.is_empty() && reply != self.reply {
            return false;
        }

        self.progress += 1;
        self.last.clear();
        self.last.push_str(id);
        true
    }

    /// True for what is not about this turn, or was read before.
    fn skip_event(&mut self, kind: &str, id: &str, reply: &str) -> bool {
        if let Some(place) = self.awaited.iter().position(|awaited| awaited == id) {
            // The service received an answer: its reply continues.
            self.awaited.swap_remove(place);
            if self.skip == Skip::UntilAnswer {
                self.skip = Skip::Nothing;
                self.progress += 1;
                self.last = id.to_owned();
            }
            return true;
        }

        match self.skip {
            Skip::Nothing => return false,
            Skip::UntilReply if kind == "REPLY_START" && reply != self.old_reply => {
                self.skip = Skip::Nothing;
                self.reply = reply.to_owned();
                return false;
            }
            Skip::UntilLast if !self.last.is_empty() && id == self.last => {
                self.skip = Skip::Nothing;
                return true;
            }
            _ => {}
        }

        // An end without what it ends: the service has forgotten the rest of the stream by now.
        let is_end = matches!(kind, "REPLY_END" | "REQUIRE_USER_CONFIRM" | "REQUIRE_EXTERNAL_EXECUTION");
        let is_other = match self.skip {
            Skip::UntilReply => reply == self.old_reply && !reply.is_empty(),
            _ => !reply.is_empty() && reply != self.reply,
        };
        if is_end && !is_other && !self.old_ends.iter().any(|old| old == id) {
            self.wants = Continuation::Messages;
            self.old_ends.push(id.to_owned());
        }
        true
    }

    fn apply(&mut self, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let block = word(&event.block_id);
        let call = word(&event.tool_call_id);
        match word(&event.kind) {
            "TEXT_BLOCK_DELTA" | "THINKING_BLOCK_DELTA" => sink.emit(&AgentEvent::text(block, word(&event.delta))),
            "TOOL_CALL_DELTA" => self.calls.arguments(call, word(&event.delta), sink),
            "TEXT_BLOCK_START" => self.begin(block, MessageType::Message, sink),
            "THINKING_BLOCK_START" => self.begin(block, MessageType::Reasoning, sink),
            "TEXT_BLOCK_END" | "THINKING_BLOCK_END" => end_block(block, event.text.0.as_deref(), sink),
            "DATA_BLOCK_START" | "DATA_BLOCK_DELTA" | "DATA_BLOCK_END" => self.data_block(event, sink),
            "TOOL_CALL_START" => {
                self.blocks += 1;
                self.calls.start(call, word(&event.tool_call_name), sink)
            }
            "TOOL_RESULT_START" => {
                self.blocks += 1;
                sink.emit(&AgentEvent::KeepAlive)
            }
            "TOOL_RESULT_TEXT_DELTA" => {
                self.calls.output_text(call, word(&event.tool_call_name), word(&event.delta))?;
                sink.emit(&AgentEvent::KeepAlive)
            }
            "TOOL_RESULT_DATA_DELTA" => self.output_media(event, sink),
            "TOOL_RESULT_END" => {
                if self.calls.is_unknown(call, word(&event.tool_call_name)) {
                    self.losses.lost(ContentKind::AgentOutput, "its id is that of no call");
                }
                let end = OutputEnd { state: word(&event.state), metadata: event.metadata.0 };
                self.calls.output_end(call, word(&event.tool_call_name), end, sink)
            }
            "REQUIRE_USER_CONFIRM" => self.ask(event, false, sink),
            "REQUIRE_EXTERNAL_EXECUTION" => self.ask(event, true, sink),
            "MODEL_CALL_END" => {
                self.usage.add(event.usage());
                sink.emit(&AgentEvent::KeepAlive)
            }
            "REPLY_START" => sink.emit(&AgentEvent::started()),
            "REPLY_END" => self.end(word(&event.finished_reason), event.error.0, sink),
            "HINT_BLOCK" => {
                self.blocks += 1;
                self.kept.keep(data, &mut self.losses, sink)
            }
            // Says that lists of sessions look different now.
            "CUSTOM" if word(&event.name) == "session_updated" => sink.emit(&AgentEvent::KeepAlive),
            "CUSTOM" => self.kept.keep(data, &mut self.losses, sink),
            // What the end of the reply, or the request, says as well.
            "MODEL_CALL_START"
            | "TOOL_CALL_END"
            | "EXCEED_MAX_ITERS"
            | "USER_CONFIRM_RESULT"
            | "EXTERNAL_EXECUTION_RESULT"
            | "USER_INTERRUPT" => sink.emit(&AgentEvent::KeepAlive),
            _ => sink.emit(&AgentEvent::Ignored),
        }
    }

    fn begin(&mut self, block: &str, kind: MessageType, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.blocks += 1;
        sink.emit(&AgentEvent::message(block, kind))
    }

    fn data_block(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = word(&event.block_id);
        let place = self.open_media.iter().position(|block| block.id == id);
        match (word(&event.kind), place) {
            ("DATA_BLOCK_START", None) => {
                self.blocks += 1;
                // An empty block costs memory as well.
                self.calls.held.add(id.len() + 256)?;
                let name = event.name.0.as_deref();
                self.open_media.push(MediaBlock::new(id, word(&event.media_type), name));
                sink.emit(&AgentEvent::KeepAlive)
            }
            ("DATA_BLOCK_DELTA", Some(place)) => {
                let block = &mut self.open_media[place];
                if let Some(url) = event.url.0.as_deref() {
                    block.set_url(url, &mut self.calls.held)?;
                } else if !block.push(word(&event.data), &mut self.calls.held)? {
                    let kind = media::output_kind(&block.media_type);
                    self.losses.lost(kind, "a piece that is no base64 is left out");
                }
                sink.emit(&AgentEvent::KeepAlive)
            }
            ("DATA_BLOCK_END", Some(place)) => {
                let block = self.open_media.swap_remove(place);
                self.emit_media(block, sink)
            }
            _ => sink.emit(&AgentEvent::Ignored),
        }
    }

    /// A complete block of media is a message.
    pub(super) fn emit_media(&mut self, block: MediaBlock, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = block.id.clone();
        self.emitted_media.push(id.clone());
        let Some(value) = block.value() else { return sink.emit(&AgentEvent::KeepAlive) };
        sink.emit(&AgentEvent::whole(&id, MessageType::Message, Role::Assistant, value))
    }

    fn output_media(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let (url, data) = (word(&event.url), word(&event.data));
        self.calls.held.add(url.len() + data.len() + 64)?;
        let source = if url.is_empty() { Source::Base64(data.to_owned()) } else { Source::Url(url.to_owned()) };
        let value = media::value(word(&event.media_type), source, None);
        self.calls.output_media(word(&event.tool_call_id), word(&event.tool_call_name), value);
        sink.emit(&AgentEvent::KeepAlive)
    }

    /// Calls wait for an answer. Once all do that have no output, the turn is over.
    fn ask(&mut self, event: &Event<'_>, is_external: bool, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for (call, raw) in asked_calls(&event.tool_calls) {
            self.ask_one(word(&call.id), word(&call.name), word(&call.input), Some(raw), is_external, sink)?;
        }
        self.is_waiting = true;
        self.old_ends.push(word(&event.id).to_owned());
        if !self.awaited.is_empty() {
            // Another answer is on its way.
            return Ok(());
        }
        if self.calls.are_settled() {
            return self.finish(End::Completed, None, sink);
        }
        // Others run, or wait for the answer without an event of their own. Only the session knows when it has stopped.
        self.wants = Continuation::Messages;
        Ok(())
    }

    /// A call waits for an answer: the client's output, or a person's decision.
    pub(super) fn ask_one(
        &mut self,
        own_id: &str,
        name: &str,
        input: &str,
        raw: Option<&RawValue>,
        is_external: bool,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.calls.is_waiting(own_id) {
            return Ok(());
        }
        let id = self.calls.wait(own_id, name, input, is_external, sink)?;
        if is_external {
            return Ok(());
        }

        let source = ItemSource { protocol: crate::NAME.to_owned(), reply_id: self.reply.clone() };
        let payload = raw.map(Json::from_raw);
        let item = approval(&id, name, input, payload.as_ref(), &source);
        let message = format!("{id}_approval");
        let value = ContentValue::OwnedData(item);
        sink.emit(&AgentEvent::whole(&message, MessageType::McpApprovalRequest, Role::Assistant, value))
    }

    /// The reply has ended.
    pub(super) fn end(
        &mut self,
        reason: &str,
        error: Option<&RawValue>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.has_next && !matches!(reason, "error" | "interrupted") {
            self.calls.close(sink)?;
            self.wants = Continuation::NextReply;
            return Ok(());
        }
        let end = match reason {
            "error" => End::Failed,
            "interrupted" => End::Canceled,
            "exceed_max_iters" => End::Incomplete,
            _ => End::Completed,
        };
        self.is_waiting = false;
        self.finish(end, error, sink)
    }

    fn finish(&mut self, end: End, error: Option<&RawValue>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for block in std::mem::take(&mut self.open_media) {
            self.emit_media(block, sink)?;
        }
        if !self.is_waiting {
            self.calls.close(sink)?;
        }
        if self.has_next {
            self.losses.lost(ContentKind::Text, "the agent asks or stops before it takes further words");
        }
        self.ended = true;

        let error: Option<ReplyError<'_>> = error.map(|raw| object(raw.get().as_bytes()).unwrap_or_default());
        let error = match (end, &error) {
            (End::Failed, Some(error)) => Some(reply_error(error)),
            (End::Failed, None) => Some(interlingua_core::agent_event::AgentError::named("", "the agent failed")),
            (End::Incomplete, _) => Some(interlingua_core::agent_event::AgentError::named(
                "max_iterations",
                "the agent has called tools as often as it may",
            )),
            _ => None,
        };
        sink.emit(&AgentEvent::Response(ResponseEvent {
            id: Some(Cow::Borrowed(self.reply.as_str())).filter(|id| !id.is_empty()),
            end: Some(end),
            error,
            usage: self.usage.to_json().map(JsonRef::Owned),
            ..ResponseEvent::default()
        }))
    }

    /// The reply was read as a whole: it has ended for this reason, or waits.
    pub(super) fn end_whole(
        &mut self,
        reason: &str,
        error: Option<&RawValue>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.is_waiting { self.finish(End::Completed, None, sink) } else { self.end(reason, error, sink) }
    }

    /// A block of media is emitted as a whole.
    pub(super) fn forget_media(&mut self, id: &str) {
        self.open_media.retain(|block| block.id != id);
    }

    /// The stream was cut, or is left: it is read again from its beginning.
    pub(super) fn restart(&mut self) {
        self.wants = Continuation::Events;
        if self.skip == Skip::Nothing {
            self.skip = if self.last.is_empty() { Skip::UntilReply } else { Skip::UntilLast };
        }
    }

    /// The next message was sent: its reply is another one.
    pub(super) fn next_reply(&mut self) {
        self.old_reply = std::mem::take(&mut self.reply);
        self.last.clear();
        (self.skip, self.wants) = (Skip::UntilReply, Continuation::Events);
        (self.blocks, self.blocks_before, self.usage_before) = (0, 0, Usage::default());
        self.has_next = false;
    }
}

/// The end of a block of text. `whole`: its text, if the pieces do not make it up.
fn end_block(block: &str, whole: Option<&str>, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let contents =
        whole.map(|text| ContentEvent::new(block, ContentUpdate::Final, ContentValue::Text(Cow::Borrowed(text))).at(0));
    sink.emit(&AgentEvent::Message(MessageEvent {
        id: Some(Cow::Borrowed(block)),
        end: Some(End::Completed),
        contents: contents.into_iter().collect(),
        ..MessageEvent::default()
    }))
}

/// The data of an item that asks for a decision.
fn approval(call: &str, name: &str, input: &str, payload: Option<&Json>, source: &ItemSource) -> Json {
    #[derive(Serialize)]
    struct Interrupt<'a> {
        kind: PendingKind,
        reason: &'static str,
        call_id: &'a str,
        decisions: &'static [Decision],
        #[serde(skip_serializing_if = "Option::is_none")]
        payload: Option<&'a Json>,
        source: &'a ItemSource,
    }
    let interrupt = Interrupt {
        kind: PendingKind::Approval,
        reason: "user_confirm",
        call_id: call,
        decisions: &[Decision::Accept, Decision::Edit, Decision::Reject],
        payload,
        source,
    };
    let mut item = Pending::tool(interlingua_core::model::ToolCall {
        call_id: format!("{}_{call}", source.reply_id),
        name: name.to_owned(),
        arguments: input.to_owned(),
        server_label: None,
    });
    item.kind = PendingKind::Approval;
    item.extension = Some(Json::from_serialize(&interrupt));
    item.to_data()
}
