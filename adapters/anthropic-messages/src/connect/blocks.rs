//! The blocks of an answer as messages: which are open, which one a delta belongs to, and what each is closed with.
//!
//! Not here: blocks that come whole ([`super::hosted`]).

use std::collections::HashMap;

use interlingua_adapter_kit::turn_ids::TurnIds;
use interlingua_core::agent_event::{
    AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::model::MessageType;
use interlingua_core::{End, Extra, Fault, FaultKind, Json, opaque};

/// So much is held until a block ends, in bytes: signatures, sources, input of server tools.
const MAX_HELD: usize = 32 << 20;
/// Input of server tools is kept for the next request up to this size, in bytes.
pub(super) const MAX_ITEM: usize = 256 << 10;
/// So many blocks may be open at once. The oldest is closed for another one.
const MAX_OPEN: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Text,
    Thinking,
    Call,
}

#[derive(Debug)]
pub(super) struct CallStart<'a> {
    pub(super) kind: MessageType,
    pub(super) call_id: String,
    pub(super) name: &'a str,
    pub(super) server_label: Option<&'a str>,
    /// The input in the start event. Used if no piece arrives.
    pub(super) input: Option<String>,
    /// The block of a tool that the server runs, to be sent back with the next request.
    pub(super) item: Option<Extra>,
}

/// The blocks of one answer.
#[derive(Debug)]
pub(super) struct Blocks {
    all: Vec<Slot>,
    /// Places of those whose end was not emitted yet, in order.
    open: Vec<usize>,
    /// The latest block of each index.
    by_index: HashMap<i64, usize>,
    /// The latest block of each kind.
    latest: [Option<usize>; 3],
    /// The block that the last delta belonged to.
    current: usize,
    held: usize,
    /// The places of all blocks in the order of arrival. `None`: a block without a slot, such as a tool's output.
    order: Vec<Option<usize>>,
    /// The author's name of opaque values.
    origin: String,
    has_text: bool,
}

#[derive(Debug)]
struct Slot {
    kind: BlockKind,
    index: Option<i64>,
    /// The id of its message. Empty: nothing was emitted yet.
    message: String,
    state: BlockState,
    signature: Option<String>,
    annotations: Vec<Json>,
    call: Option<Call>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockState {
    Open,
    /// The server said that it is complete. Deltas that come all the same are taken until something else comes.
    Stopped,
    /// Its end was emitted.
    Ended,
}

#[derive(Debug, Default)]
struct Call {
    has_arguments: bool,
    input: Option<String>,
    item: Option<Extra>,
    /// Gathered only where there is an item.
    arguments: String,
}

impl Blocks {
    pub(super) fn new(origin: String) -> Self {
        Self {
            all: Vec::new(),
            open: Vec::new(),
            by_index: HashMap::new(),
            latest: [None; 3],
            current: 0,
            held: 0,
            order: Vec::new(),
            origin,
            has_text: false,
        }
    }

    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The number of blocks so far.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// Counts a block that is no text, thought or call.
    pub(super) fn note_whole(&mut self) {
        self.order.push(None);
    }

    /// True if a thought has only a signature.
    pub(super) fn has_signed(&self) -> bool {
        self.all.iter().any(|slot| slot.signature.is_some())
    }

    /// Compares a block that was streamed with the whole one: adds what is missing.
    pub(super) fn complete(
        &mut self,
        place: usize,
        whole: Option<&str>,
        input: Option<String>,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let Some(place) = self.order.get(place).copied().flatten() else { return Ok(()) };
        let Some(slot) = self.all.get_mut(place).filter(|slot| slot.state != BlockState::Ended) else { return Ok(()) };
        if let Some(call) = &mut slot.call {
            call.input = input.or(call.input.take());
            return Ok(());
        }
        let Some(whole) = whole.filter(|whole| !whole.is_empty()) else { return Ok(()) };
        self.announce(place, ids, sink)?;
        let text = ContentValue::Text(whole.into());
        sink.emit(&AgentEvent::Content(ContentEvent::new(&self.all[place].message, ContentUpdate::Final, text)))
    }

    /// True once there was any text.
    pub(super) const fn has_text(&self) -> bool {
        self.has_text
    }

    /// Counts bytes that are held back, which nothing else limits.
    ///
    /// # Errors
    /// If they are more than [`MAX_HELD`].
    pub(super) fn count_held(&mut self, bytes: usize) -> Result<(), Fault> {
        self.held += bytes;
        if self.held > MAX_HELD {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the answer is larger than a run may be")
                .with_detail(format_args!("more than {MAX_HELD} bytes of signatures, sources and input of tools")));
        }
        Ok(())
    }

