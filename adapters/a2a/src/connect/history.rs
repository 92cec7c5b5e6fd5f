//! The history of a polled task: a window of it, so that a poll does not transfer the whole history of a long task.
//!
//! Only the history contains the status messages between two polls. The window is wide enough if it contains the
//! message that was sent or one that was read before, or if no message precedes it. Otherwise a wider window is
//! requested before any content is emitted: each message is emitted exactly once.

use interlingua_core::Fault;
use interlingua_core::connector::EventSink;
use serde_json::value::RawValue;

use super::events::ItemReader;
use super::texts::message_digest;
use super::wire::{self, Task, filled};

/// So many messages are asked for at first, and four times as many where they are too few.
const FIRST: u32 = 32;
/// The widest window. The next request is for the whole history.
const WIDEST: u32 = 2048;

/// The number of latest messages that are requested with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window(Option<u32>);

impl Default for Window {
    fn default() -> Self {
        Self(Some(FIRST))
    }
}

impl Window {
    /// `historyLength`. None: the whole history.
    pub(super) const fn length(self) -> Option<u32> {
        self.0
    }

    /// Widens the window. It stays wide: an agent with many messages between two polls will have many again.
    pub(super) fn widen(&mut self) {
        self.0 = self.0.map(|length| length.saturating_mul(4)).filter(|length| *length <= WIDEST);
    }
}

fn messages(history: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(history.get()).unwrap_or_default()
}

impl ItemReader {
    /// True if messages that were not read may stand before a task's history, which is a window of this width.
    pub(super) fn has_gap(&self, task: &Task<'_>, window: Window) -> bool {
        let (Some(length), Some(history)) = (window.length(), task.history) else { return false };
        let history = messages(history);
        // A server that sends more ignores the width, one that sends fewer has no more.
        history.len() == length as usize && self.first_new(&history).is_none()
    }

    /// The beginning of this turn's messages, if known. Some of them may have been read.
    fn first_new(&self, history: &[&RawValue]) -> Option<usize> {
        let is_own = |raw: &&RawValue| {
            let message = wire::message(raw);
            message.is_some_and(|message| filled(&message.message_id) == Some(self.message_id.as_str()))
        };
        let own = history.iter().rposition(is_own).map(|place| place + 1);
        own.or_else(|| history.iter().position(|raw| self.messages.contains(&message_digest(raw))))
    }

    /// Emits the status messages between two requests of a task. They follow the sent message in its history.
    /// `current`: the message of the status in this answer.
    pub(super) fn missed(
        &mut self,
        history: &RawValue,
        current: Option<u64>,
        sink: &mut dyn EventSink,
    ) -> Result<(), Fault> {
        let history = messages(history);
        // Without the message that was sent, and one that was read, it is unknown which of them are new.
        let Some(first) = self.first_new(&history) else { return Ok(()) };
        for raw in &history[first..] {
            let message = wire::message(raw);
            let is_current = || current == Some(message_digest(raw));
            if message.is_some_and(|message| !message.is_from_user()) && !is_current() {
                // The artifacts of the task come with it.
                self.status_message(raw, true, sink)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_until_it_is_everything() {
        let mut window = Window::default();
        let mut lengths = Vec::new();
        while let Some(length) = window.length() {
            lengths.push(length);
            window.widen();
        }
        assert_eq!(lengths, [32, 128, 512, 2048]);
        window.widen();
        assert_eq!(window.length(), None);
    }
}
