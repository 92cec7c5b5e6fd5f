//! A connector around another one: each call of a session has an id of its own, and each output a call.
//!
//! For agents that remember the conversation, where the connector emits the agent's call ids. If such an agent reuses
//! an id in a later turn, the call gets a new id ([`crate::call_ids`]), and the agent gets its own id back with the
//! output. An output with an unknown call id belongs to the only open call. If none or several are open, an output
//! without a name is dropped and reported.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::call_ids::CallIds;
use interlingua_core::agent_event::{AgentEvent, CallPart, ContentEvent, ContentValue, MessageEvent, ResponseEvent};
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::{AgentTurn, Connector, EventSink, HttpRequest, Next, Refusal, TurnRequest};
use interlingua_core::event::Millis;
use interlingua_core::fault::Fault;
use interlingua_core::json::{Extra, Json};
use interlingua_core::loss::{ContentKind, Loss, Losses};
use interlingua_core::model::{AgentRequest, Body, Content, MessageType};
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::probe::AgentProbe;
use interlingua_core::sse;

/// Maximum number of calls of one turn that are distinguished.
const MAX_CALLS: usize = 10_000;
/// Maximum number of calls without an output that a session remembers.
const MAX_OPEN: usize = 64;
/// The longest id that is stored, in bytes.
const MAX_ID: usize = 512;

/// Gives each call of a session an id of its own.
pub struct UniqueCalls(Box<dyn Connector>);

/// Stored state of a session.
#[derive(Serialize, Deserialize)]
struct StoredState {
    call_ids: CallIds,
    /// The agent's ids of the last turn's calls without an output. A turn that brings a decision may announce them
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    open: Vec<String>,
    connector: Json,
}

impl UniqueCalls {
    /// A connector around `inner`.
    #[must_use]
    pub fn around(inner: impl Connector) -> Box<dyn Connector> {
        Box::new(Self(Box::new(inner)))
    }
}

impl Connector for UniqueCalls {
    fn capabilities(&self) -> UpstreamCapabilities {
        self.0.capabilities()
    }

    fn turn(&self, request: &TurnRequest<'_>) -> Result<Box<dyn AgentTurn>, Fault> {
        // Without renamed calls, the state is that of the connector alone.
        let stored = request.session_state.decode::<StoredState>();
        let (call_ids, open, state) = match stored {
            Some(StoredState { call_ids, open, connector }) => (call_ids, open, connector),
            None => (CallIds::default(), Vec::new(), request.session_state.clone()),
        };

        let mut calls = Calls { ids: call_ids.clone(), ..Calls::default() };
        // A call that waited for a person may be announced again. One that has its output is over.
        let asked = request.answered.iter().filter(|item| item.kind != PendingKind::Tool);
        for item in asked {
            calls.answered.extend(item.call_id.as_deref().map(|id| call_ids.own(id).to_owned()));
            calls.answered.extend(open.iter().cloned());
        }

        // An agent that is sent the conversation knows the calls by their ids there.
        let is_mapped = call_ids.has_renamed() && request.history.is_empty();
        let mapped =
            is_mapped.then(|| (own_request(request.request, &call_ids), own_items(request.answered, &call_ids)));
        let (own, items) = match &mapped {
            Some((own, items)) => (own, items.as_slice()),
            None => (request.request, request.answered),
        };
        let request = request.with_parts(own, &state, items);
        let inner = self.0.turn(&request)?;
        Ok(Box::new(UniqueCallsTurn { inner, calls, stored: (call_ids, open), state, losses: Vec::new() }))
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn document_lookup(&self) -> Option<HttpRequest> {
        self.0.document_lookup()
    }

    fn probe(&self) -> Box<dyn AgentProbe> {
        self.0.probe()
    }
}

/// The request with the agent's ids of calls.
fn own_request(request: &AgentRequest, ids: &CallIds) -> AgentRequest {
    let mut request = request.clone();
    let is_renamed = |content: &Content| {
        let fields: Option<Extra> = content.as_data().and_then(Json::decode);
        let id = fields.as_ref().and_then(|fields| fields.get("call_id")?.decode::<String>());
        id.is_some_and(|id| ids.own(&id) != id)
    };
    if request.input.iter().any(|message| message.content.iter().any(is_renamed)) {
        for content in request.input.iter_mut().flat_map(|message| &mut message.content) {
            if let Body::Data(data) = &mut content.body
                && let Some(own) = with_id(data, |id| ids.own(id).to_owned())
            {
                *data = own;
            }
        }
    }
    request
}

fn own_items(items: &[Pending], ids: &CallIds) -> Vec<Pending> {
    let mut items = items.to_vec();
    for item in &mut items {
        if item.kind == PendingKind::Tool {
            item.id = ids.own(&item.id).to_owned();
        }
        if let Some(call) = &mut item.call_id {
            *call = ids.own(call).to_owned();
        }
    }
    items
}

/// Data with another id of a call. `None`: it has none, or keeps it.
fn with_id(data: &Json, id: impl FnOnce(&str) -> String) -> Option<Json> {
    if !data.text().contains("\"call_id\"") {
        return None;
    }
    let mut fields: Extra = data.decode()?;
    let old = fields.get("call_id")?.decode::<String>()?;
    let new = id(&old);
    if new == old {
        return None;
    }
    fields.set("call_id", Json::from_serialize(&new));
    Some(Json::from_serialize(&fields))
}

/// A call of the turn.
#[derive(Debug)]
struct Call {
    id: String,
    name: String,
    has_output: bool,
}

/// The calls of a turn.
#[derive(Debug, Default)]
struct Calls {
    ids: CallIds,
    /// By the agent's id.
    known: HashMap<String, Call>,
    /// The agent's ids of calls that people decided about: the agent may announce them again.
    answered: HashSet<String>,
    /// Ids of messages that hold outputs.
    outputs: HashSet<String>,
    /// Outputs with an unknown call id: the id of the call that has them. `None`: they were dropped.
    unknown_outputs: HashMap<String, Option<String>>,
    losses: Losses,
}

impl Calls {
    /// The agent's ids of calls without an output, in order.
    fn open(&self) -> Vec<String> {
        let open = self.known.iter().filter(|(own, call)| !call.has_output && own.len() <= MAX_ID);
        let mut open: Vec<String> = open.map(|(own, _)| own.clone()).collect();
        open.sort_unstable();
        open.truncate(MAX_OPEN);
        open
    }