    /// A text or thinking block begins. Its message begins with its first text.
    pub(super) fn start(
        &mut self,
        kind: BlockKind,
        index: Option<i64>,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        self.end_before_next(index, ids, sink)?;
        self.push(kind, index, String::new(), None);
        Ok(())
    }

    /// A call begins.
    pub(super) fn start_call(
        &mut self,
        index: Option<i64>,
        start: CallStart<'_>,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        self.end_before_next(index, ids, sink)?;
        let message = ids.message();
        sink.emit(&AgentEvent::message(&message, start.kind))?;
        let part = CallPart {
            call_id: start.call_id.into(),
            name: start.name.into(),
            server_label: start.server_label.map(Into::into),
            ..CallPart::default()
        };
        sink.emit(&AgentEvent::call(&message, part))?;

        let call = Call { input: start.input, item: start.item, ..Call::default() };
        self.push(BlockKind::Call, index, message, Some(call));
        Ok(())
    }

    fn push(&mut self, kind: BlockKind, index: Option<i64>, message: String, call: Option<Call>) {
        let place = self.all.len();
        self.all.push(Slot {
            kind,
            index,
            message,
            state: BlockState::Open,
            signature: None,
            annotations: Vec::new(),
            call,
        });
        self.open.push(place);
        self.order.push(Some(place));
        if let Some(index) = index {
            self.by_index.insert(index, place);
        }
        self.latest[kind as usize] = Some(place);
        self.current = place;
    }

    /// Ends the blocks that are complete when another block begins: stopped blocks, a block with the same index, and
    /// text, since servers that never stop a block begin the next one after it. Calls stay open: their pieces may
    /// alternate.
    pub(super) fn end_before_next(
        &mut self,
        index: Option<i64>,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let open = std::mem::take(&mut self.open);
        let surplus = open.len().saturating_sub(MAX_OPEN - 1);
        for (rank, place) in open.into_iter().enumerate() {
            let slot = &self.all[place];
            let is_over = rank < surplus
                || slot.state == BlockState::Stopped
                || slot.kind != BlockKind::Call
                || (index.is_some() && slot.index == index);
            if is_over {
                self.announce_signed(place, ids, sink)?;
                self.end(place, End::Completed, sink)?;
            } else {
                self.open.push(place);
            }
        }
        Ok(())
    }

    /// A piece of text or thinking.
    #[inline]
    pub(super) fn text(
        &mut self,
        kind: BlockKind,
        index: Option<i64>,
        text: &str,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if text.is_empty() {
            return Ok(());
        }

        let place = match self.place(kind, index) {
            Some(place) => place,
            None => {
                self.start(kind, index, ids, sink)?;
                self.current
            }
        };
        self.announce(place, ids, sink)?;
        self.has_text |= kind == BlockKind::Text;
        sink.emit(&AgentEvent::text(&self.all[place].message, text))
    }

    /// A piece of a call's input. False: it belongs to no call.
    pub(super) fn input(&mut self, index: Option<i64>, piece: &str, sink: &mut dyn EventSink) -> Result<bool, Fault> {
        let Some(place) = self.place(BlockKind::Call, index) else { return Ok(false) };
        if piece.is_empty() {
            return Ok(true);
        }

        let slot = &mut self.all[place];
        let Some(call) = &mut slot.call else { return Ok(false) };
        call.has_arguments = true;
        let part = CallPart { arguments: piece.into(), ..CallPart::default() };
        sink.emit(&AgentEvent::call(&slot.message, part))?;
        if call.item.is_some() {
            call.arguments.push_str(piece);
            self.count_held(piece.len())?;
        }
        Ok(true)
    }

    /// The signature of a thought. The last one counts.
    pub(super) fn sign(
        &mut self,
        index: Option<i64>,
        signature: &str,
        ids: &mut TurnIds,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let place = match self.place(BlockKind::Thinking, index) {
            Some(place) => place,
            None => {
                self.start(BlockKind::Thinking, index, ids, sink)?;
                self.current
            }
        };
        self.count_held(signature.len())?;
        self.all[place].signature = Some(signature.to_owned());
        Ok(())
    }

    /// A source of a text.
    pub(super) fn cite(&mut self, index: Option<i64>, citation: &Json) -> Result<bool, Fault> {
        let Some(place) = self.place(BlockKind::Text, index) else { return Ok(false) };
        self.count_held(citation.text().len())?;
        self.all[place].annotations.push(to_annotation(citation));
        Ok(true)
    }

