//! Encodes steps as events, or a run as a message (docs/protocols/anthropic-messages.md#answers): one deterministic
//! state machine for both, so that they agree.
//!
//! Blocks cannot overlap, so messages of the agent are sent one at a time. Each content of a message is a block of its
//! own; the reasoning of a message is one block. Here: the run, texts and reasoning. `calls` encodes calls and their
//! outputs, `finish` the end.

mod arguments;
mod blocks;
mod calls;
mod finish;
mod others;

use std::sync::Arc;

use interlingua_adapter_kit::answer_parts::{MessageShape, error_text, late_annotations};
use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_core::call::RunView;
use interlingua_core::event::{End, Event};
use interlingua_core::exchange::Flow;
use interlingua_core::loss::{Loss, Losses};
use interlingua_core::model::{ContentType, ToolCall};
use interlingua_core::run::{Message, Run, Slot};
use interlingua_core::step::Step;
use interlingua_core::{Extra, Json, Out};

use crate::echo::{Echo, Thinking};
use crate::fault::ApiError;
use crate::serve::MountedRoute;
use crate::wire::{Answer, MESSAGE_PREFIX};
use arguments::CallStream;
use blocks::{BlockKind, Blocks};

pub(crate) use arguments::ARGUMENTS;
pub(crate) use blocks::BlockTarget;
pub(crate) use finish::write_question;

/// A refusal that is repeated at the end of a message is not longer, in bytes.
const MAX_REFUSAL: usize = 4096;

/// Encodes one run.
pub(crate) struct Encoder {
    sequencer: MessageSequencer,
    state: EncoderState,
}

/// The part that was sent so far. Covers one message at a time.
struct EncoderState {
    shared: Arc<MountedRoute>,
    echo: Echo,
    target: BlockTarget,
    request_id: Option<String>,
    /// The server of tools for which the agent names none.
    server_label: String,
    blocks: Blocks,
    /// The length of the open content that was sent.
    emitted: EmittedText,
    /// The open call of the client.
    call: CallStream,
    /// Calls of functions that the client did not declare: the one that answers them runs them.
    held: Vec<ToolCall>,
    /// Ids of the agent's calls that were shown.
    shown_calls: Vec<String>,
    refusal: String,
    has_started: bool,
    has_ended: bool,
    losses: Losses,
}

impl Encoder {
    pub(crate) fn new(
        shared: Arc<MountedRoute>,
        echo: Echo,
        agent: &str,
        target: BlockTarget,
        request_id: Option<String>,
    ) -> Self {
        let server_label = shared.models.server_label(agent).to_owned();
        Self {
            sequencer: MessageSequencer::new(),
            state: EncoderState {
                shared,
                echo,
                target,
                request_id,
                server_label,
                blocks: Blocks::new(target),
                emitted: EmittedText::default(),
                call: CallStream::default(),
                held: Vec::new(),
                shown_calls: Vec::new(),
                refusal: String::new(),
                has_started: false,
                has_ended: false,
                losses: Losses::new(),
            },
        }
    }

    /// The content that the answer does not show, once its run has ended.
    pub(crate) fn losses(&self) -> &[Loss] {
        self.state.losses.as_slice()
    }

    /// Notes what the request lost.
    pub(crate) fn add_losses(&mut self, losses: &[Loss]) {
        self.state.losses.extend(losses);
    }