    /// The id of a call of the agent.
    fn call(&mut self, own: &str, name: &str) -> String {
        if let Some(call) = self.known.get_mut(own) {
            if call.name.is_empty() {
                name.clone_into(&mut call.name);
            }
            return call.id.clone();
        }
        let is_repeated = self.answered.contains(own);
        let id = if is_repeated { self.ids.latest(own).to_owned() } else { self.ids.assign(own) };
        if self.known.len() < MAX_CALLS {
            let call = Call { id: id.clone(), name: name.to_owned(), has_output: false };
            self.known.insert(own.to_owned(), call);
        }
        id
    }

    /// The id of the call of an output. `None`: no call has it.
    fn output(&mut self, own: &str, name: &str) -> Option<String> {
        if let Some(call) = self.known.get_mut(own) {
            call.has_output = true;
            return Some(call.id.clone());
        }
        if !own.is_empty() && (self.answered.contains(own) || self.ids.is_used(own)) {
            return Some(self.ids.latest(own).to_owned());
        }

        // A final output repeats it.
        if let Some(known) = self.unknown_outputs.get(own) {
            return known.clone();
        }
        let found = self.unknown_output(own, name);
        if self.unknown_outputs.len() < MAX_CALLS {
            self.unknown_outputs.insert(own.to_owned(), found.clone());
        }
        found
    }

    /// The call of an output with an unknown call id. `None`: the output is dropped.
    fn unknown_output(&mut self, own: &str, name: &str) -> Option<String> {
        let fits =
            |call: &&mut Call| !call.has_output && (name.is_empty() || call.name.is_empty() || call.name == name);
        let mut open = self.known.values_mut().filter(fits);
        if let Some(call) = open.next()
            && open.next().is_none()
        {
            call.has_output = true;
            let how = "its id is that of no call: it counts as the output of the one open call";
            self.losses.changed(ContentKind::AgentOutput, how);
            return Some(call.id.clone());
        }
        if name.is_empty() {
            self.losses.lost(ContentKind::AgentOutput, "its id is that of no call");
            return None;
        }
        // Its call was made where the gateway could not see it; its name says of which tool.
        Some(own.to_owned())
    }

