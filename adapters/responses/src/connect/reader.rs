//! Events to events: what each event of the protocol means for the run.
//!
//! See `docs/protocols/responses.md`. Items that are whole are read in `items`, which item an
//! event is about is found in `slots`.

use std::borrow::Cow;

use interlingua_adapter_kit::delta_template::DeltaTemplate;
use interlingua_adapter_kit::end_reason::EndReason;
use interlingua_adapter_kit::wire_names::OriginalNames;
use interlingua_core::agent_event::{
    AgentError, AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent, ResponseEvent,
};
use interlingua_core::client_tool::push_escaped;
use interlingua_core::connector::EventSink;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{MessageType, Role};
use interlingua_core::model_error::{Complaint, garbage};
use interlingua_core::{End, Extra, Fault, FaultKind, Json, json_repair};
use serde_json::value::RawValue;

use super::calls::{head, opening, text_argument};
use super::errors::{complaint, error_of, foreign};
use super::slots::{MAX_ITEMS, Slot, SlotKind, Slots};
use super::undecided;
use super::wire::{Event, Object, Raw, index, json_text, lent_text, number, text};

/// The progress of the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing was said of it.
    #[default]
    Unknown,
    /// The server works on it.
    Working,
    /// It has ended.
    Ended,
}

/// Reads the events of one answer, over all requests it takes.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) slots: Slots,
    pub(super) progress: Progress,
    /// The number of events in which the server reported that it is working on the answer.
    pub(super) reports: u64,
    /// The server's id of the answer.
    pub(super) response_id: Option<String>,
    /// Calls whose output the server waits for, and questions whose decision.
    pub(super) open_calls: Vec<String>,
    /// Calls of the server's own kinds that have no output so far.
    pub(super) own_calls: Vec<String>,
    /// The end of the answer.
    pub(super) end: Option<End>,
    /// The number of the last event.
    pub(super) sequence: Option<u64>,
    /// Events up to this number came before a cut.
    pub(super) repeated: Option<u64>,
    pub(super) losses: Losses,
    /// The author of values that only their author can read.
    pub(super) origin: String,
    /// The client's names of tools that the request had to rename.
    pub(super) names: OriginalNames,
    /// An answer that a limit cut counts as complete.
    pub(super) completes_incomplete: bool,
    started: bool,
    /// Text that is being unescaped.
    pub(super) scratch: String,
    /// The shape of the last event, if it was a delta of a text.
    pub(super) template: DeltaTemplate,
    /// The item and the content of that delta.
    pub(super) delta_place: (usize, Option<u32>),
}

impl Reader {
    /// `fallback`: what messages without an id are called. `origin`: who makes the values that only their maker can
    /// read.
    pub(super) fn new(fallback: String, origin: String) -> Self {
        Self {
            slots: Slots::new(fallback),
            progress: Progress::default(),
            reports: 0,
            response_id: None,
            open_calls: Vec::new(),
            own_calls: Vec::new(),
            end: None,
            sequence: None,
            repeated: None,
            losses: Losses::default(),
            origin,
            names: OriginalNames::default(),
            completes_incomplete: false,
            started: false,
            scratch: String::new(),
            template: DeltaTemplate::default(),
            delta_place: (0, None),
        }
    }

    /// Reads the data of a frame, or a whole body. `name`: the event's, if it has one.
    #[inline]
    pub(super) fn read(&mut self, data: &[u8], name: Option<&str>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if let Some(read) = self.next_delta(data, sink) {
            return read;
        }
        // Any other event may close the item, or open one with the same labels.
        self.template.forget();

        let Some(event) = Event::parse(data) else {
            let repaired = json_repair::repaired(data).filter(|repaired| Event::parse(repaired.as_bytes()).is_some());
            let Some(repaired) = repaired else { return Err(garbage(data)) };
            self.losses.changed(ContentKind::Text, json_repair::LOSS);
            return self.read(repaired.as_bytes(), name, sink);
        };
        if self.skip_repeated(&event) {
            return sink.emit(&AgentEvent::KeepAlive);
        }
        if event.kind.is_some_and(|kind| kind.get() == "\"response.output_text.delta\"") {
            return self.text_delta(&event, data, sink);
        }
        let kind = text(event.kind);
        self.event(kind.as_deref().or(name).unwrap_or_default(), &event, data, sink)
    }