    /// Writes the message of a run that has ended, and notes what it does not show.
    ///
    /// # Errors
    /// The error that the run ended with.
    pub(crate) fn write_message<'r>(
        shared: Arc<MountedRoute>,
        view: RunView<'r>,
        lost: &mut Losses,
        out: &mut Out,
    ) -> Result<(), ApiError<'r>> {
        let run = view.run();
        let echo = Echo::from_labels(&view.info.labels, &run.agent);
        let mut encoder = Self::new(shared, echo, &run.agent, BlockTarget::Whole, None);
        for step in view.record.steps(0) {
            encoder.encode(step, out);
        }
        lost.extend(encoder.losses());
        if let Some(error) = encoder.state.error(run, run.end.unwrap_or(End::Failed)) {
            return Err(error);
        }

        let EncoderState { blocks, echo, refusal, shared, .. } = encoder.state;
        let content = blocks.into_whole();
        let stop = finish::Stop::of_run(run, run.end.unwrap_or(End::Failed), &refusal, &echo, &shared.options);
        out.json(&Answer {
            id: &run.id.to_prefixed(MESSAGE_PREFIX),
            model: &echo.model,
            content: &content,
            stop_reason: Some(stop.reason),
            stop_details: stop.details.as_ref(),
            usage: finish::usage(run),
        });
        Ok(())
    }

    /// The blocks of the last turn of a run, as a client with these settings was shown them.
    pub(crate) fn last_turn(shared: Arc<MountedRoute>, view: RunView<'_>) -> Vec<Json> {
        let run = view.run();
        let echo = Echo::from_labels(&view.info.labels, &run.agent);
        let mut encoder = Self::new(shared, echo, &run.agent, BlockTarget::Whole, None);
        let mut out = Out::new();
        let last = u32::try_from(run.turns.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let steps = view.record.steps(0).skip_while(|step| step.event != Event::TurnStarted { turn: last });
        for step in steps.filter(|step| !matches!(step.event, Event::RunFinished { .. })) {
            encoder.encode(step, &mut out);
        }
        if let Some((end, _)) = run.outcome() {
            encoder.state.finish(run, end, &mut out);
        }
        encoder.state.blocks.into_whole()
    }

    #[inline]
    pub(crate) fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let state = &mut self.state;
        self.sequencer.push(step, |step| state.step(step, out));
        if state.has_ended { Flow::Close } else { Flow::More }
    }

    /// Keeps a quiet stream alive. Events may come only behind the first one.
    pub(crate) fn heartbeat(&self, out: &mut Out) {
        if self.state.has_started && !self.state.has_ended {
            out.frame(Some("ping"), &crate::wire::Ping::default());
        } else {
            out.comment("ping");
        }
    }
}

