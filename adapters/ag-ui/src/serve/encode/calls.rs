//! Calls and their results: each call is announced once in a thread, and never a result before its call.
//!
//! Not here: which calls wait for the client ([`super::finish`]).

use std::collections::HashMap;

use interlingua_adapter_kit::call_output;
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_core::model::{ToolCall, ToolOutput};
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::{Event as RunEvent, Extra, Json, Out, Step};

use super::super::events::{Event, Origin, ResultContent};
use super::super::thread::Labels;
use super::super::writer::{Template, Writer};
use super::contents;
use super::origin::{is_own, origin_of, sealed};
use super::texts::Texts;

/// The calls of a stream.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Calls of this run by their id.
    announced: HashMap<String, AnnouncedCall>,
    /// Their ids in order.
    order: Vec<String>,
    /// Calls in progress, by message and content.
    open: HashMap<(u32, u32), OpenCall>,
    /// The message that the next call belongs to, if only calls have arrived since.
    group: Option<String>,
}

#[derive(Debug, Default)]
struct AnnouncedCall {
    name: String,
    has_ended: bool,
    has_result: bool,
    /// Results that came before the call was complete: the message's id, and the text.
    early: Option<(String, String)>,
}

#[derive(Debug)]
struct OpenCall {
    /// `None`: the client knows the call already.
    template: Option<Template>,
    id: String,
    emitted: EmittedText,
}

/// State that the parts of the encoder share during one step.
pub(super) struct Scene<'e> {
    pub(super) labels: &'e Labels,
    pub(super) texts: &'e mut Texts,
    pub(super) writer: &'e mut Writer,
    pub(super) out: &'e mut Out,
}

impl Calls {
    /// A text has begun: calls after it are not those before it.
    pub(super) fn end_group(&mut self) {
        self.group = None;
    }

    /// True if the client knows the call.
    pub(super) fn is_known(&self, id: &str, labels: &Labels) -> bool {
        self.announced.contains_key(id) || labels.known.has_call(id)
    }

    /// Writes a step of a content that is a call.
    #[inline]
    pub(super) fn encode_call(&mut self, step: &Step<'_>, scene: &mut Scene<'_>) {
        let (Some((message_at, message)), Some((slot_at, slot))) = (step.message(), step.slot()) else { return };
        let Some(head) = &slot.call else { return };
        let key = content_key(message_at, slot_at);
        match step.event {
            RunEvent::ContentStarted { .. } => {
                let id = if head.call_id.is_empty() { derived_id(message, slot_at) } else { head.call_id.clone() };
                let is_new = !self.is_known(&id, scene.labels);
                if is_new {
                    self.announce(&id, &head.name, message, step.run, scene, head.server_label.as_deref());
                }
                let template = is_new.then(|| Template::new("TOOL_CALL_ARGS", Some("toolCallId"), &id));
                self.open.insert(key, OpenCall { template, id, emitted: EmittedText::default() });
            }
            RunEvent::ContentDelta { .. } | RunEvent::ContentReplaced { .. } => {
                let Some(open) = self.open.get_mut(&key) else { return };
                let delta = open.emitted.extend(step, slot);
                if let Some(template) = open.template.as_ref().filter(|_| !delta.is_empty()) {
                    scene.writer.delta(template, delta, scene.out);
                }
            }
            RunEvent::ContentFinished { .. } => {
                let Some(open) = self.open.remove(&key) else { return };
                if open.template.is_some() {
                    self.end(&open.id, scene);
                }
            }
            _ => {}
        }
    }

    /// Writes a step of a call without a call head: its body is undefined or malformed.
    pub(super) fn encode_bare_call(&mut self, step: &Step<'_>, slot: &Slot, scene: &mut Scene<'_>) {
        let (Some((_, message)), Some((slot_at, _))) = (step.message(), step.slot()) else { return };
        let Some(data) = slot.data().filter(|_| matches!(step.event, RunEvent::ContentFinished { .. })) else {
            return;
        };
        let call: ToolCall = data.decode().unwrap_or_default();
        let id = if call.call_id.is_empty() { derived_id(message, slot_at) } else { call.call_id };
        if self.is_known(&id, scene.labels) {
            return;
        }

        let has_arguments_field = data.decode::<Extra>().is_some_and(|fields| fields.get("arguments").is_some());
        let arguments = if has_arguments_field { call.arguments.as_str() } else { data.text() };
        self.announce(&id, &call.name, message, step.run, scene, None);
        self.write_arguments(&id, arguments, scene);
        self.end(&id, scene);
    }

