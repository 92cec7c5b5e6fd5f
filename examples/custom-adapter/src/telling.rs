//! How an answer is told as text: paragraphs, each a message; what nobody said stands in brackets.
//!
//! Of a step's run only what the event speaks of is read, and of that only what never changes (see
//! [`interlingua_core::event`]): so the same steps make the same text, live and on every replay.

use interlingua_core::event::{End, Event};
use interlingua_core::model::{ContentType, MessageType};
use interlingua_core::sequencer::MessageSequencer;
use interlingua_core::{Fault, Flow, Out, Step};

use crate::Options;

/// One answer, while it is written.
pub(crate) struct Telling {
    /// An agent may think and talk at once. Text has no place for two open messages.
    order: MessageSequencer,
    text: Text,
}

impl Telling {
    pub(crate) fn new(options: Options) -> Self {
        Self { order: MessageSequencer::new(), text: Text { options, begun: false, open: false, anew: false } }
    }

    /// Writes a step. [`Flow::Close`] after the last one.
    pub(crate) fn step(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        let text = &mut self.text;
        // One step may set others free that were held back behind it.
        self.order.push(step, |step| text.write(step, out));
        if matches!(step.event, Event::RunFinished { .. }) { Flow::Close } else { Flow::More }
    }

    /// Ends the text in the middle: the run goes on, its answer can be fetched.
    pub(crate) fn interrupt(&mut self, fault: &Fault, out: &mut Out) {
        self.text.remark(&format!("interrupted: {}: {}", fault.code(), fault.message), out);
        out.write_raw(b"\n");
    }
}

/// What was written so far, as far as it matters for what is written next.
struct Text {
    options: Options,
    /// Something was written.
    begun: bool,
    /// A paragraph is open.
    open: bool,
    /// What was written of the open content does not hold any more.
    anew: bool,
}

impl Text {
    fn write(&mut self, step: Step<'_>, out: &mut Out) {
        match step.event {
            Event::ContentDelta { .. } if !self.anew => {
                if let Some(thought) = self.told(step) {
                    self.paragraph(thought, out);
                    out.write_raw(step.delta().as_bytes());
                }
            }
            // Rare. What was sent cannot be taken back, so the whole text will stand there once more when it is final.
            Event::ContentReplaced { .. } => self.anew = true,
            Event::ContentFinished { .. } if std::mem::take(&mut self.anew) => {
                if let (Some(thought), Some((_, slot))) = (self.told(step), step.slot()) {
                    self.open = false;
                    self.paragraph(thought, out);
                    out.write_raw(slot.text().as_bytes());
                }
            }
            // Pictures and the like come whole.
            Event::ContentFinished { .. } => {
                let told = step.message().is_some_and(|(_, message)| message.announced == MessageType::Message);
                if let Some((_, slot)) = step.slot().filter(|(_, slot)| told && !has_letters(&slot.kind)) {
                    self.remark(slot.kind.as_str(), out);
                }
            }
            Event::MessageFinished { .. } => self.open = false,
            // A client of this protocol wants to know why it gets no more, in a line of its own.
            Event::TurnFinished { turn, end } if end != End::Completed => {
                let error = step.run.turns.get(turn as usize).and_then(|turn| turn.error.as_ref());
                let error = error.map(|error| format!(": {}: {}", error.code, error.message)).unwrap_or_default();
                self.remark(&format!("{}{error}", end.as_str()), out);
            }
            Event::RunFinished { .. } if self.begun => out.write_raw(b"\n"),
            _ => {}
        }
    }

    /// Whether the step's content is told, and if so, whether it is a thought.
    fn told(&self, step: Step<'_>) -> Option<bool> {
        let (_, slot) = step.slot()?;
        if !has_letters(&slot.kind) {
            return None;
        }
        match step.message()?.1.announced {
            MessageType::Message => Some(false),
            MessageType::Reasoning if self.options.thoughts => Some(true),
            // Tools are the agent's business: this protocol does not tell of them.
            _ => None,
        }
    }

    /// Begins a paragraph, if none is open.
    fn paragraph(&mut self, thought: bool, out: &mut Out) {
        if self.open {
            return;
        }
        if self.begun {
            out.write_raw(b"\n\n");
        }
        if thought {
            out.write_raw(b"(thinking) ");
        }
        self.begun = true;
        self.open = true;
    }

    /// Writes a paragraph of ours.
    fn remark(&mut self, words: &str, out: &mut Out) {
        self.open = false;
        self.paragraph(false, out);
        self.open = false;
        out.write_raw(format!("[{words}]").as_bytes());
    }
}

const fn has_letters(kind: &ContentType) -> bool {
    matches!(kind, ContentType::Text | ContentType::Refusal)
}
