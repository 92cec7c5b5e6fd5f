//! The stream of a run: every step as events of this protocol, in an order that clients accept
//! (docs/protocols/ag-ui.md#order-rules).
//!
//! Texts and reasoning are in `texts`, calls and their results in `calls`, media and data in `contents`, events that an
//! agent of this protocol sent in `kept`, the end of a run in `finish`. Not here: how events are framed
//! ([`super::writer`]).

mod calls;
mod contents;
mod finish;
mod interrupts;
mod kept;
mod origin;
pub(super) mod snapshot;
mod texts;

use std::sync::Arc;

use interlingua_core::call::RunView;
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{self, MessageType};
use interlingua_core::run::Message;
use interlingua_core::{Event as RunEvent, Extra, Fault, Json, Out, Step};

use self::calls::{Calls, Scene};
use self::kept::OpenSteps;
use self::texts::Texts;
use super::Route;
use super::events::Event;
use super::options::History;
use super::thread::Labels;
use super::writer::Writer;
use super::{fault, losses};

/// Writes the events of one run.
#[derive(Debug)]
pub(super) struct Encoder {
    route: Arc<Route>,
    pub(super) writer: Writer,
    pub(super) labels: Labels,
    parent: Option<String>,
    texts: Texts,
    calls: Calls,
    open_steps: OpenSteps,
    losses: Losses,
    /// The conversation before the run, if the client receives the whole conversation.
    pub(super) conversation: Option<Vec<model::Message>>,
    is_started: bool,
    has_ended: bool,
}

impl Encoder {
    pub(super) fn new(route: &Arc<Route>) -> Self {
        let writer = Writer::new(route.options.event_ids.0);
        Self {
            route: Arc::clone(route),
            writer,
            labels: Labels::default(),
            parent: None,
            texts: Texts::default(),
            calls: Calls::default(),
            open_steps: OpenSteps::default(),
            losses: Losses::new(),
            conversation: None,
            is_started: false,
            has_ended: false,
        }
    }

    /// True if clients receive the whole conversation.
    pub(super) fn shows_conversation(&self) -> bool {
        self.route.options.history == History::Gateway
    }

    /// The content that the stream did not show.
    pub(super) fn losses(&self) -> &[Loss] {
        self.losses.as_slice()
    }

    /// Starts with what the run's client knows.
    pub(super) fn begin(&mut self, run: &RunView<'_>) {
        self.labels = Labels::from_view(run);
        self.parent = run.info.request.extra.get("parent_run_id").and_then(Json::decode);
        self.texts.reasoning = self.route.options.reasoning;
        self.texts.is_v1 = self.labels.is_v1();
    }