    /// A content with the ids of the run. `None`: it is dropped.
    fn content<'e>(&mut self, content: &ContentEvent<'e>, kind: Option<&MessageType>) -> Option<MappedContent<'e>> {
        match &content.value {
            ContentValue::Call(part) if !part.call_id.is_empty() => {
                let id = self.call(&part.call_id, &part.name);
                if id == part.call_id {
                    return Some(MappedContent::Same);
                }
                let part = CallPart { call_id: Cow::Owned(id), ..part.clone() };
                Some(MappedContent::Other(ContentEvent { value: ContentValue::Call(part), ..content.clone() }))
            }
            ContentValue::Data(Some(raw)) => self.data(content, raw, kind),
            ContentValue::OwnedData(json) => {
                let json = json.clone();
                self.data(content, json.raw(), kind)
            }
            _ => Some(MappedContent::Same),
        }
    }

    fn data<'e>(
        &mut self,
        content: &ContentEvent<'e>,
        raw: &RawValue,
        kind: Option<&MessageType>,
    ) -> Option<MappedContent<'e>> {
        #[derive(Deserialize)]
        struct Head {
            call_id: Option<String>,
            name: Option<String>,
            arguments: Option<serde::de::IgnoredAny>,
            output: Option<serde::de::IgnoredAny>,
        }
        if !raw.get().starts_with('{') || !raw.get().contains("\"call_id\"") {
            return Some(MappedContent::Same);
        }
        let Ok(head) = serde_json::from_str::<Head>(raw.get()) else { return Some(MappedContent::Same) };
        let is_output = kind.map_or(head.output.is_some(), MessageType::is_output);
        let is_call = kind.map_or(head.arguments.is_some(), MessageType::is_call);
        let (own, name) = (head.call_id.unwrap_or_default(), head.name.unwrap_or_default());
        let id = match (is_output, is_call) {
            // Without an id, readers find the call by its name; outputs of components have no defined form.
            (true, _) if own.is_empty() => return Some(MappedContent::Same),
            (true, _) => self.output(&own, &name)?,
            (_, true) if !own.is_empty() => self.call(&own, &name),
            _ => return Some(MappedContent::Same),
        };
        if id == own {
            return Some(MappedContent::Same);
        }
        let mut fields: Extra = Json::from_raw(raw).decode()?;
        fields.set("call_id", Json::from_serialize(&id));
        let value = ContentValue::OwnedData(Json::from_serialize(&fields));
        Some(MappedContent::Other(ContentEvent { value, ..content.clone() }))
    }

    /// A message with the ids of the run. `None`: nothing is left of it.
    fn message<'e>(&mut self, message: &MessageEvent<'e>) -> Option<MappedMessage<'e>> {
        if let (Some(id), Some(kind)) = (&message.id, &message.kind)
            && kind.is_output()
            && self.outputs.len() < MAX_CALLS
        {
            self.outputs.insert(id.clone().into_owned());
        }
        let holds_data = |content: &ContentEvent<'_>| {
            matches!(content.value, ContentValue::Call(_) | ContentValue::Data(Some(_)) | ContentValue::OwnedData(_))
        };
        if !message.contents.iter().any(holds_data) {
            return Some(MappedMessage::Same);
        }

        let mut is_same = true;
        let mut contents = Vec::new();
        for content in &message.contents {
            match self.content(content, message.kind.as_ref()) {
                Some(MappedContent::Same) => contents.push(content.clone()),
                Some(MappedContent::Other(other)) => {
                    is_same = false;
                    contents.push(other);
                }
                None => is_same = false,
            }
        }
        match (is_same, contents.is_empty()) {
            (true, _) => Some(MappedMessage::Same),
            (false, true) => None,
            (false, false) => Some(MappedMessage::Other(MessageEvent { contents, ..message.clone() })),
        }
    }
}

/// A content in the run's terms.
enum MappedContent<'e> {
    Same,
    Other(ContentEvent<'e>),
}

/// A message in the run's terms.
#[allow(clippy::large_enum_variant, reason = "it lives for one call on the stack")]
enum MappedMessage<'e> {
    Same,
    Other(MessageEvent<'e>),
}

/// Takes the events of the inner turn.
struct CallSink<'s> {
    calls: &'s mut Calls,
    sink: &'s mut dyn EventSink,
}

