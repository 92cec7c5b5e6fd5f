//! The calls of one answer, followed from their start to their result.
//!
//! Whether a call is the agent's or the client's, the protocol says only at the end: a call without a result is the
//! client's, unless an interrupt ends the answer (docs/protocols/ag-kit.md#order-4). A call of a tool that the client
//! declared is the client's at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_core::agent_event::{AgentEvent, CallPart, ContentValue, MessageEvent};
use interlingua_core::connector::EventSink;
use interlingua_core::loss::{ContentKind, Losses};
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::{End, Fault, FaultKind, Json};
use serde_json::Value;
use serde_json::value::RawValue;

use super::asks::ApprovedCall;
use super::options::UnansweredCalls;
use super::split::ObjectEnd;
use super::state::OpenCall;

/// More calls than any answer has.
const MAX_CALLS: usize = 10_000;
/// Arguments up to this length are compared with what was approved, in bytes.
const MAX_COMPARED: usize = 64 << 10;
/// Arguments of a second call in one that are held, in bytes.
const MAX_HELD: usize = 1 << 20;

/// The executor of a call, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    /// The client declared the tool.
    Client,
    /// The end decides.
    Undeclared,
    /// It was reported in an earlier answer.
    Repeated,
}

#[derive(Debug)]
struct Call {
    /// The agent's id.
    own: String,
    /// The id in the run: the agent's, unless an earlier call of the session has it.
    id: String,
    /// The canonical message's id.
    message: String,
    name: String,
    kind: CallKind,
    object: ObjectEnd,
    /// Up to [`MAX_COMPARED`].
    arguments: String,
    /// The text after the first object: the arguments of another call.
    more: String,
    is_complete: bool,
    /// It begins again after its end: what comes then is not appended.
    begins_again: bool,
    /// It held the arguments of several calls.
    is_mixed: bool,
    /// A digest of its result.
    result: Option<u64>,
    /// The end of its message was emitted.
    is_closed: bool,
}

/// A call that came inside another one, without an id.
#[derive(Debug)]
struct NestedCall {
    name: String,
    arguments: String,
    /// The call it came in.
    inside: String,
}

/// The calls of one answer.
#[derive(Debug)]
pub(super) struct Calls {
    all: Vec<Call>,
    by_id: HashMap<String, usize>,
    /// Names of the tools that the client declared.
    declared: Vec<String>,
    /// Calls of the answer before, whose results may come in this one.
    earlier: Vec<OpenCall>,
    approved: Vec<ApprovedCall>,
    hidden: Vec<NestedCall>,
    unanswered: UnansweredCalls,
    ids: CallIds,
}

impl Calls {
    pub(super) fn new(
        declared: Vec<String>,
        earlier: Vec<OpenCall>,
        approved: Vec<ApprovedCall>,
        unanswered: UnansweredCalls,
    ) -> Self {
        let (all, by_id, hidden) = (Vec::new(), HashMap::new(), Vec::new());
        Self { all, by_id, declared, earlier, approved, hidden, unanswered, ids: CallIds::default() }
    }

    /// With the ids of the session's earlier calls.
    pub(super) fn with_ids(mut self, ids: CallIds) -> Self {
        self.ids = ids;
        self
    }

    /// The ids of the session's calls.
    pub(super) const fn ids(&self) -> &CallIds {
        &self.ids
    }

    /// A call begins.
    pub(super) fn start(&mut self, id: &str, name: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if let Some(known) = self.by_id.get(id).filter(|_| !id.is_empty()) {
            let call = &mut self.all[*known];
            if call.result.is_none() {
                call.begins_again = call.is_complete;
                return sink.emit(&AgentEvent::Ignored);
            }
            // The call has its result: the agent uses the id again.
        }
        if self.all.len() >= MAX_CALLS {
            return Err(Fault::new(FaultKind::UpstreamTooLarge, "the agent's answer has too many calls"));
        }
        let is_repeated = self.earlier.iter().any(|call| call.id == id)
            || self.approved.iter().any(|approved| approved.call_id.as_deref() == Some(id));
        let kind = if is_repeated {
            CallKind::Repeated
        } else if self.declared.iter().any(|declared| declared == name) {
            CallKind::Client
        } else {
            CallKind::Undeclared
        };
        // Without an id of its own no result is known to be its result, but the call can be shown.
        let own = if id.is_empty() { format!("unnamed-{}", self.all.len() + 1) } else { id.to_owned() };
        let id = if kind == CallKind::Repeated { self.ids.latest(&own).to_owned() } else { self.ids.assign(&own) };
        let message = format!("call-{id}");
        self.by_id.insert(own.clone(), self.all.len());
        if kind != CallKind::Repeated {
            let part = CallPart { call_id: id.as_str().into(), name: name.into(), ..CallPart::default() };
            announce(&message, kind.message_type(), part, sink)?;
        }
        self.all.push(Call {
            own,
            id,
            message,
            name: name.to_owned(),
            kind,
            object: ObjectEnd::default(),
            arguments: String::new(),
            more: String::new(),
            is_complete: false,
            begins_again: false,
            is_mixed: false,
            result: None,
            is_closed: kind == CallKind::Repeated,
        });
        Ok(())
    }

