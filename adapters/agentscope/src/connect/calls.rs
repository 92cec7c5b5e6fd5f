//! Calls of tools and their outputs, distinguished by the service's ids.
//!
//! Who runs a call is known only when it was permitted: by the agent (it gets a result), by the client (the service
//! asks for its execution), or by no one before a person agrees. So the end of a call is held until then.

use std::borrow::Cow;
use std::collections::HashMap;

use interlingua_adapter_kit::call_ids::CallIds;
use interlingua_adapter_kit::held::BufferedBytes;
use interlingua_core::agent_event::{
    AgentEvent, CallPart, ContentEvent, ContentUpdate, ContentValue, JsonRef, MessageEvent,
};
use interlingua_core::connector::EventSink;
use interlingua_core::json::is_empty_value;
use interlingua_core::model::{MessageType, Role, ToolOutput};
use interlingua_core::{End, Fault, Json};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Debug)]
struct Call {
    /// The run's id of it, and the message's: another one where the service repeats itself.
    id: String,
    name: String,
    /// Its end was emitted. Calls of earlier turns were.
    has_ended: bool,
    /// It was reported as waiting.
    waits: bool,
    /// Its output was emitted, or came from the client.
    has_output: bool,
}

/// An output that is not complete.
#[derive(Debug, Default)]
struct Output {
    text: String,
    media: Vec<ContentValue<'static>>,
}

/// The calls of a turn, and those of earlier ones that it answers.
#[derive(Debug, Default)]
pub(super) struct Calls {
    all: Vec<Call>,
    /// The latest call of each of the service's ids.
    by_id: HashMap<String, usize>,
    outputs: HashMap<usize, Output>,
    pub(super) held: BufferedBytes,
    /// Ids of the session's calls.
    pub(super) ids: CallIds,
}

/// The end of an output, with the tool's metadata.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OutputEnd<'a> {
    pub(super) state: &'a str,
    pub(super) metadata: Option<&'a RawValue>,
}

impl Calls {
    /// A call of an earlier turn that this one answers. `is_external`: with its output.
    pub(super) fn know(&mut self, own_id: &str, id: &str, name: &str, is_external: bool) {
        let place = self.add(own_id, id.to_owned(), name);
        let call = &mut self.all[place];
        (call.has_ended, call.has_output) = (true, is_external);
    }

    fn add(&mut self, own_id: &str, id: String, name: &str) -> usize {
        let place = self.all.len();
        self.all.push(Call { id, name: name.to_owned(), has_ended: false, waits: false, has_output: false });
        self.by_id.insert(own_id.to_owned(), place);
        place
    }

    /// A call begins.
    pub(super) fn start(&mut self, own_id: &str, name: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        // Models without ids of their own number their calls again in each answer.
        let id = if own_id.is_empty() {
            self.ids.assign(&format!("call_{}", self.all.len() + 1))
        } else {
            self.ids.assign(own_id)
        };
        let place = self.add(own_id, id, name);
        let call = &self.all[place];
        sink.emit(&AgentEvent::message(&call.id, MessageType::PluginCall))?;
        let part =
            CallPart { call_id: Cow::Borrowed(&call.id), name: Cow::Borrowed(&call.name), ..CallPart::default() };
        sink.emit(&AgentEvent::call(&call.id, part))
    }

    /// More of a call's arguments.
    pub(super) fn arguments(&mut self, own_id: &str, delta: &str, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let Some(call) = self.find(own_id).map(|place| &self.all[place]).filter(|call| !call.has_ended) else {
            return sink.emit(&AgentEvent::Ignored);
        };
        let part = CallPart { arguments: Cow::Borrowed(delta), ..CallPart::default() };
        sink.emit(&AgentEvent::call(&call.id, part))
    }

    fn find(&self, own_id: &str) -> Option<usize> {
        self.by_id.get(own_id).copied()
    }

    /// A call as a whole, of an answer that was not read piece by piece. Its end is held.
    pub(super) fn whole(
        &mut self,
        own_id: &str,
        name: &str,
        input: &str,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.find(own_id).is_none() {
            self.start(own_id, name, sink)?;
        }
        let open = self.find(own_id).map(|place| &self.all[place]).filter(|call| !call.has_ended);
        let Some(call) = open.filter(|_| !input.is_empty()) else { return Ok(()) };
        let part = CallPart {
            call_id: Cow::Borrowed(&call.id),
            name: Cow::Borrowed(&call.name),
            arguments: Cow::Borrowed(input),
            server_label: None,
        };
        let content = ContentEvent::new(&call.id, ContentUpdate::Snapshot, ContentValue::Call(part));
        sink.emit(&AgentEvent::Content(content))
    }