    /// Whether an event was read before a cut and is repeated now.
    fn skip_repeated(&mut self, event: &Event<'_>) -> bool {
        number(event.sequence_number).is_some_and(|sequence| self.is_repeated(sequence))
    }

    pub(super) fn is_repeated(&mut self, sequence: u64) -> bool {
        if self.repeated.is_some_and(|last| sequence <= last) {
            return true;
        }
        self.sequence = Some(sequence);
        false
    }

    fn event(&mut self, kind: &str, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let name = kind.strip_prefix("response.").unwrap_or(kind);
        match name {
            "created" | "queued" | "in_progress" => self.working(event.response, sink),
            "completed" | "failed" | "incomplete" | "cancelled" | "canceled" => {
                let response = event.response.and_then(Object::parse).unwrap_or_default();
                self.terminal(name, &response, sink)
            }
            "output_item.added" => self.added(event, sink),
            "output_item.done" => self.item_done(event, sink),
            "content_part.done" => self.part_done(event, sink),
            "content_part.added"
            | "reasoning_summary_part.added"
            | "reasoning_summary_part.done"
            | "reasoning_part.added"
            | "reasoning_part.done"
            | "output_text.annotation.added" => sink.emit(&AgentEvent::KeepAlive),
            "output_text.done" => self.text_done(event, event.text, false, sink),
            "refusal.delta" => self.refusal_delta(event, sink),
            "refusal.done" => self.text_done(event, event.refusal, true, sink),
            "function_call_arguments.delta" | "mcp_call_arguments.delta" | "mcp_call.arguments_delta" => {
                self.arguments_delta(event, sink)
            }
            "function_call_arguments.done" | "mcp_call_arguments.done" | "mcp_call.arguments_done" => {
                self.arguments_done(event, sink)
            }
            "custom_tool_call_input.delta" | "code_interpreter_call_code.delta" => self.input_delta(event, sink),
            "custom_tool_call_input.done" => self.input_done(event, event.input, sink),
            "code_interpreter_call_code.done" => self.input_done(event, event.code, sink),
            "reasoning_summary_text.delta" | "reasoning_summary.delta" => self.thought(event, 0, sink),
            "reasoning_text.delta" | "reasoning.delta" | "reasoning_content.delta" | "thinking.delta" => {
                self.thought(event, 1, sink)
            }
            "reasoning_summary_text.done" | "reasoning_summary.done" => self.thought_done(event, sink),
            "audio.delta" | "audio.transcript.delta" | "output_audio.delta" | "output_audio_transcript.delta" => {
                self.audio(name.contains("transcript"), event, sink)
            }
            "image_generation_call.partial_image" => {
                self.losses.lost(ContentKind::ImageOut, "previews of an image are left out");
                sink.emit(&AgentEvent::KeepAlive)
            }
            "error" => self.failed(event, data, sink),
            _ => self.other(name, event, data, sink),
        }
    }

    /// Events without a meaning for the run, and bodies.
    fn other(&mut self, name: &str, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        let is_progress = [".in_progress", ".completed", ".failed", ".done", ".searching", ".interpreting"]
            .iter()
            .chain(&[".generating", ".calling", ".compacting"])
            .any(|end| name.ends_with(end));
        if name == "keepalive" || name == "ping" || is_progress {
            return sink.emit(&AgentEvent::KeepAlive);
        }

        let object = text(event.object);
        if object.as_deref() == Some("response") || (name.is_empty() && event.response.is_some()) {
            return self.body(data, event, sink);
        }
        if event.error.is_some() {
            return self.failed(event, data, sink);
        }
        if let Some(fault) = foreign(event, object.as_deref()) {
            return Err(fault);
        }
        if Complaint::from_unknown_event(name, data).is_some() {
            return self.failed(event, data, sink);
        }
        sink.emit(&AgentEvent::Ignored)
    }