    /// The call of an id; without an id, the latest.
    fn find(&mut self, id: &str) -> Option<&mut Call> {
        if id.is_empty() { self.all.last_mut() } else { self.by_id.get(id).map(|place| &mut self.all[*place]) }
    }

    /// More of a call's arguments.
    pub(super) fn arguments(&mut self, id: &str, delta: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(call) = self.find(id).filter(|call| !call.is_complete && !call.begins_again) else {
            return sink.emit(&AgentEvent::Ignored);
        };
        let (own, more) = call.object.split(delta);
        if call.more.len() + more.len() > MAX_HELD {
            return Err(Fault::new(
                FaultKind::UpstreamTooLarge,
                "the agent's answer holds arguments of two calls in one",
            ));
        }
        // Blanks behind an object are no other call.
        if !call.more.is_empty() || !more.trim_ascii().is_empty() {
            call.more.push_str(more);
        }
        if call.arguments.len() + own.len() <= MAX_COMPARED {
            call.arguments.push_str(own);
        }
        call.append(own, sink)
    }

    /// A call's arguments are complete.
    pub(super) fn end(&mut self, id: &str, losses: &mut Losses, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(call) = self.find(id).filter(|call| !call.is_complete) else {
            return sink.emit(&AgentEvent::Ignored);
        };
        call.is_complete = true;
        let more = std::mem::take(&mut call.more);
        if let Some(objects) = objects(&more) {
            call.is_mixed = true;
            let hidden = objects.into_iter().map(|arguments| NestedCall {
                name: call.name.clone(),
                arguments,
                inside: call.own.clone(),
            });
            let hidden: Vec<NestedCall> = hidden.collect();
            losses
                .changed(ContentKind::AgentCall, "the agent's server puts parallel calls into one, and they are split");
            self.hidden.extend(hidden);
            self.hidden.truncate(MAX_CALLS);
        } else if !more.is_empty() {
            losses.changed(ContentKind::AgentCall, "the agent's server mixes the arguments of parallel calls");
            call.append(&more, sink)?;
            call.is_mixed = true;
        }
        let Some(call) = self.find(id) else { return Ok(()) };
        if call.arguments.is_empty() {
            call.arguments.push_str("{}");
            call.append("{}", sink)?;
        }
        // Of all others the end of the answer says whose they are.
        if call.kind == CallKind::Client || call.is_mixed { call.close(None, sink) } else { Ok(()) }
    }

    /// Emits the output of one of the agent's tools.
    pub(super) fn result(
        &mut self,
        id: &str,
        result: &str,
        losses: &mut Losses,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let latest = self.all.last().filter(|_| id.is_empty()).map(|call| call.own.clone());
        let id = latest.as_deref().unwrap_or(id);
        if !self.by_id.contains_key(id) {
            if let Some(earlier) = self.earlier.iter().find(|call| call.id == id) {
                let name = earlier.name.clone();
                self.earlier.retain(|call| call.id != id);
                return output(self.ids.latest(id), &name, MessageType::PluginCallOutput, result, sink);
            }
            if self.hidden.is_empty() {
                return self.result_of_unknown(result, losses, sink);
            }
            // Servers that put two calls into one name the second one's id with its result.
            let NestedCall { name, arguments, .. } = self.hidden.remove(0);
            self.start(id, &name, sink)?;
            self.arguments(id, &arguments, sink)?;
        }

        let digest = digest(result);
        let Some(call) = self.find(id) else { return Ok(()) };
        if let Some(known) = call.result {
            if known != digest {
                losses.lost(ContentKind::AgentOutput, "the agent's server sends a second result for a call");
            }
            return sink.emit(&AgentEvent::Ignored);
        }
        call.result = Some(digest);
        if !call.is_complete {
            self.end(id, losses, sink)?;
        }
        let Some(place) = self.by_id.get(id).copied() else { return Ok(()) };
        self.check(place, losses);
        let call = &mut self.all[place];
        call.close(None, sink)?;
        output(&call.id, &call.name, call.kind.output_type(), result, sink)
    }

    /// A result with an unknown call id belongs to the only call without a result. With none or several such calls, the
    /// result is dropped.
    fn result_of_unknown(&mut self, result: &str, losses: &mut Losses, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let own = self.all.iter().filter(|call| call.result.is_none()).map(|call| &call.own);
        let mut open = own.chain(self.earlier.iter().map(|call| &call.id));
        let Some(only) = open.next().cloned().filter(|_| open.next().is_none()) else {
            losses.lost(ContentKind::AgentOutput, "its id is that of no call");
            return sink.emit(&AgentEvent::Ignored);
        };
        losses.changed(
            ContentKind::AgentOutput,
            "its id is that of no call: it counts as the output of the one open call",
        );
        self.result(&only, result, losses, sink)
    }

