//! The pending items of a session, and runs that wait in it for another replica: each step is one call under the lock
//! of the document.
//!
//! Not here: reading and checking answers ([`interlingua_core::answer`]), and the list of the open items of all
//! sessions ([`super::open_items`]).

use interlingua_core::answer::{Answer, AnswerPolicy, Open, Outcome, TakenAnswers};
use interlingua_core::event::Millis;
use interlingua_core::model::Input;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{End, Fault, RunId};

use super::entry::Entry;
use super::session::Session;
use crate::faults;

/// The handling of a request by its session.
pub(crate) struct Admission {
    pub(crate) outcome: Outcome,
    /// The run that asked the first open item, or the latest run.
    pub(crate) asked_by: Option<RunId>,
    /// The index after the last entry.
    pub(crate) entries_end: u64,
}

/// The reason why a run waits, at one moment.
#[derive(Default)]
pub(crate) struct WaitReason {
    pub(crate) pending: Vec<Pending>,
    /// True if it waits only for another replica to take its next turn.
    pub(crate) is_handed_over: bool,
}

impl Session {
    /// Takes the answers of a request whose turn can be sent. `begins`: the entries that the session begins with, if
    /// the request is sent. A refused request changes nothing.
    pub(crate) fn admit(
        &self,
        input: Input,
        answers: Vec<Answer>,
        policy: AnswerPolicy,
        now: Millis,
        begins: Option<Vec<Entry>>,
    ) -> Admission {
        let mut doc = self.doc();
        let outcome = if begins.is_some() && doc.is_conversation {
            // It became one after it was chosen: its items are not overwritten.
            Outcome::Refused(faults::busy(&self.id))
        } else {
            doc.waiting.take(input, answers, policy, now)
        };
        if let (Outcome::Send { .. }, Some(entries)) = (&outcome, begins) {
            doc.begin(entries);
        }
        let asked_by = doc.waiting.open().next().map(|open| open.run).or(doc.latest);
        Admission { outcome, asked_by, entries_end: doc.next }
    }

    /// Checks the answers of a request whose turn is queued, and takes none of them.
    pub(crate) fn check_answers(
        &self,
        input: Input,
        answers: Vec<Answer>,
        policy: AnswerPolicy,
        now: Millis,
    ) -> Result<(), Fault> {
        let mut waiting = self.doc().waiting.clone();
        match waiting.take(input, answers, policy, now) {
            Outcome::Refused(fault) => Err(fault),
            _ => Ok(()),
        }
    }

    /// The request was never sent: its items are open again, with the decisions of earlier requests.
    pub(crate) fn put_back(&self, taken: TakenAnswers) {
        self.doc().waiting.put_back(taken);
    }

    /// The agent did not accept the answers: their items are open again.
    pub(crate) fn reopen(&self, taken: TakenAnswers) {
        self.doc().waiting.reopen(taken);
    }

    /// Withdraws the open items of a run. True if there were any.
    pub(crate) fn withdraw(&self, run: RunId) -> bool {
        self.doc().waiting.withdraw(run)
    }

    /// The open items of a run.
    pub(crate) fn pending_of(&self, run: RunId) -> Vec<Pending> {
        self.doc().waiting.pending_of(run)
    }

    /// The kind of the first open item that fits, and the run that asked it.
    pub(crate) fn find_open(&self, mut fits: impl FnMut(&Open) -> bool) -> Option<(PendingKind, RunId)> {
        self.doc().waiting.open().find(|open| fits(open)).map(|open| (open.item.kind, open.run))
    }

    /// True if an item is open.
    pub(crate) fn has_open_item(&self) -> bool {
        self.find_open(|_| true).is_some()
    }

    pub(crate) fn wait_reason(&self, run: RunId) -> WaitReason {
        let doc = self.doc();
        let is_handed_over = doc.handed_over.contains_key(&run);
        WaitReason { pending: doc.waiting.pending_of(run), is_handed_over }
    }

    /// Notes that another replica has the next turn of a run in line. `end`: the run's end if that turn is not taken.
    pub(crate) fn hand_over(&self, run: RunId, end: End) {
        self.doc().handed_over.insert(run, end);
    }

    /// The end of a run that was handed over and whose next turn no replica has taken yet.
    pub(crate) fn handed_over(&self, run: RunId) -> Option<End> {
        self.doc().handed_over.get(&run).copied()
    }

    /// Removes the note of [`Session::hand_over`].
    pub(crate) fn take_handed_over(&self, run: RunId) -> Option<End> {
        self.doc().handed_over.remove(&run)
    }
}
