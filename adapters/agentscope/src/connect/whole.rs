//! A reply as the session stores it: complete, once the service has stopped working on it.
//!
//! A stream drops a reply when it ends, and the oldest events of a very long reply. A late reader reads the session's
//! messages instead. Text that was emitted from the stream before is not emitted again.

use std::borrow::Cow;

use interlingua_core::Fault;
use interlingua_core::agent_event::{AgentEvent, ContentValue};
use interlingua_core::connector::EventSink;
use interlingua_core::model::{MessageType, Role};
use serde_json::value::RawValue;

use super::calls::OutputEnd;
use super::media::{self, Source};
use super::reader::Reader;
use super::wire::{Block, DataSource, Page, StoredMessage, object, word};

/// The state of the reply according to the session's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyState {
    /// It has ended, or waits: all of it was emitted.
    Reply,
    /// The session is at work.
    AtWork,
    /// The session is not at work, and there is no complete reply.
    Nothing,
}

impl Reader {
    /// Emits the reply from the session's messages, if it is complete. `asked`: the id of the message that it answers.
    pub(super) fn read_page(
        &mut self,
        page: &Page<'_>,
        asked: &str,
        sink: &mut dyn EventSink,
    ) -> Result<ReplyState, Fault> {
        let absent = if page.is_running { ReplyState::AtWork } else { ReplyState::Nothing };
        let Some(reply) = self.find(page, asked) else { return Ok(absent) };
        let blocks: Vec<(Block<'_>, &RawValue)> =
            reply.content.iter().filter_map(|raw| Some((object::<Block<'_>>(raw.get().as_bytes())?, *raw))).collect();

        let has_ended = !word(&reply.finished_at).is_empty();
        let waits = |block: &Block<'_>| {
            let state = word(&block.state);
            word(&block.kind) == "tool_call" && matches!(state, "asking" | "submitted")
        };
        let is_answered = |block: &Block<'_>| waits(block) && self.calls.is_answered(word(&block.id));
        if !has_ended {
            // An answer that it has not taken yet, or one that was given elsewhere.
            let is_late = blocks.iter().any(|(block, _)| is_answered(block)) || !self.awaited.is_empty();
            if page.is_running || is_late || !blocks.iter().any(|(block, _)| waits(block)) {
                return Ok(absent);
            }
        }

        if self.reply.is_empty() {
            word(&reply.id).clone_into(&mut self.reply);
        }
        sink.emit(&AgentEvent::started())?;
        self.emit_blocks(&blocks, sink)?;
        if let Some(usage) = reply.usage {
            self.usage = usage.since(self.usage_before);
        }
        self.is_waiting = !has_ended;
        let reason = if has_ended { word(&reply.finished_reason) } else { "" };
        self.end_whole(reason, reply.error.0, sink)?;
        Ok(ReplyState::Reply)
    }

    /// The reply: by its id, or the first one behind the message that it answers.
    fn find<'p, 'a>(&self, page: &'p Page<'a>, asked: &str) -> Option<&'p StoredMessage<'a>> {
        let is_reply = |message: &&StoredMessage<'_>| word(&message.role) == "assistant";
        if !self.reply.is_empty() {
            return page.messages.iter().filter(is_reply).find(|message| word(&message.id) == self.reply);
        }
        let place = page.messages.iter().position(|message| word(&message.id) == asked)?;
        page.messages[place + 1..].iter().find(is_reply)
    }

    fn emit_blocks(&mut self, blocks: &[(Block<'_>, &RawValue)], sink: &mut dyn EventSink) -> Result<(), Fault> {
        // Blocks of earlier turns come first.
        for (place, (block, raw)) in blocks.iter().enumerate().skip(self.blocks_before) {
            let id = word(&block.id);
            match word(&block.kind) {
                "text" => emit_text(id, MessageType::Message, word(&block.text), sink)?,
                "thinking" => emit_text(id, MessageType::Reasoning, word(&block.thinking), sink)?,
                "tool_call" => {
                    let (name, input) = (word(&block.name), word(&block.input));
                    match word(&block.state) {
                        "asking" => self.ask_one(id, name, input, Some(raw), false, sink)?,
                        "submitted" => self.ask_one(id, name, input, None, true, sink)?,
                        _ => self.calls.whole(id, name, input, sink)?,
                    }
                }
                "tool_result" => self.emit_output(block, sink)?,
                "data" => self.emit_data(block, sink)?,
                // A hint has no event any more that could be passed on unchanged.
                "hint" if place >= self.blocks => self.kept.miss(&mut self.losses),
                _ => {}
            }
        }
        self.blocks = self.blocks.max(blocks.len());
        Ok(())
    }

    fn emit_output(&mut self, block: &Block<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let (id, name, state) = (word(&block.id), word(&block.name), word(&block.state));
        if state == "running" || self.calls.has_output(id) || self.calls.is_waiting(id) {
            return Ok(());
        }
        self.calls.forget_output(id);
        let output = block.output.0.map(RawValue::get).unwrap_or("[]");
        if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(output) {
            self.calls.output_text(id, name, &text)?;
        }
        let parts: Vec<&RawValue> = serde_json::from_str(output).unwrap_or_default();
        for part in parts {
            let Some(part) = object::<Block<'_>>(part.get().as_bytes()) else { continue };
            match word(&part.kind) {
                "text" => self.calls.output_text(id, name, word(&part.text))?,
                "data" => {
                    if let Some(value) = self.data_of(&part)? {
                        self.calls.output_media(id, name, value);
                    }
                }
                _ => {}
            }
        }
        self.calls.output_end(id, name, OutputEnd { state, metadata: block.metadata.0 }, sink)
    }

    fn emit_data(&mut self, block: &Block<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let id = word(&block.id);
        self.forget_media(id);
        if self.emitted_media.iter().any(|emitted| emitted == id) {
            return Ok(());
        }
        let Some(value) = self.data_of(block)? else { return Ok(()) };
        self.emitted_media.push(id.to_owned());
        sink.emit(&AgentEvent::whole(id, MessageType::Message, Role::Assistant, value))
    }

    /// The content of a block of media. None: it is empty.
    fn data_of(&mut self, block: &Block<'_>) -> Result<Option<ContentValue<'static>>, Fault> {
        let Some(source) = block.source.0 else { return Ok(None) };
        let source: DataSource<'_> = object(source.get().as_bytes()).unwrap_or_default();
        let (url, data, media_type) = (word(&source.url), word(&source.data), word(&source.media_type));
        self.calls.held.add(url.len() + data.len())?;
        let place = match (url, data) {
            ("", "") => return Ok(None),
            ("", data) => Source::Base64(data.to_owned()),
            (url, _) => Source::Url(url.to_owned()),
        };
        let name = block.name.0.as_deref().map(str::to_owned);
        Ok(Some(media::value(media_type, place, name)))
    }
}

/// A complete block of text. The part that was emitted before is not emitted again.
fn emit_text(id: &str, kind: MessageType, text: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
    sink.emit(&AgentEvent::whole(id, kind, Role::Assistant, ContentValue::Text(Cow::Borrowed(text))))
}