    /// Announces a whole call that no message of the agent is: one that a person has to approve, or that has an output.
    pub(super) fn add(&mut self, id: &str, name: &str, arguments: &str, parent: &str, scene: &mut Scene<'_>) {
        self.start(id, name, parent, &Origin::default(), scene);
        self.write_arguments(id, arguments, scene);
        self.end(id, scene);
    }

    fn write_arguments(&self, id: &str, arguments: &str, scene: &mut Scene<'_>) {
        if !arguments.is_empty() {
            scene.writer.event(&Event::ToolCallArgs { tool_call_id: id, delta: arguments }, scene.out);
        }
    }

    fn announce(
        &mut self,
        id: &str,
        name: &str,
        message: &Message,
        run: &Run,
        scene: &mut Scene<'_>,
        server: Option<&str>,
    ) {
        let mut origin = origin_of(message, scene.labels.is_v1());
        if let Some(server) = server {
            let mut metadata: Extra = origin.metadata.as_ref().and_then(Json::decode).unwrap_or_default();
            metadata.set("server_label", Json::from_serialize(server));
            origin.metadata = Some(Json::from_serialize(&metadata));
        }
        let parent = scene.labels.known.shown_id(&message.id, run);
        self.start(id, name, &parent, &origin, scene);
    }

    /// `parent`: the message that the call belongs to, if it is the first of its group.
    fn start(&mut self, id: &str, name: &str, parent: &str, origin: &Origin, scene: &mut Scene<'_>) {
        let latest = scene.texts.latest().map(str::to_owned);
        let group = self.group.get_or_insert_with(|| latest.unwrap_or_else(|| parent.to_owned()));
        let event = Event::ToolCallStart {
            tool_call_id: id,
            tool_call_name: name,
            parent_message_id: Some(group.as_str()).filter(|group| !group.is_empty()),
            origin,
        };
        scene.writer.event(&event, scene.out);
        self.order.push(id.to_owned());
        self.announced.insert(id.to_owned(), AnnouncedCall { name: name.to_owned(), ..AnnouncedCall::default() });
    }

    fn end(&mut self, id: &str, scene: &mut Scene<'_>) {
        scene.writer.event(&Event::ToolCallEnd { tool_call_id: id }, scene.out);
        let Some(call) = self.announced.get_mut(id) else { return };
        call.has_ended = true;
        if let Some((message, output)) = call.early.take() {
            self.result(id, &message, ResultContent::Text(&output), scene);
        }
    }

    /// A value that only the agent can read, of a call that is complete.
    pub(super) fn seal(&self, message: &Message, scene: &mut Scene<'_>) {
        let Some(value) = sealed(message).filter(|_| scene.texts.shows_sealed()) else { return };
        let calls = message.slots.iter().filter_map(|slot| slot.call.as_ref());
        for call in calls.filter(|call| self.announced.contains_key(&call.call_id)) {
            let entity_id = call.call_id.as_str();
            let event = Event::ReasoningEncryptedValue { subtype: "tool-call", entity_id, encrypted_value: &value };
            scene.writer.event(&event, scene.out);
        }
    }

    /// Writes the outputs of a message: immediately if its agent speaks this protocol, whose outputs are the last
    /// content (the connector), else when the message has ended.
    pub(super) fn encode_output(
        &mut self,
        step: &Step<'_>,
        message: &Message,
        is_unwrapped: bool,
        scene: &mut Scene<'_>,
    ) {
        let has_output = |slots: &[Slot]| slots.iter().any(|slot| call_output::parse(slot).is_some());
        match step.event {
            RunEvent::ContentFinished { .. } => {
                let Some((at, slot)) = step.slot().filter(|_| is_own(message)) else { return };
                if call_output::parse(slot).is_some() {
                    self.outputs(message, &message.slots[..=at], step.run, is_unwrapped, scene);
                }
            }
            RunEvent::MessageFinished { .. } => {
                if !(is_own(message) && has_output(&message.slots)) {
                    self.outputs(message, &message.slots, step.run, is_unwrapped, scene);
                }
                self.seal_output(message, step.run, scene);
            }
            _ => {}
        }
    }

