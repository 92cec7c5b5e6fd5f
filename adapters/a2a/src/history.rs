//! The messages of a task in the order they were said: all but the one its status holds (section 8, rule 6).
//!
//! Generic over what a message is, since tasks borrow theirs and pushed tasks keep them written. Not here: which
//! updates there are ([`crate::updates`]).

/// History, and the message the status holds.
#[derive(Debug)]
pub(crate) struct History<M> {
    before: Vec<M>,
    current: Option<M>,
    /// Where the current message belongs once it is no longer that. None: at the end.
    place: Option<usize>,
    /// Where what was said last begins, and where the message went that was the current one until then.
    last: (usize, Option<usize>),
}

impl<M> History<M> {
    pub(crate) const fn new() -> Self {
        Self { before: Vec::new(), current: None, place: None, last: (0, None) }
    }

    /// What is in the history.
    pub(crate) fn before(&self) -> &[M] {
        &self.before
    }

    /// What is in the status.
    pub(crate) const fn current(&self) -> Option<&M> {
        self.current.as_ref()
    }

    /// A client says something: nothing of what was said before is current any more.
    pub(crate) fn say(&mut self, messages: impl IntoIterator<Item = M>) {
        let put = self.retire();
        self.last = (self.before.len(), put);
        self.before.extend(messages);
    }

    /// What was said last reached nobody: the message that was current is so still. `said`: false if it counts as not
    /// said at all.
    pub(crate) fn unask(&mut self, said: bool) {
        let (from, put) = self.last;
        if !said {
            self.before.truncate(from);
        }
        if let Some(put) = put.filter(|put| *put < self.before.len()) {
            self.current = Some(self.before.remove(put));
            self.place = Some(put);
        }
    }

    /// The status holds another message, or none. `same`: whether two are one, which is repeated.
    pub(crate) fn set(&mut self, message: Option<M>, same: impl Fn(&M, &M) -> bool) {
        let repeated = message.as_ref().zip(self.current.as_ref()).is_some_and(|(new, old)| same(new, old));
        if !repeated {
            self.retire();
        }
        self.current = message;
    }

    /// Puts the current message where it belongs; answers where that is.
    fn retire(&mut self) -> Option<usize> {
        let message = self.current.take()?;
        let place = self.place.take().unwrap_or(self.before.len());
        self.before.insert(place, message);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_stands_before_what_was_said_to_it_however_often_that_was_in_vain() {
        let mut history = History::new();
        history.say(["hi"]);
        history.set(None, |new, old| new == old);
        history.set(Some("sure?"), |new, old| new == old);
        for unclear in ["perhaps", "well"] {
            history.say([unclear]);
            history.unask(true);
            assert_eq!(history.current(), Some(&"sure?"));
        }
        history.set(Some("sure?"), |new, old| new == old);
        assert_eq!(history.before(), ["hi", "perhaps", "well"]);
        history.say(["not heard"]);
        history.unask(false);
        assert_eq!((history.before(), history.current()), (&["hi", "perhaps", "well"][..], Some(&"sure?")));
        history.say(["yes"]);
        history.set(None, |new, old| new == old);
        assert_eq!(history.before(), ["hi", "sure?", "perhaps", "well", "yes"]);
        history.say(["more"]);
        history.unask(true);
        assert_eq!((history.before().len(), history.current()), (6, None));
    }
}
