//! The calls of a stream whose client accepts a call once, and a result once and after its call only.
//!
//! Not here: the events of a protocol, and protocols that hold a call until it is known who runs it.

use std::collections::HashMap;

use interlingua_core::event::Event;
use interlingua_core::step::Step;

use crate::emitted_text::EmittedText;

/// The calls that the client knows, in the order of their announcement, and those whose arguments are arriving.
///
/// `T`: the encoder's state of a call whose arguments are arriving. `R`: a result that waits for the end of its call.
#[derive(Debug)]
pub struct CallLedger<T, R> {
    calls: Vec<KnownCall<R>>,
    by_id: HashMap<String, usize>,
    open: Vec<OpenCall<T>>,
}

/// A call that the client knows.
#[derive(Debug)]
pub struct KnownCall<R> {
    /// Unique in the ledger.
    pub id: String,
    /// The tool. Empty: unknown.
    pub name: String,
    /// True if the agent runs the call in this stream.
    pub is_agents: bool,
    /// True once its result was sent.
    pub has_result: bool,
    has_ended: bool,
    early: Option<R>,
}

#[derive(Debug)]
struct OpenCall<T> {
    /// Index of the message, and of the content in it.
    place: (u32, u32),
    /// Index in [`CallLedger::calls`].
    call: usize,
    state: T,
    arguments: EmittedText,
    has_arguments: bool,
}

impl<T, R> Default for CallLedger<T, R> {
    fn default() -> Self {
        Self { calls: Vec::new(), by_id: HashMap::new(), open: Vec::new() }
    }
}

impl<T, R> CallLedger<T, R> {
    /// All calls, by the index that the other functions take and return.
    #[must_use]
    pub fn calls(&self) -> &[KnownCall<R>] {
        &self.calls
    }

    /// The index of the call with this id.
    #[must_use]
    pub fn index_of(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The call of an output. Without an id: the agent's oldest call of that name without a result. An empty name fits
    /// every call.
    #[must_use]
    pub fn find(&self, id: &str, name: &str) -> Option<usize> {
        if !id.is_empty() {
            return self.index_of(id);
        }
        self.calls.iter().position(|call| call.is_agents && !call.has_result && (name.is_empty() || call.name == name))
    }

    /// Adds a call of an earlier stream. Returns its index.
    pub fn add_earlier(&mut self, id: String, has_result: bool) -> usize {
        self.add(KnownCall { id, name: String::new(), is_agents: false, has_result, has_ended: true, early: None })
    }

    /// Adds a call that begins. Returns its index.
    pub fn announce(&mut self, id: &str, name: &str, is_agents: bool) -> usize {
        let (id, name) = (id.to_owned(), name.to_owned());
        self.add(KnownCall { id, name, is_agents, has_result: false, has_ended: false, early: None })
    }

    fn add(&mut self, call: KnownCall<R>) -> usize {
        self.by_id.insert(call.id.clone(), self.calls.len());
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// The arguments of an announced call follow as deltas of the content that this step begins.
    pub fn open(&mut self, step: &Step<'_>, call: usize, state: T) {
        if let Event::ContentStarted { message, content } = step.event {
            let arguments = EmittedText::default();
            self.open.push(OpenCall { place: (message, content), call, state, arguments, has_arguments: false });
        }
    }

    /// The arguments that a step adds: never empty. `None`: it adds none, or its content is no open call.
    #[inline]
    pub fn grow<'l, 'r>(&'l mut self, step: &Step<'r>) -> Option<(&'l KnownCall<R>, &'l T, &'r str)> {
        let (Event::ContentDelta { message, content, .. } | Event::ContentReplaced { message, content, .. }) =
            step.event
        else {
            return None;
        };
        // The call that grows is nearly always the last one.
        let open = self.open.iter_mut().rfind(|open| open.place == (message, content))?;
        let text = open.arguments.extend(step, step.slot()?.1);
        if text.is_empty() {
            return None;
        }

        open.has_arguments = true;
        Some((&self.calls[open.call], &open.state, text))
    }

    /// Closes the call whose content this step ends. Returns its index, and whether it had arguments.
    pub fn close(&mut self, step: &Step<'_>) -> Option<(usize, bool)> {
        let Event::ContentFinished { message, content } = step.event else { return None };
        let at = self.open.iter().rposition(|open| open.place == (message, content))?;
        let open = self.open.remove(at);
        Some((open.call, open.has_arguments))
    }

    /// Marks a call as complete. Returns a result that arrived before: [`Self::answer`] accepts it now.
    pub fn end(&mut self, call: usize) -> Option<R> {
        self.calls[call].has_ended = true;
        self.calls[call].early.take()
    }

    /// True if the result of a call can be sent now. Before the end of the call, the first result is kept. Some agents
    /// send a result twice: only the first one counts.
    pub fn answer(&mut self, call: usize, keep: impl FnOnce() -> R) -> bool {
        let call = &mut self.calls[call];
        if !call.has_ended {
            call.early.get_or_insert_with(keep);
            return false;
        }
        !std::mem::replace(&mut call.has_result, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_sent_once_and_after_its_call() {
        let mut ledger = CallLedger::<(), &str>::default();
        let call = ledger.announce("a", "search", true);
        assert!(!ledger.answer(call, || "18 C") && !ledger.answer(call, || "19 C"));
        assert_eq!(ledger.end(call), Some("18 C"));
        assert!(ledger.answer(call, || "18 C") && !ledger.answer(call, || "18 C"));
        assert_eq!(ledger.end(call), None);
    }

    #[test]
    fn an_output_without_an_id_belongs_to_the_oldest_open_call_of_the_agent() {
        let mut ledger = CallLedger::<(), &str>::default();
        let earlier = ledger.add_earlier("earlier".to_owned(), false);
        ledger.announce("client", "search", false);
        let (first, second) = (ledger.announce("a", "read", true), ledger.announce("b", "search", true));
        assert_eq!((ledger.find("", ""), ledger.find("", "search")), (Some(first), Some(second)));
        assert_eq!((ledger.find("earlier", ""), ledger.find("c", "search")), (Some(earlier), None));

        ledger.end(first);
        assert!(ledger.answer(first, || "done") && ledger.answer(earlier, || "done"));
        assert_eq!(ledger.find("", ""), Some(second));
    }
}