impl EventSink for CallSink<'_> {
    #[inline]
    fn emit(&mut self, event: &AgentEvent<'_>) -> Result<(), Fault> {
        match event {
            // The hot path.
            AgentEvent::Content(ContentEvent { value: ContentValue::Text(_), .. }) => self.sink.emit(event),
            AgentEvent::Content(content) => {
                let is_output = content.message.as_deref().is_some_and(|id| self.calls.outputs.contains(id));
                let kind = is_output.then_some(MessageType::PluginCallOutput);
                match self.calls.content(content, kind.as_ref()) {
                    Some(MappedContent::Same) => self.sink.emit(event),
                    Some(MappedContent::Other(other)) => self.sink.emit(&AgentEvent::Content(other)),
                    None => self.sink.emit(&AgentEvent::Ignored),
                }
            }
            AgentEvent::Message(message) => match self.calls.message(message) {
                Some(MappedMessage::Same) => self.sink.emit(event),
                Some(MappedMessage::Other(other)) => self.sink.emit(&AgentEvent::Message(other)),
                None => self.sink.emit(&AgentEvent::Ignored),
            },
            AgentEvent::Response(response) if !response.output.is_empty() => {
                let mut output = Vec::with_capacity(response.output.len());
                for message in &response.output {
                    match self.calls.message(message) {
                        Some(MappedMessage::Same) => output.push(message.clone()),
                        Some(MappedMessage::Other(other)) => output.push(other),
                        None => {}
                    }
                }
                self.sink.emit(&AgentEvent::Response(ResponseEvent { output, ..response.clone() }))
            }
            _ => self.sink.emit(event),
        }
    }

    fn ignored(&self) -> u64 {
        self.sink.ignored()
    }

    fn has_ended(&self) -> bool {
        self.sink.has_ended()
    }
}

struct UniqueCallsTurn {
    inner: Box<dyn AgentTurn>,
    calls: Calls,
    /// The ids before this turn, and those without an output.
    stored: (CallIds, Vec<String>),
    /// The connector's state before this turn.
    state: Json,
    /// All losses, once the turn has ended.
    losses: Vec<Loss>,
}

impl UniqueCallsTurn {
    fn with<T>(
        &mut self,
        sink: &mut dyn EventSink,
        read: impl FnOnce(&mut dyn AgentTurn, &mut dyn EventSink) -> T,
    ) -> T {
        let read = read(&mut *self.inner, &mut CallSink { calls: &mut self.calls, sink });
        if !self.calls.losses.as_slice().is_empty() {
            self.losses = self.inner.losses().iter().chain(self.calls.losses.as_slice()).cloned().collect();
        }
        read
    }
}

impl AgentTurn for UniqueCallsTurn {
    fn next(&mut self, now: Millis) -> Result<Next, Fault> {
        self.inner.next(now)
    }

    fn on_lookup(&mut self, answer: Result<&[u8], &Fault>) -> Result<(), Fault> {
        self.inner.on_lookup(answer)
    }

    #[inline]
    fn on_frame(&mut self, frame: sse::Frame<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.with(sink, |inner, sink| inner.on_frame(frame, sink))
    }

    fn on_frames_read(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.with(sink, |inner, sink| inner.on_frames_read(sink))
    }

    fn leaves_answer(&self) -> bool {
        self.inner.leaves_answer()
    }

    fn on_body(&mut self, body: &[u8], sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.with(sink, |inner, sink| inner.on_body(body, sink))
    }

    fn on_end(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.with(sink, |inner, sink| inner.on_end(sink))
    }

    fn on_failure(&mut self, fault: Fault) -> Result<(), Fault> {
        self.inner.on_failure(fault)
    }

    fn on_cut(&mut self, fault: Fault, sink: &mut dyn EventSink) -> Result<(), Fault> {
        self.with(sink, |inner, sink| inner.on_cut(fault, sink))
    }

    fn map_refusal(&self, refusal: &Refusal<'_>) -> Fault {
        self.inner.map_refusal(refusal)
    }

    fn cancel(&self) -> Option<HttpRequest> {
        self.inner.cancel()
    }

    fn cancels_once_known(&self) -> bool {
        self.inner.cancels_once_known()
    }

    fn cancel_refused(&self, status: u16, body: &[u8]) -> Option<String> {
        self.inner.cancel_refused(status, body)
    }

    fn needs_history(&self) -> bool {
        self.inner.needs_history()
    }

    fn losses(&self) -> &[Loss] {
        if self.calls.losses.as_slice().is_empty() { self.inner.losses() } else { &self.losses }
    }

    fn session_state(&self) -> Option<Json> {
        let inner = self.inner.session_state();
        let (ids, open) = (&self.calls.ids, self.calls.open());
        let is_changed = *ids != self.stored.0 || open != self.stored.1;
        if !is_changed && (inner.is_none() || *ids == CallIds::default()) {
            return inner;
        }
        let connector = inner.unwrap_or_else(|| self.state.clone());
        Some(Json::from_serialize(&StoredState { call_ids: ids.clone(), open, connector }))
    }
}