    /// A value that only the agent can read, of an output that the client has.
    fn seal_output(&self, message: &Message, run: &Run, scene: &mut Scene<'_>) {
        let Some(encrypted_value) = &sealed(message).filter(|_| scene.texts.shows_sealed()) else { return };
        let is_written = |slot: &Slot| {
            let call = call_output::parse(slot).map(|output| output.call_id);
            call.and_then(|call| self.announced.get(&call)).is_some_and(|call| call.has_result)
        };
        if message.slots.iter().any(is_written) {
            let entity_id: &str = &scene.labels.known.shown_id(&message.id, run);
            let event = Event::ReasoningEncryptedValue { subtype: "message", entity_id, encrypted_value };
            scene.writer.event(&event, scene.out);
        }
    }

    fn outputs(&mut self, message: &Message, slots: &[Slot], run: &Run, is_unwrapped: bool, scene: &mut Scene<'_>) {
        let id = scene.labels.known.shown_id(&message.id, run).into_owned();
        let outputs: Vec<(usize, ToolOutput)> =
            slots.iter().enumerate().filter_map(|(place, slot)| Some((place, call_output::parse(slot)?))).collect();
        let parts: Vec<Json> = slots.iter().filter_map(contents::part).collect();
        let is_only = outputs.len() == 1;
        for (place, mut output) in outputs {
            if is_unwrapped && let Some(text) = call_output::text_of_blocks(&output.output) {
                output.output = text;
            }
            let name = output.name.as_deref().unwrap_or_default();
            let call = self.find(&output.call_id, name).unwrap_or_else(|| {
                if output.call_id.is_empty() { derived_id(message, place) } else { output.call_id.clone() }
            });
            if !self.is_known(&call, scene.labels) {
                self.add(&call, name, "{}", &format!("{call}_call"), scene);
            }

            let id = if is_only { id.clone() } else { format!("{id}_{place}") };
            if is_only && !parts.is_empty() && scene.labels.is_v1() {
                let text = contents::text_part(&output.output);
                let all: Vec<Json> =
                    std::iter::once(text).filter(|_| !output.output.is_empty()).chain(parts.iter().cloned()).collect();
                self.result(&call, &id, ResultContent::Parts(&all), scene);
                return;
            }
            self.result(&call, &id, ResultContent::Text(&output.output), scene);
        }
        // Older clients have no place for parts in a result.
        for (index, part) in parts.into_iter().enumerate() {
            contents::write_part(&id, index, part, scene.writer, scene.out);
        }
    }

    /// The call of an output that does not say which: the oldest of that name without a result.
    fn find(&self, id: &str, name: &str) -> Option<String> {
        if !id.is_empty() {
            return Some(id.to_owned());
        }
        let fits = |call: &AnnouncedCall| !call.has_result && (name.is_empty() || call.name == name);
        self.order.iter().find(|id| self.announced.get(*id).is_some_and(fits)).cloned()
    }

    fn result(&mut self, call: &str, message_id: &str, content: ResultContent<'_>, scene: &mut Scene<'_>) {
        // Calls of earlier runs have ended.
        if let Some(known) = self.announced.get_mut(call) {
            // Some agents send a result twice.
            if known.has_result || known.early.is_some() {
                return;
            }
            if !known.has_ended {
                let text = match content {
                    ResultContent::Text(text) => text.to_owned(),
                    ResultContent::Parts(parts) => Json::from_serialize(parts).text().to_owned(),
                };
                known.early = Some((message_id.to_owned(), text));
                return;
            }
            known.has_result = true;
        } else if scene.labels.known.is_answered(call) {
            return;
        } else {
            let done = AnnouncedCall { has_ended: true, has_result: true, ..AnnouncedCall::default() };
            self.announced.insert(call.to_owned(), done);
        }

        self.group = None;
        scene.texts.forget_latest();
        scene.writer.event(&Event::ToolCallResult { message_id, tool_call_id: call, content, role: "tool" }, scene.out);
    }
}

/// An id derived from the message's id, for a call that has none.
fn derived_id(message: &Message, slot: usize) -> String {
    if slot == 0 { message.id.clone() } else { format!("{}_{slot}", message.id) }
}

fn content_key(message: usize, slot: usize) -> (u32, u32) {
    (u32::try_from(message).unwrap_or(u32::MAX), u32::try_from(slot).unwrap_or(u32::MAX))
}