    /// A call is complete, and this is known to be its type.
    fn end(&mut self, place: usize, kind: MessageType, sink: &mut dyn EventSink) -> Result<(), Fault> {
        let call = &mut self.all[place];
        if std::mem::replace(&mut call.has_ended, true) {
            return Ok(());
        }
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&call.id)),
            kind: Some(kind),
            end: Some(End::Completed),
            ..MessageEvent::default()
        }))
    }

    /// A call waits for the client to run it, or for a person's decision. Gives its id in the run.
    pub(super) fn wait(
        &mut self,
        own_id: &str,
        name: &str,
        input: &str,
        is_external: bool,
        sink: &mut dyn EventSink,
    ) -> Result<String, Fault> {
        self.whole(own_id, name, input, sink)?;
        let Some(place) = self.find(own_id) else { return Ok(own_id.to_owned()) };
        let kind = if is_external { MessageType::FunctionCall } else { MessageType::PluginCall };
        self.end(place, kind, sink)?;
        let call = &mut self.all[place];
        call.waits = true;
        Ok(call.id.clone())
    }

    /// True if this call was reported as waiting.
    pub(super) fn is_waiting(&self, own_id: &str) -> bool {
        self.find(own_id).is_some_and(|place| self.all[place].waits)
    }

    /// True for a call of an earlier turn that this one answers.
    pub(super) fn is_answered(&self, own_id: &str) -> bool {
        self.find(own_id).is_some_and(|place| {
            let call = &self.all[place];
            call.has_ended && !call.waits
        })
    }

    /// True if all calls have an output, or wait.
    pub(super) fn are_settled(&self) -> bool {
        self.all.iter().all(|call| call.has_output || call.waits)
    }

    /// More of an output.
    pub(super) fn output_text(&mut self, own_id: &str, name: &str, text: &str) -> Result<(), Fault> {
        self.held.add(text.len())?;
        if let Some(output) = self.output_of(own_id, name) {
            output.text.push_str(text);
        }
        Ok(())
    }

    /// A block of media in an output. Its bytes are counted already.
    pub(super) fn output_media(&mut self, own_id: &str, name: &str, value: ContentValue<'static>) {
        if let Some(output) = self.output_of(own_id, name) {
            output.media.push(value);
        }
    }

    /// The output of a call that has none yet.
    fn output_of(&mut self, own_id: &str, name: &str) -> Option<&mut Output> {
        let place = match self.find(own_id).or_else(|| self.only_open(name)) {
            Some(place) => place,
            // Without a name no client could say which call it answers.
            None if name.is_empty() => return None,
            // Its call was made in an earlier turn.
            None => {
                let id = self.ids.latest(own_id).to_owned();
                self.know(own_id, &id, name, false);
                self.find(own_id)?
            }
        };
        (!self.all[place].has_output).then(|| self.outputs.entry(place).or_default())
    }

    /// True for an output without a name whose id no call has.
    pub(super) fn is_unknown(&self, own_id: &str, name: &str) -> bool {
        name.is_empty() && self.find(own_id).is_none() && self.only_open(name).is_none()
    }

    /// The only call without an output, for an output without a name whose id no call has.
    fn only_open(&self, name: &str) -> Option<usize> {
        let mut open = (0..self.all.len()).filter(|place| name.is_empty() && !self.all[*place].has_output);
        open.next().filter(|_| open.next().is_none())
    }

    /// Forgets the text of an output, since the service sends it again as a whole.
    pub(super) fn forget_output(&mut self, own_id: &str) {
        if let Some(place) = self.find(own_id) {
            self.outputs.remove(&place);
        }
    }

    /// An output is complete.
    pub(super) fn output_end(
        &mut self,
        own_id: &str,
        name: &str,
        end: OutputEnd<'_>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        if self.output_of(own_id, name).is_none() {
            // The client knows what it sent.
            return sink.emit(&AgentEvent::KeepAlive);
        }
        let Some(place) = self.find(own_id).or_else(|| self.only_open(name)) else { return Ok(()) };
        self.end(place, MessageType::PluginCall, sink)?;
        let output = self.outputs.remove(&place).unwrap_or_default();
        let call = &mut self.all[place];
        (call.has_output, call.waits) = (true, false);

        let data = ToolOutput {
            call_id: call.id.clone(),
            name: Some(call.name.clone()).filter(|name| !name.is_empty()),
            output: output.text,
        };
        let id = format!("{}_output", call.id);
        let values = std::iter::once(ContentValue::OwnedData(Json::from_serialize(&data))).chain(output.media);
        let contents = values.zip(0_u32..);
        let has_failed = matches!(end.state, "error" | "denied" | "interrupted");
        sink.emit(&AgentEvent::Message(MessageEvent {
            id: Some(Cow::Borrowed(&id)),
            kind: Some(MessageType::PluginCallOutput),
            role: Some(Role::Tool),
            end: Some(if has_failed { End::Failed } else { End::Completed }),
            contents: contents
                .map(|(value, index)| ContentEvent::new(&id, ContentUpdate::Final, value).at(index))
                .collect(),
            metadata: metadata(end),
            ..MessageEvent::default()
        }))
    }

    /// The reply has ended: nothing more is known about its calls.
    pub(super) fn close(&mut self, sink: &mut dyn EventSink) -> Result<(), Fault> {
        for place in 0..self.all.len() {
            self.end(place, MessageType::PluginCall, sink)?;
        }
        Ok(())
    }

    /// True if the output of this call was emitted.
    pub(super) fn has_output(&self, own_id: &str) -> bool {
        self.find(own_id).is_some_and(|place| self.all[place].has_output)
    }
}

/// The metadata of an output that has no field in the model.
fn metadata(end: OutputEnd<'_>) -> Option<JsonRef<'static>> {
    #[derive(Serialize)]
    struct Outer<'a> {
        agentscope: Inner<'a>,
    }
    #[derive(Serialize)]
    struct Inner<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<&'a RawValue>,
    }
    let state = Some(end.state).filter(|state| !matches!(*state, "" | "success" | "running"));
    let metadata = end.metadata.filter(|metadata| metadata.get().starts_with('{') && !is_empty_value(metadata.get()));
    (state.is_some() || metadata.is_some())
        .then(|| JsonRef::Owned(Json::from_serialize(&Outer { agentscope: Inner { state, metadata } })))
}
