//! An event with its run, as encoders receive it.
//!
//! Not here: the events themselves ([`crate::event`]) and the state of a run ([`crate::run`]).

use crate::event::{Event, Millis};
use crate::id::RunId;
use crate::run::state::{Message, Run, Slot};

/// An event with its sequence number, its time and its run.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Counts from 0, without gaps.
    pub sequence: u64,
    /// The time of the event.
    pub at: Millis,
    /// The event itself.
    pub event: Event,
    /// The run, which may already be ahead of the event.
    pub run: &'a Run,
}

impl<'a> Step<'a> {
    /// The id of the run in which the step happened.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.run.id
    }

    /// The message the event refers to, with its index.
    #[must_use]
    pub fn message(&self) -> Option<(usize, &'a Message)> {
        let index = match self.event {
            Event::MessageStarted { message }
            | Event::ContentStarted { message, .. }
            | Event::ContentDelta { message, .. }
            | Event::ContentReplaced { message, .. }
            | Event::ContentFinished { message, .. }
            | Event::MessageFinished { message } => message as usize,
            _ => return None,
        };

        self.run.messages.get(index).map(|message| (index, message))
    }

    /// The content the event refers to, with its index in the message.
    #[must_use]
    pub fn slot(&self) -> Option<(usize, &'a Slot)> {
        let index = match self.event {
            Event::ContentStarted { content, .. }
            | Event::ContentDelta { content, .. }
            | Event::ContentReplaced { content, .. }
            | Event::ContentFinished { content, .. } => content as usize,
            _ => return None,
        };

        self.message()?.1.slots.get(index).map(|slot| (index, slot))
    }

    /// The text that a [`Event::ContentDelta`] adds, or the new text of a [`Event::ContentReplaced`].
    #[must_use]
    pub fn delta(&self) -> &'a str {
        let Some((_, slot)) = self.slot() else { return "" };
        match self.event {
            Event::ContentDelta { span, .. } => slot.span(span),
            // The initial text of the version only: its later growth has deltas of its own.
            Event::ContentReplaced { version, .. } => slot.replaced(version),
            _ => "",
        }
    }
}