    /// Notes a call that was run after an approval of another one: the agent's framework mixed them up.
    fn check(&self, place: usize, losses: &mut Losses) {
        let call = &self.all[place];
        let mut approved = self.approved.iter().filter(|approved| approved.name == call.name).peekable();
        let is_another = approved.peek().is_some()
            && call.arguments.len() < MAX_COMPARED
            && approved.all(|approved| !is_same(&approved.arguments, &call.arguments));
        if is_another {
            losses.changed(ContentKind::Approval, "the agent ran a call with other arguments than were approved");
        }
    }

    /// The call that an approval concerns: the latest of its name without a result, with the same arguments if any has.
    pub(super) fn concerned(&self, name: &str, arguments: &str) -> Option<&str> {
        let open = || {
            self.all
                .iter()
                .rev()
                .filter(|call| call.name == name && call.result.is_none() && call.kind != CallKind::Client)
        };
        let exact = open().find(|call| is_same(&call.arguments, arguments));
        let earlier = self.earlier.iter().rev().find(|call| call.name == name).map(|call| self.ids.latest(&call.id));
        exact.or_else(|| open().next()).map(|call| call.id.as_str()).or(earlier)
    }

    /// The answer is complete, or an interrupt ends it: calls without a result are the client's, unless it is an
    /// interrupt.
    pub(super) fn finish(
        &mut self,
        is_interrupt: bool,
        losses: &mut Losses,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        for place in 0..self.all.len() {
            if !self.all[place].is_complete {
                let id = self.all[place].own.clone();
                self.end(&id, losses, sink)?;
            }
            let call = &mut self.all[place];
            if call.is_mixed && call.result.is_none() && !is_interrupt {
                losses.lost(ContentKind::AgentOutput, "the agent's server sends one result for parallel calls");
            }
            let is_clients = !is_interrupt && self.unanswered == UnansweredCalls::Tool;
            call.close(is_clients.then_some(MessageType::FunctionCall), sink)?;
        }
        for (NestedCall { name, arguments, inside }, number) in
            std::mem::take(&mut self.hidden).into_iter().zip(2_u32..)
        {
            let id = self.ids.assign(&format!("{inside}-{number}"));
            let message = format!("call-{id}");
            let part =
                CallPart { call_id: id.into(), name: name.into(), arguments: arguments.into(), server_label: None };
            announce(&message, MessageType::PluginCall, part, sink)?;
            sink.emit(&AgentEvent::message_finished(&message, End::Completed))?;
        }
        Ok(())
    }

    /// Calls of the agent that have no result yet.
    pub(super) fn open(&self) -> impl Iterator<Item = OpenCall> + '_ {
        let own = self.all.iter().filter(|call| call.kind != CallKind::Client && call.result.is_none());
        let own = own.map(|call| OpenCall { id: call.own.clone(), name: call.name.clone() });
        let earlier = self.earlier.iter().filter(|call| !self.by_id.contains_key(&call.id)).cloned();
        own.chain(earlier)
    }
}

impl Call {
    /// Emits the end of its message. `kind`: the type of the message.
    fn close(&mut self, kind: Option<MessageType>, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        let (id, end) = (Some(Cow::Borrowed(self.message.as_str())), Some(End::Completed));
        sink.emit(&AgentEvent::Message(MessageEvent { id, kind, end, ..MessageEvent::default() }))
    }

    fn append(&self, arguments: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        if arguments.is_empty() || self.kind == CallKind::Repeated {
            return Ok(());
        }
        let part = CallPart { arguments: arguments.into(), ..CallPart::default() };
        sink.emit(&AgentEvent::call(&self.message, part))
    }
}

impl CallKind {
    const fn message_type(self) -> MessageType {
        match self {
            Self::Client => MessageType::FunctionCall,
            Self::Undeclared | Self::Repeated => MessageType::PluginCall,
        }
    }

    const fn output_type(self) -> MessageType {
        match self {
            Self::Client => MessageType::FunctionCallOutput,
            Self::Undeclared | Self::Repeated => MessageType::PluginCallOutput,
        }
    }
}

fn announce(message: &str, kind: MessageType, part: CallPart<'_>, sink: &mut dyn EventSink) -> Result<(), Fault> {
    sink.emit(&AgentEvent::message(message, kind))?;
    sink.emit(&AgentEvent::call(message, part))
}

fn output(id: &str, name: &str, kind: MessageType, result: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
    let message = format!("result-{id}");
    let name = (!name.is_empty()).then(|| name.to_owned());
    let output = ToolOutput { call_id: id.to_owned(), name, output: result.to_owned() };
    let value = ContentValue::OwnedData(Json::from_serialize(&output));
    sink.emit(&AgentEvent::whole(&message, kind, Role::Tool, value))
}

/// The objects that a text consists of. None: it holds anything else.
fn objects(text: &str) -> Option<Vec<String>> {
    let mut objects = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value = value.ok().filter(|value| value.get().starts_with('{'))?;
        objects.push(value.get().to_owned());
    }
    (!objects.is_empty()).then_some(objects)
}

/// True for two texts with the same JSON.
fn is_same(one: &str, other: &str) -> bool {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || parsed(one).is_some_and(|one| parsed(other) == Some(one))
}

fn digest(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
