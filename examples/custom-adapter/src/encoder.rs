//! Encodes an answer as text: one paragraph per message; remarks of the gateway are in brackets.
//!
//! Only data that [`interlingua_core::event`] calls stable is read from a step's run, and only for what the event is
//! about, so that the same steps produce the same text live and on every replay.

use interlingua_adapter_kit::sequencer::MessageSequencer;
use interlingua_core::call::RunView;
use interlingua_core::event::{End, Event};
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::{Fault, Flow, Out, Step};

use crate::Options;

/// Writes one answer.
pub(crate) struct Encoder {
    /// Agents may send several messages at the same time; text can only have one open message.
    sequencer: MessageSequencer,
    text: TextWriter,
}

impl Encoder {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            sequencer: MessageSequencer::new(),
            text: TextWriter { options, has_output: false, in_paragraph: false, replaced: false },
        }
    }

    /// Writes a step. [`Flow::Close`] after the last one.
    pub(crate) fn step(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let text = &mut self.text;
        // One step may release others that were held back.
        self.sequencer.push(step, |step| text.write(step, out));
        if matches!(step.event, Event::RunFinished { .. }) { Flow::Close } else { Flow::More }
    }

    /// Writes the questions of the agent that are still open, each with what its answer needs.
    pub(crate) fn questions(&mut self, run: RunView<'_>, out: &mut Out) {
        let session = &run.run().session_id;
        for item in run.pending {
            let question = item.message.as_deref().unwrap_or(&item.name);
            let remark = format!("{question} {} — answer with session={session} answers={}", item.arguments, item.id);
            self.text.remark(&remark, out);
        }
        if !run.pending.is_empty() {
            out.write_raw(b"\n");
        }
    }

    /// Interrupts the text: the run continues, and its answer can be fetched.
    pub(crate) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.text.remark(&format!("interrupted: {}: {}", fault.code(), fault.message), out);
        out.write_raw(b"\n");
    }
}

/// The text output, with the state that determines how it continues.
struct TextWriter {
    options: Options,
    /// True once something was written.
    has_output: bool,
    /// True while a paragraph can be continued.
    in_paragraph: bool,
    /// True if the open content was replaced after a part of it was written.
    replaced: bool,
}

impl TextWriter {
    fn write(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { .. } if !self.replaced => {
                if let Some(is_reasoning) = self.reasoning_of(step) {
                    self.paragraph(is_reasoning, out);
                    out.write_raw(step.delta().as_bytes());
                }
            }

            // Rare. Sent text cannot be withdrawn, so the complete text is written again when it is final.
            Event::ContentReplaced { .. } => self.replaced = true,
            Event::ContentFinished { .. } if std::mem::take(&mut self.replaced) => {
                if let (Some(is_reasoning), Some((_, slot))) = (self.reasoning_of(step), step.slot()) {
                    self.in_paragraph = false;
                    self.paragraph(is_reasoning, out);
                    out.write_raw(slot.text().as_bytes());
                }
            }

            // Images and other media have no deltas.
            Event::ContentFinished { .. } => {
                let is_message = step.message().is_some_and(|(_, message)| message.announced == MessageType::Message);
                if let Some((_, slot)) = step.slot().filter(|(_, slot)| is_message && !is_text(&slot.kind)) {
                    self.remark(slot.kind.as_str(), out);
                }
            }
            Event::MessageFinished { .. } => self.in_paragraph = false,
            // The reason for an unsuccessful end, on a line of its own.
            Event::TurnFinished { turn, end } if end != End::Completed => {
                let error = step.run.turns.get(turn as usize).and_then(|turn| turn.error.as_ref());
                let error = error.map(|error| format!(": {}: {}", error.code, error.message)).unwrap_or_default();
                self.remark(&format!("{}{error}", end.as_str()), out);
            }
            Event::RunFinished { .. } if self.has_output => out.write_raw(b"\n"),
            _ => {}
        }
    }

    /// Whether the step's content is reasoning. `None`: the content is not written.
    fn reasoning_of(&self, step: Step<'_>) -> Option<bool> {
        let (_, slot) = step.slot()?;
        if !is_text(&slot.kind) {
            return None;
        }

        match step.message()?.1.announced {
            MessageType::Message => Some(false),
            MessageType::Reasoning if self.options.thoughts => Some(true),
            // This protocol does not show tool calls.
            _ => None,
        }
    }

    /// Starts a paragraph unless one is open.
    fn paragraph(&mut self, is_reasoning: bool, out: &mut Out) {
        if self.in_paragraph {
            return;
        }

        if self.has_output {
            out.write_raw(b"\n\n");
        }

        if is_reasoning {
            out.write_raw(b"(thinking) ");
        }

        self.has_output = true;
        self.in_paragraph = true;
    }

    /// Writes a paragraph by the gateway, in brackets.
    fn remark(&mut self, text: &str, out: &mut Out) {
        self.in_paragraph = false;
        self.paragraph(false, out);
        self.in_paragraph = false;
        out.write_raw(format!("[{text}]").as_bytes());
    }
}

const fn is_text(kind: &ContentType) -> bool {
    matches!(kind, ContentType::Text | ContentType::Refusal)
}