    /// An answer that came as one object, finished or not.
    fn body(&mut self, data: &[u8], event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let whole: Option<&RawValue> = event.response.or_else(|| serde_json::from_slice(data).ok());
        let Some(response) = whole.and_then(Object::parse) else { return Err(garbage(data)) };
        let status = response.word("status");
        match status.as_ref() {
            "queued" | "in_progress" => {
                self.working(whole, sink)?;
                self.snapshot(&response, sink)
            }
            // Without a status, the output is treated as complete.
            "" => self.terminal("completed", &response, sink),
            status => self.terminal(status, &response, sink),
        }
    }

    /// Reads the items of an incomplete answer.
    fn snapshot(&mut self, response: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for (place, item) in response.list("output").into_iter().enumerate() {
            let place = u32::try_from(place).ok();
            self.item_so_far(item, place, sink)?;
        }
        Ok(())
    }

    /// The server works on it.
    fn working(&mut self, response: Raw<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if let Some(response) = response.and_then(Object::parse) {
            self.learn_id(&response);
        }
        self.progress = Progress::Working;
        self.reports += 1;
        if self.started {
            return sink.emit(&AgentEvent::KeepAlive);
        }

        self.started = true;
        let id = self.response_id.as_deref().map(Cow::Borrowed);
        sink.emit(&AgentEvent::Response(ResponseEvent { id, started: true, ..ResponseEvent::default() }))
    }

    fn learn_id(&mut self, response: &Object<'_>) {
        const MAX_ID: usize = 1024;
        let id = response.text("id").filter(|id| !id.is_empty() && id.len() <= MAX_ID);
        if let Some(id) = id {
            self.response_id = Some(id.into_owned());
        }
    }

    fn added(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(item) = event.item.and_then(Object::parse) else { return sink.emit(&AgentEvent::Ignored) };
        let kind = SlotKind::from_word(&item.word("type"));
        let place = index(event.output_index);
        let wire_id = item.word("id");
        // Some servers use one label for all items, or repeat the items from before a cut: a closed item is announced
        // again.
        let is_again = |known: &Slot| !known.is_closed || self.repeated.is_some();
        if self.slots.labelled(place, &wire_id, kind).is_some_and(is_again) {
            return sink.emit(&AgentEvent::KeepAlive);
        }

        let slot = self.open(place, &wire_id, kind)?;
        self.announce(slot, &item, sink)
    }

    /// A new item.
    pub(super) fn open(&mut self, place: Option<u32>, wire_id: &str, kind: SlotKind) -> Result<usize, Fault> {
        self.slots.open(place, wire_id, kind).ok_or_else(|| {
            let message = "the agent's answer has too many items";
            Fault::new(FaultKind::UpstreamTooLarge, message).with_detail(format!("more than {MAX_ITEMS}"))
        })
    }

    /// The item of a piece of this kind. A piece that comes without an item opens one. None: its item has ended.
    pub(super) fn place(
        &mut self,
        event: &Event<'_>,
        kind: SlotKind,
        sink: &mut dyn EventSink,
    ) -> Result<Option<usize>, Fault> {
        let fits = if kind == SlotKind::Message {
            |kind| kind == SlotKind::Message
        } else {
            |kind| kind == SlotKind::Reasoning
        };
        if let Some(place) = self.slots.find(event, fits) {
            return Ok(Some(place));
        }

        let wire_id = text(event.item_id).unwrap_or_default();
        let output_index = index(event.output_index);
        if self.slots.labelled(output_index, &wire_id, kind).is_some() {
            sink.emit(&AgentEvent::Ignored)?;
            return Ok(None);
        }
        let place = self.open(output_index, &wire_id, kind)?;
        self.announce(place, &Object::default(), sink)?;
        Ok(Some(place))
    }