impl EncoderState {
    #[inline]
    fn step(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { .. } | Event::ContentReplaced { .. } => self.grow(step, out),
            Event::RunStarted => self.start(step.run, out),
            Event::TurnStarted { .. } | Event::AnswerStarted { .. } | Event::TurnFinished { .. } => {}
            Event::MessageStarted { .. } => {}
            Event::ContentStarted { .. } => self.content_started(step, out),
            Event::ContentFinished { .. } => self.content_finished(step, out),
            Event::MessageFinished { .. } => self.message_finished(step, out),
            Event::RunFinished { end } => self.finish(step.run, end, out),
        }
    }

    fn start(&mut self, run: &Run, out: &mut Out) {
        self.has_started = true;
        if self.target == BlockTarget::Stream {
            crate::wire::message_start(&run.id.to_prefixed(MESSAGE_PREFIX), &self.echo.model, out);
        }
    }

    /// The text of the open content grew.
    #[inline]
    fn grow(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((_, slot)) = step.slot() else { return };
        if self.blocks.open() == Some(BlockKind::ToolUse) {
            return self.blocks.push(self.call.extend(&step, slot), out);
        }
        let piece = self.emitted.extend(&step, slot);
        if piece.is_empty() {
            return;
        }
        match self.blocks.open() {
            Some(BlockKind::Thinking | BlockKind::Text) if slot.kind == ContentType::Text => {
                self.blocks.push(piece, out)
            }
            _ => self.first_piece(step, slot, piece, out),
        }
    }

    /// The first piece of a text, or one of a refusal.
    #[cold]
    fn first_piece(&mut self, step: Step<'_>, slot: &Slot, piece: &str, out: &mut Out) {
        let Some((_, message)) = step.message() else { return };
        let is_text = slot.call.is_none() && matches!(slot.kind, ContentType::Text | ContentType::Refusal);
        match MessageShape::from_message(message) {
            MessageShape::Text if is_text => {
                if slot.kind == ContentType::Refusal && self.refusal.len() + piece.len() <= MAX_REFUSAL {
                    self.refusal.push_str(piece);
                }
                if self.blocks.open().is_none() {
                    self.blocks.begin_text(out);
                }
            }
            MessageShape::Reasoning if is_text && self.thinking() == Thinking::Shown => self.blocks.begin_thinking(out),
            _ => return,
        }
        self.blocks.push(piece, out);
    }

    fn content_started(&mut self, step: Step<'_>, out: &mut Out) {
        self.emitted = EmittedText::default();
        if self.blocks.open() == Some(BlockKind::Text) {
            self.blocks.end(out);
        }
        if let (Some((_, message)), Some((_, slot))) = (step.message(), step.slot())
            && MessageShape::from_message(message) == MessageShape::FunctionCall
            && let Some(head) = slot.call.as_ref().filter(|head| self.is_clients(&head.name))
        {
            self.call = CallStream::default();
            self.blocks.begin_call(&head.call_id, &head.name, out);
        }
    }

    fn content_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let (Some((_, message)), Some((_, slot))) = (step.message(), step.slot()) else { return };
        if self.blocks.open() == Some(BlockKind::ToolUse) {
            self.blocks.push(&self.call.finish(slot), out);
            self.blocks.end(out);
            return;
        }
        if MessageShape::from_message(message) != MessageShape::Text {
            return;
        }

        match slot.kind {
            // The block stays open: its sources may come with the end of the message.
            ContentType::Text | ContentType::Refusal => {
                let annotations: Option<Vec<Json>> = slot.extra.get("annotations").and_then(Json::decode);
                self.cite(&annotations.unwrap_or_default(), out);
            }
            _ => {
                if let Some(words) = others::in_words(&slot.content(), &self.shared.options) {
                    self.blocks.words(&words, out);
                }
            }
        }
    }

    fn message_finished(&mut self, step: Step<'_>, out: &mut Out) {
        let Some((_, message)) = step.message() else { return };
        match MessageShape::from_message(message) {
            MessageShape::Text => self.cite(&late_annotations(message), out),
            MessageShape::Reasoning => self.thought_finished(message, out),
            MessageShape::FunctionCall => self.function_call_finished(message),
            MessageShape::AgentCall => self.agent_call_finished(message, out),
            MessageShape::Output => self.outputs(message, out),
            MessageShape::Error => self.blocks.words(&error_text(message), out),
            // Approvals are asked at the end, when it is known which of them are open.
            _ => {}
        }
        self.blocks.end(out);
    }

    /// The data of a reasoning block arrives with its end, and is sent even if the block has no text.
    fn thought_finished(&mut self, message: &Message, out: &mut Out) {
        if self.thinking() == Thinking::Hidden {
            return;
        }
        let metadata: Extra = message.metadata.as_ref().and_then(Json::decode).unwrap_or_default();
        let word = |name: &str| metadata.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty());
        if let Some(data) = word("redacted") {
            self.blocks.whole(&serde_json::json!({ "type": "redacted_thinking", "data": data }), out);
        } else if let Some(signature) = word("signature") {
            if self.blocks.open().is_none() {
                self.blocks.begin_thinking(out);
            }
            self.blocks.sign(&signature, out);
        }
    }

    fn cite(&mut self, annotations: &[Json], out: &mut Out) {
        if !self.shared.options.citations.0 || self.blocks.open() != Some(BlockKind::Text) {
            return;
        }
        for citation in annotations.iter().filter_map(others::citation) {
            self.blocks.cite(citation, out);
        }
    }

    fn thinking(&self) -> Thinking {
        self.shared.thinking(self.echo.thinking)
    }

    /// True for a function that the client declared and runs.
    fn is_clients(&self, name: &str) -> bool {
        self.echo.declares(name) && !self.shared.options.asker().is_own(name)
    }
}
