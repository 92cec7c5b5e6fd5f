//! The messages of a task in order, without the one in its current status (docs/protocols/a2a.md#history).
//!
//! Generic over the message type: tasks borrow their messages, push notifications store them encoded. Not here: the
//! updates themselves ([`crate::encode::updates`]).

/// Past messages, and the message of the current status.
#[derive(Debug)]
pub(crate) struct History<M> {
    before: Vec<M>,
    current: Option<M>,
    /// Index in `before` that `current` moves to when it is replaced. `None`: the end.
    index: Option<usize>,
    /// Index of the last input's first message, and the index the previous current message moved to.
    last: (usize, Option<usize>),
}

impl<M> History<M> {
    pub(crate) const fn new() -> Self {
        Self { before: Vec::new(), current: None, index: None, last: (0, None) }
    }

    /// Messages of the history.
    pub(crate) fn before(&self) -> &[M] {
        &self.before
    }

    /// Message of the status.
    pub(crate) const fn current(&self) -> Option<&M> {
        self.current.as_ref()
    }

    /// Appends a client's messages. The current message moves into the history.
    pub(crate) fn add_input(&mut self, messages: impl IntoIterator<Item = M>) {
        let retired_at = self.retire();
        self.last = (self.before.len(), retired_at);
        self.before.extend(messages);
    }

    /// Undoes the last input because it did not reach the agent: the previous current message is current again.
    /// `keep_input`: false removes the input from the history.
    pub(crate) fn withdraw(&mut self, keep_input: bool) {
        let (from, retired_at) = self.last;
        if !keep_input {
            self.before.truncate(from);
        }

        if let Some(retired_at) = retired_at.filter(|retired_at| *retired_at < self.before.len()) {
            self.current = Some(self.before.remove(retired_at));
            self.index = Some(retired_at);
        }
    }

    /// Sets the message of the status. `same` compares two messages: a repeated one is not added to the history again.
    pub(crate) fn set(&mut self, message: Option<M>, same: impl Fn(&M, &M) -> bool) {
        let repeated = message.as_ref().zip(self.current.as_ref()).is_some_and(|(new, old)| same(new, old));
        if !repeated {
            self.retire();
        }
        self.current = message;
    }

    /// Moves the current message into the history and returns its index.
    fn retire(&mut self) -> Option<usize> {
        let message = self.current.take()?;
        let index = self.index.take().unwrap_or(self.before.len());
        self.before.insert(index, message);
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_precedes_its_answers_even_after_failed_attempts() {
        let mut history = History::new();
        history.add_input(["hi"]);
        history.set(None, |new, old| new == old);
        history.set(Some("sure?"), |new, old| new == old);
        for unclear in ["perhaps", "well"] {
            history.add_input([unclear]);
            history.withdraw(true);
            assert_eq!(history.current(), Some(&"sure?"));
        }
        history.set(Some("sure?"), |new, old| new == old);
        assert_eq!(history.before(), ["hi", "perhaps", "well"]);

        history.add_input(["not delivered"]);
        history.withdraw(false);
        assert_eq!((history.before(), history.current()), (&["hi", "perhaps", "well"][..], Some(&"sure?")));

        history.add_input(["yes"]);
        history.set(None, |new, old| new == old);
        assert_eq!(history.before(), ["hi", "sure?", "perhaps", "well", "yes"]);

        history.add_input(["more"]);
        history.withdraw(true);
        assert_eq!((history.before().len(), history.current()), (6, None));
    }
}
