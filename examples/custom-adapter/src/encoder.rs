//! Encodes an answer as text: one paragraph per message; remarks of the gateway are in brackets.

use interlingua_adapter_kit::emitted_text::EmittedText;
use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_core::call::RunView;
use interlingua_core::event::{End, Event};
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::{Fault, Flow, Out, Step};

use crate::Options;

/// Writes one answer, with the state that determines how its text continues.
#[derive(Default)]
pub(crate) struct Encoder {
    options: Options,
    /// Agents may send several messages at the same time; text can only have one open message.
    sequencer: MessageSequencer,
    has_output: bool,
    /// True while a paragraph can be continued.
    in_paragraph: bool,
    /// The part of the open content that was written.
    sent: EmittedText,
}

impl Encoder {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Writes a step. [`Flow::Close`] after the last one.
    pub(crate) fn step(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let mut sequencer = std::mem::take(&mut self.sequencer);
        // One step may release others that were held back.
        sequencer.push(step, |step| self.write(step, out));
        self.sequencer = sequencer;
        if matches!(step.event, Event::RunFinished { .. }) { Flow::Close } else { Flow::More }
    }

    /// Writes the questions of the agent that are still open, each with what its answer needs.
    pub(crate) fn questions(&mut self, run: RunView<'_>, out: &mut Out) {
        for item in run.pending {
            let (question, session) = (item.message.as_deref().unwrap_or(&item.name), &run.run().session_id);
            let remark = format!("{question} {} — answer with session={session} answers={}", item.arguments, item.id);
            self.remark(&remark, out);
        }
        if !run.pending.is_empty() {
            out.write_raw(b"\n");
        }
    }

    /// Interrupts the text: the run continues, and its answer can be fetched.
    pub(crate) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.remark(&format!("interrupted: {}: {}", fault.code(), fault.message), out);
        out.write_raw(b"\n");
    }

    fn write(&mut self, step: Step<'_>, out: &mut Out) {
        // `Some`: the step's message is shown; true for reasoning. This protocol does not show tool calls.
        let shown = step.message().and_then(|(_, message)| match message.announced {
            MessageType::Message => Some(false),
            MessageType::Reasoning if self.options.thoughts => Some(true),
            _ => None,
        });
        match (step.event, step.slot().map(|(_, slot)| slot), shown) {
            (Event::ContentStarted { .. }, ..) => self.sent = EmittedText::default(),
            (Event::ContentFinished { .. }, Some(slot), Some(is_reasoning)) => {
                if !matches!(slot.kind, ContentType::Text | ContentType::Refusal) {
                    self.remark(slot.kind.as_str(), out);
                } else if self.sent.text(slot) != slot.text() {
                    // Sent text cannot be withdrawn: a text that was replaced is written again when it is final.
                    self.in_paragraph = false;
                    self.paragraph(is_reasoning, slot.text(), out);
                }
            }
            (_, Some(slot), Some(is_reasoning)) => {
                let added = self.sent.extend(&step, slot);
                self.paragraph(is_reasoning, added, out);
            }
            (Event::MessageFinished { .. }, ..) => self.in_paragraph = false,
            (Event::TurnFinished { turn, end }, ..) if end != End::Completed => {
                let error = step.run.turns.get(turn as usize).and_then(|turn| turn.error.as_ref());
                let error = error.map(|error| format!(": {}: {}", error.code, error.message)).unwrap_or_default();
                self.remark(&format!("{}{error}", end.as_str()), out);
            }
            (Event::RunFinished { .. }, ..) if self.has_output => out.write_raw(b"\n"),
            _ => {}
        }
    }

    /// Continues the paragraph, or starts one.
    fn paragraph(&mut self, is_reasoning: bool, text: &str, out: &mut Out) {
        if text.is_empty() {
            return;
        }
        if !self.in_paragraph {
            out.write_raw(if self.has_output { b"\n\n" } else { b"" });
            out.write_raw(if is_reasoning { b"(thinking) " } else { b"" });
        }
        out.write_raw(text.as_bytes());
        (self.has_output, self.in_paragraph) = (true, true);
    }

    /// Writes a paragraph by the gateway, in brackets.
    fn remark(&mut self, text: &str, out: &mut Out) {
        self.in_paragraph = false;
        self.paragraph(false, &format!("[{text}]"), out);
        self.in_paragraph = false;
    }
}