    pub(super) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        match step.event {
            RunEvent::RunStarted => self.start(out),
            RunEvent::RunFinished { end } => {
                self.finish(step.run, end, out);
                losses::note(step.run, &self.route.options, self.labels.is_v1(), &mut self.losses);
                return Flow::Close;
            }
            _ => self.encode_message(step, out),
        }
        Flow::More
    }

    /// The first event of a run.
    pub(super) fn start(&mut self, out: &mut Out) {
        self.is_started = true;
        let Self { labels, parent, .. } = self;
        let event = Event::RunStarted {
            thread_id: &labels.thread,
            run_id: &labels.run,
            protocol_version: labels.version.as_deref().map(|_| "1.0"),
            parent_run_id: parent.as_deref(),
        };
        self.writer.event(&event, out);
    }

    #[inline]
    fn encode_message(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((_, message)) = step.message() else { return };
        let slot = step.slot().map(|(_, slot)| slot);
        let is_end = matches!(step.event, RunEvent::MessageFinished { .. });
        let is_call = slot.is_some_and(|slot| slot.call.is_some());
        match &message.announced {
            MessageType::Message | MessageType::Reasoning if !is_call => return self.encode_text(&step, message, out),
            kind if is_call || kind.is_call() || kind.is_output() => {}
            _ if is_end => return self.encode_other(message, out),
            _ => return,
        }

        let Self { route, writer, labels, texts, calls, .. } = self;
        let mut scene = Scene { labels, texts, writer, out };
        match slot {
            _ if is_call => calls.encode_call(&step, &mut scene),
            _ if message.announced.is_output() => calls.encode_output(&step, message, &route.options, &mut scene),
            Some(_) => calls.encode_bare_call(&step, &mut scene),
            None if is_end => calls.seal(message, &mut scene),
            _ => {}
        }
    }

    #[inline]
    fn encode_text(&mut self, step: &Step<'_>, message: &Message, out: &mut Out) {
        if message.announced == MessageType::Message && matches!(step.event, RunEvent::ContentFinished { .. }) {
            self.encode_content(step, message, out);
        }
        self.texts.encode(step, &self.labels, &mut self.writer, out);
        if self.texts.take_began() {
            self.calls.end_group();
        }
        if message.announced == MessageType::Message && matches!(step.event, RunEvent::MessageFinished { .. }) {
            contents::write_annotations(message, step.run, &self.labels, &mut self.writer, out);
            self.write_error(message, out);
        }
    }

    /// A finished content of a message.
    fn encode_content(&mut self, step: &Step<'_>, message: &Message, out: &mut Out) {
        let Some((index, slot)) = step.slot() else { return };
        let id = self.labels.known.shown_id(&message.id, step.run);
        let place = contents::ContentPosition { message, id: &id, index, options: &self.route.options };
        if let Some(link) = place.write(slot, &mut self.writer, out) {
            self.texts.add(step, &link, &self.labels, &mut self.writer, out);
        }
    }

    /// A message that is neither text nor a call.
    fn encode_other(&mut self, message: &Message, out: &mut Out) {
        let first = || message.slots.iter().find_map(|slot| slot.data());
        match &message.announced {
            MessageType::ProtocolEvent => {
                let Self { open_steps, labels, writer, losses, .. } = self;
                if let Some(data) = first() {
                    open_steps.pass(data, labels.is_v1(), losses, writer, out);
                }
            }
            MessageType::McpListTools => {
                if let Some(tools) = first() {
                    self.writer.event(&Event::Custom { name: "mcp_list_tools", value: tools.clone() }, out);
                }
            }
            MessageType::Error => self.write_error(message, out),
            // Questions are part of the outcome; the others are answers of people.
            MessageType::McpApprovalRequest | MessageType::McpApprovalResponse | MessageType::Heartbeat => {}
            other if self.route.options.state_types.iter().any(|kind| kind == other.as_str()) => {
                if let Some(snapshot) = first() {
                    self.writer.event(&Event::StateSnapshot { snapshot }, out);
                }
            }
            other => {
                let name = format!("agentapi:{other}");
                let value = Json::from_serialize(&message.to_model());
                self.writer.event(&Event::Custom { name: &name, value }, out);
            }
        }
    }

    /// An error that does not end the run.
    fn write_error(&mut self, message: &Message, out: &mut Out) {
        if message.code.is_none() && message.message.is_none() {
            return;
        }
        let mut error = Extra::new();
        error.push("code", Json::from_serialize(message.code.as_deref().unwrap_or("AGENT_ERROR")));
        error.push("message", Json::from_serialize(message.message.as_deref().unwrap_or("")));
        let value = Json::from_serialize(&error);
        self.writer.event(&Event::Custom { name: "error", value }, out);
    }

    /// Ends a stream for a reason outside the run.
    pub(super) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        if self.is_started && !self.has_ended {
            self.fail(fault::code(fault), fault::message(fault), out);
        }
    }

    /// The last event of a run that has failed.
    pub(super) fn fail(&mut self, code: &str, message: &str, out: &mut Out) {
        self.has_ended = true;
        self.writer.event(&Event::RunError { message, code, usage: None }, out);
    }
}