    /// Completes a block. Returns whether it exists.
    pub(super) fn stop(&mut self, index: Option<i64>) -> bool {
        let of_index = index.and_then(|index| self.by_index.get(&index).copied());
        let found = of_index.filter(|place| self.all[*place].state == BlockState::Open).or_else(|| {
            // Servers that count wrongly, or not at all, mean the one that is open.
            let mut open = self.open.iter().rev();
            open.find(|place| self.all[**place].state == BlockState::Open).copied()
        });
        let Some(place) = found else { return false };
        self.all[place].state = BlockState::Stopped;
        true
    }

    /// The block that a delta belongs to: the one of its index if it is of the right kind, else the latest of its kind.
    #[inline]
    fn place(&mut self, kind: BlockKind, index: Option<i64>) -> Option<usize> {
        let is_open = |place: &usize| {
            let slot = self.all.get(*place);
            slot.is_some_and(|slot| slot.kind == kind && slot.state != BlockState::Ended)
        };
        if is_open(&self.current) && self.all[self.current].index == index {
            return Some(self.current);
        }

        let of_index = index.and_then(|index| self.by_index.get(&index).copied()).filter(is_open);
        let found = of_index.or_else(|| self.latest[kind as usize].filter(is_open))?;
        self.current = found;
        Some(found)
    }

    #[inline]
    fn announce(&mut self, place: usize, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let slot = &mut self.all[place];
        if !slot.message.is_empty() {
            return Ok(());
        }

        let kind = if slot.kind == BlockKind::Thinking { MessageType::Reasoning } else { MessageType::Message };
        slot.message = ids.message();
        sink.emit(&AgentEvent::message(&slot.message, kind))
    }

    /// Emits the ends of the blocks that are complete.
    pub(super) fn end_stopped(&mut self, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let open = std::mem::take(&mut self.open);
        for place in open {
            if self.all[place].state == BlockState::Stopped {
                self.announce_signed(place, ids, sink)?;
                self.end(place, End::Completed, sink)?;
            } else {
                self.open.push(place);
            }
        }
        Ok(())
    }

    /// Emits the ends of all blocks: `end` for those that the server did not complete.
    pub(super) fn finish(&mut self, end: End, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.end_stopped(ids, sink)?;
        for place in std::mem::take(&mut self.open) {
            self.announce_signed(place, ids, sink)?;
            self.end(place, end, sink)?;
        }
        Ok(())
    }

    /// A thought that is not shown has no text, only a signature, which the server wants back.
    fn announce_signed(&mut self, place: usize, ids: &mut TurnIds, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if self.all[place].signature.is_some() { self.announce(place, ids, sink) } else { Ok(()) }
    }

    fn end(&mut self, place: usize, end: End, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let slot = &mut self.all[place];
        slot.state = BlockState::Ended;
        if slot.message.is_empty() {
            return Ok(());
        }

        let mut metadata = Extra::new();
        if !slot.annotations.is_empty() {
            metadata.push("annotations", Json::from_serialize(&std::mem::take(&mut slot.annotations)));
        }
        if let Some(signature) = slot.signature.take() {
            metadata.push("signature", Json::from_serialize(&signature));
            metadata.push(opaque::ORIGIN, Json::from_serialize(&self.origin));
        }
        if let Some(call) = slot.call.take() {
            if !call.has_arguments && end == End::Completed {
                let arguments = call.input.as_deref().unwrap_or("{}");
                let part = CallPart { arguments: arguments.into(), ..CallPart::default() };
                sink.emit(&AgentEvent::call(&slot.message, part))?;
            }
            if let Some(item) = whole_item(call) {
                metadata.push("item", item);
                metadata.push(opaque::ORIGIN, Json::from_serialize(&self.origin));
            }
        }

        let metadata = (!metadata.is_empty()).then(|| JsonRef::Owned(Json::from_serialize(&metadata)));
        let id = Some(slot.message.as_str().into());
        sink.emit(&AgentEvent::Message(MessageEvent { id, end: Some(end), metadata, ..MessageEvent::default() }))
    }
}

/// The block of a server's tool with the input that came in pieces. None: it cannot be sent back.
fn whole_item(call: Call) -> Option<Json> {
    let mut item = call.item?;
    if call.has_arguments {
        item.set("input", Json::parse(&call.arguments).filter(Json::is_object)?);
    }
    let item = Json::from_serialize(&item);
    (item.text().len() <= MAX_ITEM).then_some(item)
}

/// A source in the form that the gateway's protocols share; others stay as they are.
fn to_annotation(citation: &Json) -> Json {
    let fields: Extra = citation.decode().unwrap_or_default();
    if fields.get("url").and_then(Json::decode::<String>).is_none() {
        return citation.clone();
    }

    let mut annotation = Extra::new();
    annotation.push("type", Json::from_serialize("url_citation"));
    for name in ["url", "title", "cited_text"] {
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            annotation.push(name, value.clone());
        }
    }
    Json::from_serialize(&annotation)
}
