//! The history of a task that is polled: a window of it, so that a long task does not come whole with every poll.
//!
//! Status messages between two polls stand in the history and nowhere else. The window reaches back far enough if it holds
//! the message that was sent or one that was read before, or if there is nothing before it. Otherwise a wider one is asked
//! for before anything is emitted: nothing is lost and nothing comes twice.

use interlingua_core::Fault;
use interlingua_core::connector::EventSink;
use serde_json::value::RawValue;

use super::events::ItemReader;
use super::texts::message_digest;
use super::wire::{self, Task, filled};

/// So many messages are asked for at first, and four times as many where they are too few.
const FIRST: u32 = 32;
/// The widest window. After it, everything is asked for.
const WIDEST: u32 = 2048;

/// How many of the last messages are asked for with a task.
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

    /// Reaches further back. It stays so: an agent that says so much between two polls goes on like that.
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

    /// Where messages of this turn begin, as far as that is known. Some of them may have been read.
    fn first_new(&self, history: &[&RawValue]) -> Option<usize> {
        let is_own = |raw: &&RawValue| {
            let message = wire::message(raw);
            message.is_some_and(|message| filled(&message.message_id) == Some(self.message_id.as_str()))
        };
        let own = history.iter().rposition(is_own).map(|place| place + 1);
        own.or_else(|| history.iter().position(|raw| self.messages.contains(&message_digest(raw))))
    }

    /// Status messages between two looks at a task stand in its history, after the message that was sent. `current`: the
    /// message of the status that comes with it.
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