    /// A text or a refusal is whole. Servers repeat it up to three times more.
    fn text_done(
        &mut self,
        event: &Event<'_>,
        whole: Raw<'_>,
        is_refusal: bool,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Message, sink)? else { return Ok(()) };
        // Empty texts say nothing; the item's end has them if they matter.
        let Some(whole) = text(whole).filter(|whole| !whole.is_empty()) else {
            return sink.emit(&AgentEvent::KeepAlive);
        };
        self.slots.all[place].has_spoken = true;
        let value = if is_refusal { ContentValue::Refusal(whole) } else { ContentValue::Text(whole) };
        let content = ContentEvent::new(&self.slots.all[place].id, ContentUpdate::Final, value);
        sink.emit(&AgentEvent::Content(ContentEvent { index: index(event.content_index), ..content }))
    }

    /// A part is whole: for servers that stream nothing of it.
    fn part_done(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(part) = event.part.and_then(Object::parse) else { return sink.emit(&AgentEvent::Ignored) };
        match part.word("type").as_ref() {
            "output_text" | "text" => self.text_done(event, part.get("text"), false, sink),
            "refusal" => self.text_done(event, part.get("refusal"), true, sink),
            _ => sink.emit(&AgentEvent::KeepAlive),
        }
    }

    fn refusal_delta(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Message, sink)? else { return Ok(()) };
        let delta = lent_text(event.delta, &mut self.scratch);
        if delta.is_empty() {
            return sink.emit(&AgentEvent::KeepAlive);
        }
        self.slots.all[place].has_spoken = true;
        let content = ContentEvent::append(&self.slots.all[place].id, ContentValue::Refusal(Cow::Borrowed(delta)));
        sink.emit(&AgentEvent::Content(ContentEvent { index: index(event.content_index), ..content }))
    }

    /// A piece of reasoning. Summaries have the even places of the message, the thoughts themselves the odd ones.
    fn thought(&mut self, event: &Event<'_>, parity: u32, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Reasoning, sink)? else { return Ok(()) };
        let part = if parity == 0 { event.summary_index.or(event.content_index) } else { event.content_index };
        let part = index(part).unwrap_or(0);
        // Some servers send an object with the text.
        let delta = event.delta.map(|delta| part_text(delta).unwrap_or(delta));
        let delta = lent_text(delta, &mut self.scratch);
        if delta.is_empty() {
            return sink.emit(&AgentEvent::KeepAlive);
        }
        self.slots.all[place].has_spoken = true;
        let content = ContentEvent::append(&self.slots.all[place].id, ContentValue::Text(Cow::Borrowed(delta)));
        sink.emit(&AgentEvent::Content(content.at(2 * part + parity)))
    }

    /// A part of a summary is whole. The thoughts themselves are compared at the item's end only, where it is seen
    /// whether they merely repeat the summary.
    fn thought_done(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Reasoning, sink)? else { return Ok(()) };
        let Some(whole) = text(event.text).filter(|whole| !whole.is_empty()) else {
            return sink.emit(&AgentEvent::KeepAlive);
        };
        self.slots.all[place].has_spoken = true;
        let part = index(event.summary_index).unwrap_or(0);
        let content =
            ContentEvent::new(&self.slots.all[place].id, ContentUpdate::Final, ContentValue::Text(whole)).at(2 * part);
        sink.emit(&AgentEvent::Content(content))
    }

    /// A piece of a call's arguments.
    fn arguments_delta(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.slots.find(event, SlotKind::is_call).filter(|&place| self.slots.all[place].is_open)
        else {
            // No one can run a call without a name: its end has both.
            return sink.emit(&AgentEvent::KeepAlive);
        };

        let slot = &mut self.slots.all[place];
        slot.has_arguments = true;
        let arguments = lent_text(event.delta, &mut self.scratch);
        sink.emit(&AgentEvent::call(&slot.id, CallPart { arguments: arguments.into(), ..CallPart::default() }))
    }

    /// A piece of the free text of a call, or of the code that a tool of the server runs: its only argument.
    fn input_delta(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.slots.find(event, SlotKind::is_call).filter(|&place| self.slots.all[place].is_open)
        else {
            return sink.emit(&AgentEvent::KeepAlive);
        };

        let slot = &mut self.slots.all[place];
        let piece = lent_text(event.delta, &mut self.scratch);
        let mut arguments = if slot.has_arguments { String::new() } else { opening(slot.kind).to_owned() };
        slot.has_arguments = true;
        push_escaped(piece, &mut arguments);
        sink.emit(&AgentEvent::call(&slot.id, CallPart { arguments: arguments.into(), ..CallPart::default() }))
    }

    /// The text of a call is whole.
    fn input_done(&mut self, event: &Event<'_>, whole: Raw<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let place = self.slots.find(event, SlotKind::is_call).filter(|&place| self.slots.all[place].is_open);
        let (Some(place), Some(whole)) = (place, text(whole)) else { return sink.emit(&AgentEvent::KeepAlive) };

        let slot = &mut self.slots.all[place];
        slot.has_arguments = true;
        let arguments = text_argument(slot.kind, &whole).into();
        let call = ContentValue::Call(CallPart { arguments, ..CallPart::default() });
        sink.emit(&AgentEvent::Content(ContentEvent::new(&slot.id, ContentUpdate::Final, call)))
    }

    /// The arguments of a call are whole.
    fn arguments_done(&mut self, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let place = self.slots.find(event, SlotKind::is_call).filter(|&place| self.slots.all[place].is_open);
        let whole = json_text(event.arguments).filter(|whole| !whole.is_empty());
        let (Some(place), Some(arguments)) = (place, whole) else { return sink.emit(&AgentEvent::KeepAlive) };

        let slot = &mut self.slots.all[place];
        slot.has_arguments = true;
        let call = ContentValue::Call(CallPart { arguments, ..CallPart::default() });
        let content = ContentEvent::new(&slot.id, ContentUpdate::Final, call);
        if slot.kind != SlotKind::McpCall {
            return sink.emit(&AgentEvent::Content(content));
        }

        // The call is whole, and its output may take long: other calls begin and end meanwhile.
        slot.has_called = true;
        let id = Some(Cow::Borrowed(slot.id.as_str()));
        let (end, contents) = (Some(End::Completed), vec![content]);
        sink.emit(&AgentEvent::Message(MessageEvent { id, end, contents, ..MessageEvent::default() }))
    }

    fn audio(&mut self, is_transcript: bool, event: &Event<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(place) = self.place(event, SlotKind::Message, sink)? else { return Ok(()) };
        let delta = Cow::Borrowed(lent_text(event.delta, &mut self.scratch));
        self.slots.all[place].has_spoken |= !delta.is_empty();
        let value = if is_transcript {
            ContentValue::Text(delta)
        } else {
            ContentValue::Audio { data: Some(delta), format: text(event.format) }
        };
        let content = ContentEvent::append(&self.slots.all[place].id, value);
        sink.emit(&AgentEvent::Content(ContentEvent { index: index(event.content_index), ..content }))
    }

    /// The answer has ended.
    pub(super) fn terminal(
        &mut self,
        word: &str,
        response: &Object<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if !self.started {
            self.learn_id(response);
        }
        let output = response.list("output");
        let items: Vec<Object<'_>> = output.iter().map(|item| Object::parse(item).unwrap_or_default()).collect();
        self.slots.begin_final(items.iter().map(|item| SlotKind::from_word(&item.word("type"))));
        let undecided = undecided::calls(&items);
        for (place, item) in (0..).zip(output) {
            // A streamed call cannot be taken back.
            let is_new = |id: &Cow<'_, str>| self.slots.known(Some(place), id, SlotKind::FunctionCall, true).is_none();
            if !undecided.get(&place).is_some_and(is_new) {
                self.final_item(item, Some(place), sink)?;
            }
        }

        let reason = response.object("incomplete_details").map(|details| details.word("reason").into_owned());
        let status = response.text("status");
        let end = match status.as_deref().filter(|status| ENDS.contains(status)).unwrap_or(word) {
            // A server that says why the answer is incomplete does not call it complete.
            "completed" if reason.as_ref().is_none_or(String::is_empty) || self.completes_incomplete => End::Completed,
            "incomplete" if self.completes_incomplete => End::Completed,
            "completed" | "incomplete" => End::Incomplete,
            "cancelled" | "canceled" => End::Canceled,
            "failed" => End::Failed,
            word => match EndReason::parse(word) {
                None | Some(EndReason::Unknown) => {
                    // A value of a later version: whether the output is complete is unknown.
                    self.losses
                        .changed(ContentKind::EndReason, "the server's word for the end of the answer is unknown");
                    sink.emit(&AgentEvent::Ignored)?;
                    End::Incomplete
                }
                Some(reason) => reason.end(true),
            },
        };

        let error = match end {
            End::Failed => Some(error_of(response.get("error"))),
            End::Incomplete => {
                let known = || if ENDS.contains(&word) { String::new() } else { word.to_owned() };
                Some(incomplete(reason.filter(|reason| !reason.is_empty()).unwrap_or_else(known)))
            }
            _ => None,
        };
        let usage = response.get("usage").map(JsonRef::Borrowed);
        self.finish(end, error, usage, sink)
    }

    /// The server complains, and says nothing of the answer.
    fn failed(&mut self, event: &Event<'_>, data: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        // Frameworks name the status in `error`, and the reason beside it.
        let error = event.error.filter(|error| !error.get().starts_with('"'));
        let error = error.map_or_else(|| complaint(data), |error| error_of(Some(error)));
        self.finish(End::Failed, Some(error), None, sink)
    }

    fn finish(
        &mut self,
        end: End,
        error: Option<(String, String)>,
        usage: Option<JsonRef<'_>>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        self.progress = Progress::Ended;
        self.end = Some(end);
        self.settle_own_calls();
        let error = error.map(|(code, message)| AgentError::named(code, message));
        sink.emit(&AgentEvent::Response(ResponseEvent { end: Some(end), error, usage, ..ResponseEvent::default() }))
    }

    /// Announces the message of an item, if the item has its type.
    pub(super) fn announce(&mut self, place: usize, item: &Object<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let slot = &mut self.slots.all[place];
        let kind = match slot.kind {
            SlotKind::Message => MessageType::Message,
            SlotKind::Reasoning => MessageType::Reasoning,
            SlotKind::FunctionCall | SlotKind::CustomCall => MessageType::FunctionCall,
            SlotKind::McpCall => MessageType::McpCall,
            SlotKind::Hosted => MessageType::PluginCall,
            SlotKind::Whole => return sink.emit(&AgentEvent::KeepAlive),
        };
        let call = slot.kind.is_call().then(|| head(slot.kind, item, &self.names));
        if call.as_ref().is_some_and(|call| call.name.is_empty()) {
            // A call without a name cannot be shown: its end has one.
            return sink.emit(&AgentEvent::KeepAlive);
        }

        slot.is_open = true;
        let role = matches!(kind, MessageType::Message).then(|| match item.text("role") {
            Some(role) => Role::from(role.as_ref()),
            None => Role::Assistant,
        });
        let id = Some(Cow::Borrowed(slot.id.as_str()));
        let metadata = early_metadata(item);
        sink.emit(&AgentEvent::Message(MessageEvent {
            id,
            kind: Some(kind),
            role,
            metadata,
            ..MessageEvent::default()
        }))?;
        match call {
            Some(call) => {
                slot.has_arguments |= !call.arguments.is_empty();
                sink.emit(&AgentEvent::call(&slot.id, call))
            }
            None => Ok(()),
        }
    }
}

/// Metadata that an item contains when it is announced.
fn early_metadata(item: &Object<'_>) -> Option<JsonRef<'static>> {
    let mut fields = Extra::new();
    for name in ["phase", "approval_request_id"] {
        if let Some(word) = item.text(name).filter(|word| !word.is_empty()) {
            fields.push(name, Json::from_serialize(&word));
        }
    }
    (!fields.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(&fields)))
}

/// Words for an answer that has ended.
const ENDS: [&str; 5] = ["completed", "incomplete", "failed", "cancelled", "canceled"];

/// Why an answer is incomplete.
fn incomplete(word: String) -> (String, String) {
    let known = EndReason::parse(&word).filter(|reason| !matches!(reason, EndReason::Unknown | EndReason::Complete));
    match known.filter(|reason| reason.end(true) == End::Incomplete).and_then(|reason| reason.error(&word, true)) {
        Some((code, message)) => (code, message.to_owned()),
        None => (word, "the agent did not complete its answer".to_owned()),
    }
}

fn part_text(part: &RawValue) -> Raw<'_> {
    if part.get().starts_with('{') { Object::parse(part)?.get("text") } else { None }
}
