//! Calls and their results: each call is announced once in a thread, and never a result before its call.
//!
//! Not here: which calls wait for the client ([`super::finish`]).

use interlingua_adapter_kit::answer_parts::{ContentStep, derived_id, whole_call};
use interlingua_adapter_kit::call_ledger::CallLedger;
use interlingua_adapter_kit::call_output;
use interlingua_core::model::ToolOutput;
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::{Event as RunEvent, Extra, Json, Out, Step};

use super::super::events::{Event, Origin, ResultContent};
use super::super::options::Options;
use super::super::thread::Labels;
use super::super::writer::{Template, Writer};
use super::contents;
use super::origin::{is_own, origin_of, sealed};
use super::texts::Texts;

/// The calls of a stream.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// The calls of this run, and calls of earlier runs with a result in this one. A result that waits for the end of
    /// its call is the id of the result's message, and its text.
    ledger: CallLedger<Template, (String, String)>,
    /// The message that the next call belongs to, if only calls have arrived since.
    group: Option<String>,
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
        self.ledger.index_of(id).is_some() || labels.known.has_call(id)
    }

    /// Writes a step of a content that is a call.
    #[inline]
    pub(super) fn encode_call(&mut self, step: &Step<'_>, scene: &mut Scene<'_>) {
        match step.event {
            RunEvent::ContentStarted { .. } => {
                let Some(content) = ContentStep::from_step(step) else { return };
                let Some(head) = &content.slot.call else { return };
                let id = id_of_call(&head.call_id, content);
                if !self.is_known(&id, scene.labels) {
                    let call = self.announce(&id, &head.name, content, scene);
                    self.ledger.open(step, call, Template::new("TOOL_CALL_ARGS", Some("toolCallId"), &id));
                }
            }
            RunEvent::ContentDelta { .. } | RunEvent::ContentReplaced { .. } => {
                if let Some((_, template, delta)) = self.ledger.grow(step) {
                    scene.writer.delta(template, delta, scene.out);
                }
            }
            RunEvent::ContentFinished { .. } => {
                if let Some((call, _)) = self.ledger.close(step) {
                    self.end(call, scene);
                }
            }
            _ => {}
        }
    }

    /// Writes a step of a call without a call head: its body is undefined or malformed.
    pub(super) fn encode_bare_call(&mut self, step: &Step<'_>, scene: &mut Scene<'_>) {
        if !matches!(step.event, RunEvent::ContentFinished { .. }) {
            return;
        }
        let Some(content) = ContentStep::from_step(step) else { return };
        let Some(call) = whole_call(content.slot) else { return };
        let id = id_of_call(&call.call_id, content);
        if !self.is_known(&id, scene.labels) {
            let announced = self.announce(&id, &call.name, content, scene);
            self.write_whole(announced, &call.arguments, scene);
        }
    }

    /// Announces a whole call that no message of the agent is: one that a person has to approve, or that has an output.
    pub(super) fn add(&mut self, id: &str, name: &str, arguments: &str, parent: &str, scene: &mut Scene<'_>) -> usize {
        let call = self.start(id, name, parent, &Origin::default(), scene);
        self.write_whole(call, arguments, scene);
        call
    }

    /// Writes the arguments and the end of a call that was just announced.
    fn write_whole(&mut self, call: usize, delta: &str, scene: &mut Scene<'_>) {
        if !delta.is_empty() {
            let tool_call_id = &self.ledger.calls()[call].id;
            scene.writer.event(&Event::ToolCallArgs { tool_call_id, delta }, scene.out);
        }
        self.end(call, scene);
    }

    fn announce(&mut self, id: &str, name: &str, step: ContentStep<'_>, scene: &mut Scene<'_>) -> usize {
        let ContentStep { run, message, slot, .. } = step;
        let mut origin = origin_of(message, scene.labels.is_v1());
        if let Some(server) = slot.call.as_ref().and_then(|head| head.server_label.as_deref()) {
            let mut metadata: Extra = origin.metadata.as_ref().and_then(Json::decode).unwrap_or_default();
            metadata.set("server_label", Json::from_serialize(server));
            origin.metadata = Some(Json::from_serialize(&metadata));
        }
        let parent = scene.labels.known.shown_id(&message.id, run);
        self.start(id, name, &parent, &origin, scene)
    }

    /// `parent`: the message that the call belongs to, if it is the first of its group.
    fn start(&mut self, id: &str, name: &str, parent: &str, origin: &Origin, scene: &mut Scene<'_>) -> usize {
        let latest = scene.texts.latest().map(str::to_owned);
        let group = self.group.get_or_insert_with(|| latest.unwrap_or_else(|| parent.to_owned()));
        let event = Event::ToolCallStart {
            tool_call_id: id,
            tool_call_name: name,
            parent_message_id: Some(group.as_str()).filter(|group| !group.is_empty()),
            origin,
        };
        scene.writer.event(&event, scene.out);
        self.ledger.announce(id, name, true)
    }

    fn end(&mut self, call: usize, scene: &mut Scene<'_>) {
        let tool_call_id = &self.ledger.calls()[call].id;
        scene.writer.event(&Event::ToolCallEnd { tool_call_id }, scene.out);
        if let Some((message, output)) = self.ledger.end(call) {
            self.result(call, &message, ResultContent::Text(&output), scene);
        }
    }

    /// A value that only the agent can read, of a call that is complete.
    pub(super) fn seal(&self, message: &Message, scene: &mut Scene<'_>) {
        let Some(value) = sealed(message).filter(|_| scene.texts.shows_sealed()) else { return };
        let calls = message.slots.iter().filter_map(|slot| slot.call.as_ref());
        for call in calls.filter(|call| self.ledger.index_of(&call.call_id).is_some()) {
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
        options: &Options,
        scene: &mut Scene<'_>,
    ) {
        let has_output = |slots: &[Slot]| slots.iter().any(|slot| call_output::parse(slot).is_some());
        match step.event {
            RunEvent::ContentFinished { .. } => {
                let Some((at, slot)) = step.slot().filter(|_| is_own(message)) else { return };
                if call_output::parse(slot).is_some() {
                    self.outputs(message, &message.slots[..=at], step.run, options, scene);
                }
            }
            RunEvent::MessageFinished { .. } => {
                if !(is_own(message) && has_output(&message.slots)) {
                    self.outputs(message, &message.slots, step.run, options, scene);
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
            let call = call_output::parse(slot).and_then(|output| self.ledger.index_of(&output.call_id));
            call.is_some_and(|call| self.ledger.calls()[call].has_result)
        };
        if message.slots.iter().any(is_written) {
            let entity_id: &str = &scene.labels.known.shown_id(&message.id, run);
            let event = Event::ReasoningEncryptedValue { subtype: "message", entity_id, encrypted_value };
            scene.writer.event(&event, scene.out);
        }
    }

    fn outputs(&mut self, message: &Message, slots: &[Slot], run: &Run, options: &Options, scene: &mut Scene<'_>) {
        let id = scene.labels.known.shown_id(&message.id, run).into_owned();
        let outputs: Vec<(usize, ToolOutput)> =
            slots.iter().enumerate().filter_map(|(place, slot)| Some((place, call_output::parse(slot)?))).collect();
        let is_only = outputs.len() == 1;
        let values = || slots.iter().filter_map(|slot| slot.value.as_ref());
        let media = options.media.of_message(&message.announced);
        let parts = contents::result_parts(values(), media);
        // Older clients have no place for parts in a result.
        let joins_parts = is_only && !parts.is_empty() && scene.labels.is_v1();
        for (place, mut output) in outputs {
            if options.unwrap_tool_output.0
                && let Some(text) = call_output::text_of_blocks(&output.output)
            {
                output.output = text;
            }
            if is_only {
                contents::add_result_links(&mut output.output, values(), media);
            }
            let name = output.name.as_deref().unwrap_or_default();
            let call = self.ledger.find(&output.call_id, name).or_else(|| {
                let id = if output.call_id.is_empty() { derived_id(&message.id, place) } else { output.call_id };
                self.add_for_output(id, name, scene)
            });
            let Some(call) = call else { continue };

            let id = if is_only { id.clone() } else { format!("{id}_{place}") };
            if joins_parts {
                let text = contents::text_part(&output.output);
                let all: Vec<Json> =
                    std::iter::once(text).filter(|_| !output.output.is_empty()).chain(parts.iter().cloned()).collect();
                self.result(call, &id, ResultContent::Parts(&all), scene);
            } else {
                self.result(call, &id, ResultContent::Text(&output.output), scene);
            }
        }
        for (index, part) in parts.into_iter().enumerate().filter(|_| !joins_parts) {
            contents::write_part(&id, index, part, scene.writer, scene.out);
        }
    }

    /// Adds the call of an output that is not in the ledger: one of an earlier run, or one that the client does not
    /// know. `None`: the client has its result.
    fn add_for_output(&mut self, id: String, name: &str, scene: &mut Scene<'_>) -> Option<usize> {
        if let Some(call) = self.ledger.index_of(&id) {
            return Some(call);
        }
        if scene.labels.known.has_call(&id) {
            return (!scene.labels.known.is_answered(&id)).then(|| self.ledger.add_earlier(id, false));
        }
        Some(self.add(&id, name, "{}", &format!("{id}_call"), scene))
    }

    fn result(&mut self, call: usize, message_id: &str, content: ResultContent<'_>, scene: &mut Scene<'_>) {
        let to_text = || match content {
            ResultContent::Text(text) => text.to_owned(),
            ResultContent::Parts(parts) => Json::from_serialize(parts).text().to_owned(),
        };
        if !self.ledger.answer(call, || (message_id.to_owned(), to_text())) {
            return;
        }

        self.group = None;
        scene.texts.forget_latest();
        let tool_call_id = &self.ledger.calls()[call].id;
        scene.writer.event(&Event::ToolCallResult { message_id, tool_call_id, content, role: "tool" }, scene.out);
    }
}

/// The id of a call in this content, which may have none.
fn id_of_call(call_id: &str, step: ContentStep<'_>) -> String {
    if call_id.is_empty() { derived_id(&step.message.id, step.index) } else { call_id.to_owned() }
}
