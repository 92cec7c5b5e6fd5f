//! The turns of a session: the state that a turn starts from, the answers that it takes, and the notes of its result.
//! Each step is one call under the lock of the document.
//!
//! Not here: reading and checking answers ([`interlingua_core::answer`]), the list of the open items of all sessions
//! ([`super::open_items`]), and the right to take a turn ([`super::session`]).

use interlingua_core::answer::{Answer, AnswerPolicy, AskContext, Open, Outcome, TakenAnswers};
use interlingua_core::event::Millis;
use interlingua_core::model::Input;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{End, Fault, Json, RunId};

use super::entry::{Entry, EntryList, KnownEntries, LateChanges, Replacement};
use super::session::Session;
use interlingua_upstream::pool::EndpointKey;

/// The state of a session that a turn starts from, at one moment.
pub(crate) struct SessionSnapshot {
    pub(crate) entries: EntryList,
    pub(crate) is_conversation: bool,
    /// True if the agent remembers something else than the entries.
    pub(crate) is_stale: bool,
    /// The session's id as the agent knows it.
    pub(crate) upstream_id: String,
    /// The endpoint that remembers the session. `None`: none does, or it is not known which.
    pub(crate) home: Option<EndpointKey>,
    /// The user, as a client named it or as the session was given it.
    pub(crate) user: Option<String>,
    /// True if a client named the user.
    pub(crate) is_user_named: bool,
    pub(crate) connector_state: Json,
    /// The user of the turn that left the connector state, as the agent knows them.
    pub(crate) connector_user: Option<String>,
}

/// The handling of a request by its session.
pub(crate) struct Admission {
    pub(crate) outcome: Outcome,
    /// The run that asked the first open item, or the latest run.
    pub(crate) asked_by: Option<RunId>,
    /// The entries of the session after that.
    pub(crate) entries: KnownEntries,
}

/// The memory of the agent after a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentMemory {
    /// As before: the agent received nothing.
    Unchanged,
    /// All entries, with the turn.
    Current,
    /// Unknown: the turn may be part of it.
    Unclear,
}

/// The result of a turn, for its session.
pub(crate) struct TurnNote<'a> {
    pub(crate) run: RunId,
    /// The turn's index in the run.
    pub(crate) turn: u32,
    /// True if the run is the session's latest one from now on.
    pub(crate) is_latest: bool,
    /// The answers that the turn gave.
    pub(crate) taken: Option<TakenAnswers>,
    pub(crate) memory: AgentMemory,
    /// The entries that the turn was prepared from.
    pub(crate) known_entries: KnownEntries,
    /// True if the agent was not sent the history, although it remembers something else.
    pub(crate) leaves_stale: bool,
    /// The entries and questions of the turn. `None`: it failed or was canceled.
    pub(crate) success: Option<TurnSuccess<'a>>,
    /// The endpoint that received the turn. `None`: none did.
    pub(crate) home: Option<EndpointKey>,
    /// True if that endpoint may not remember the session: it failed with the history that it was sent.
    pub(crate) is_home_lost: bool,
    pub(crate) upstream_id: &'a str,
}

/// The part of a [`TurnNote`] that only a turn without failure has.
pub(crate) struct TurnSuccess<'a> {
    /// The pending items that the turn ended with.
    pub(crate) asked: Vec<Pending>,
    pub(crate) context: AskContext<'a>,
    /// The entries before the turn. `None`: the session keeps its entries.
    pub(crate) before: Option<Replacement>,
    /// True if the run can be found later, in the store or over its connection.
    pub(crate) is_kept: bool,
    /// The connector's state for the next turn. `None`: as before.
    pub(crate) connector_state: Option<Json>,
    /// The user of the request, as the agent knows them.
    pub(crate) user: Option<String>,
}

impl Session {
    /// Its entries at this moment.
    pub(crate) fn entries(&self) -> EntryList {
        self.doc().entries()
    }

    pub(crate) fn snapshot(&self) -> SessionSnapshot {
        let doc = self.doc();
        SessionSnapshot {
            entries: doc.entries(),
            is_conversation: doc.is_conversation,
            is_stale: doc.stale,
            upstream_id: doc.known_id().to_owned(),
            home: doc.home.clone(),
            user: doc.user_id.clone(),
            is_user_named: doc.named_user().is_some(),
            connector_state: doc.connector_state.clone(),
            connector_user: doc.connector_user.clone(),
        }
    }

    /// The endpoint that remembers the session, if that is known. Also returns true if no endpoint remembers it by this
    /// id.
    pub(crate) fn home_of(&self, upstream_id: &str) -> (Option<EndpointKey>, bool) {
        let doc = self.doc();
        let is_new = upstream_id != doc.known_id() || (doc.home.is_none() && doc.seen == 0);
        (doc.home.clone(), is_new)
    }

    /// The user of a turn: the one that its client names, otherwise the session's. The first one stays the session's.
    pub(crate) fn user_of_turn(&self, named: Option<String>) -> String {
        let mut doc = self.doc();
        let user = named.or_else(|| doc.user_id.clone()).unwrap_or_else(|| self.own_user());
        doc.user_id.get_or_insert_with(|| user.clone());
        user
    }

    /// Takes the answers of a request whose turn can be sent. `begins`: the entries that the session begins with, if
    /// the request is sent. A refused request changes nothing. `None`: the session is to begin again, but has become a
    /// conversation meanwhile, whose items are not overwritten.
    pub(crate) fn admit(
        &self,
        input: Input,
        answers: Vec<Answer>,
        policy: AnswerPolicy,
        now: Millis,
        begins: Option<Vec<Entry>>,
    ) -> Option<Admission> {
        let mut doc = self.doc();
        if begins.is_some() && doc.is_conversation {
            return None;
        }

        let outcome = doc.waiting.take(input, answers, policy, now);
        if let (Outcome::Send { .. }, Some(entries)) = (&outcome, begins) {
            doc.begin(entries);
        }
        let asked_by = doc.waiting.open().next().map(|open| open.run).or(doc.latest);
        Some(Admission { outcome, asked_by, entries: doc.known_entries() })
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

    /// True if a request answers a pending item. Takes no answer.
    pub(crate) fn answers_item(&self, input: Input, answers: Vec<Answer>, policy: AnswerPolicy, now: Millis) -> bool {
        let mut waiting = self.doc().waiting.clone();
        matches!(waiting.take(input, answers, policy, now), Outcome::Send { answered, .. } if !answered.is_empty())
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

    /// The open items of a run, and whether it was handed over ([`Session::hand_over`]).
    pub(crate) fn wait_reason(&self, run: RunId) -> (Vec<Pending>, bool) {
        let doc = self.doc();
        (doc.waiting.pending_of(run), doc.handed_over.contains_key(&run))
    }

    /// Notes that the next turn of a run is in the session's queue. `end`: the run's end if that turn is not taken.
    pub(crate) fn hand_over(&self, run: RunId, end: End) {
        self.doc().handed_over.insert(run, end);
    }

    /// The end of a run that was handed over and whose next turn is not taken yet.
    pub(crate) fn handed_over(&self, run: RunId) -> Option<End> {
        self.doc().handed_over.get(&run).copied()
    }

    /// Removes the note of [`Session::hand_over`].
    pub(crate) fn take_handed_over(&self, run: RunId) -> Option<End> {
        self.doc().handed_over.remove(&run)
    }

    /// The entries that a replacement is made of. Keeps the changes that clients make until the turn is noted.
    pub(crate) fn prepare_replacement(&self) -> EntryList {
        let mut doc = self.doc();
        doc.late = Some(LateChanges::new(doc.next));
        doc.entries()
    }

    /// Notes the result of a turn. Returns the items of its run that are open.
    pub(crate) fn note_turn(&self, note: TurnNote<'_>) -> Vec<Pending> {
        let TurnNote { run, memory, .. } = note;
        let mut doc = self.doc();
        if note.is_latest {
            doc.latest = Some(run);
        }
        let sent = note.taken.map(|taken| doc.waiting.confirm_sent(taken));
        let mut open = Vec::new();
        if let Some(TurnSuccess { asked, context, before, is_kept, connector_state, user }) = note.success {
            // The agent has gone on without the answers that it was not given to an earlier turn.
            doc.waiting.withdraw(run);
            if let Some(sent) = sent {
                doc.waiting.ask(sent, asked, &context);
            }
            open = doc.waiting.pending_of(run);

            let branches_off = before.as_ref().is_some_and(|before| before.is_branch && !before.entries.is_empty());
            let has_unsent = before.as_ref().is_some_and(|before| !before.added.is_empty());
            // Clients may have added messages during the turn, which the agent has not received, or removed some that
            // it has received.
            let is_behind = has_unsent || doc.known_entries() != note.known_entries;
            let received_to = match before {
                Some(before) => doc.replace_before_turn(before),
                None => note.known_entries.end,
            };
            if is_kept {
                doc.push(Entry::Turn { run, turn: note.turn });
            }
            if memory == AgentMemory::Current {
                // The turn itself is behind the messages that were added during it.
                doc.seen = if is_behind { received_to } else { doc.next };
                doc.stale = !is_kept || is_behind || note.leaves_stale;
            } else {
                doc.stale |= branches_off;
            }
            if let Some(state) = connector_state {
                (doc.connector_state, doc.connector_user) = (state, user);
            }
        }
        doc.late = None;
        doc.stale |= memory == AgentMemory::Unclear;
        if note.home.is_some() {
            doc.home = note.home.filter(|_| !note.is_home_lost);
        }
        if note.upstream_id != self.id {
            doc.upstream_id = Some(note.upstream_id.to_owned());
        }
        open
    }

    /// Removes the entry of a turn that could not be written. The next entry takes its index.
    pub(crate) fn take_back(&self, run: RunId, turn: u32) {
        let mut doc = self.doc();
        doc.take_back(run, turn);
        doc.waiting.withdraw(run);
        doc.handed_over.remove(&run);
        doc.stale = true;
    }

    /// Makes the previous run the latest one again: this one is discarded.
    pub(crate) fn forget_run(&self, run: RunId, previous: Option<RunId>) {
        let mut doc = self.doc();
        if doc.latest == Some(run) {
            doc.latest = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use interlingua_core::Owner;
    use interlingua_core::model::Message;
    use interlingua_store::Version;

    use super::*;
    use crate::sessions::document::SessionDoc;
    use crate::sessions::session::SessionKey;

    fn note(known_entries: KnownEntries) -> TurnNote<'static> {
        let run = RunId(uuid::Uuid::from_u128(7));
        let context = AskContext {
            run,
            now: 0,
            terms: interlingua_core::answer::AnswerPolicy::default(),
            tools: &[],
            decisions: &[],
            tool_outputs: interlingua_core::capability::ToolOutputs::Together,
        };
        let success =
            TurnSuccess { asked: Vec::new(), context, before: None, is_kept: true, connector_state: None, user: None };
        TurnNote {
            run,
            turn: 0,
            is_latest: true,
            taken: None,
            memory: AgentMemory::Current,
            known_entries,
            leaves_stale: false,
            success: Some(success),
            home: None,
            is_home_lost: false,
            upstream_id: "s",
        }
    }

    fn session() -> Session {
        let owner = Owner::from_key("ann");
        Session::new(SessionKey::new("friday", &owner, "s"), &owner, SessionDoc::new("s", "friday", &owner, None))
    }

    fn entry(text: &str) -> Entry {
        Entry::from_message(&Message::user(text))
    }

    #[test]
    fn an_agent_is_sent_messages_again_that_were_added_during_a_turn() {
        let session = session();
        session.append(&[Message::user("before")]).expect("room");
        session.note_turn(note(session.entries().known()));
        assert!(!session.snapshot().is_stale, "the agent was sent the message with the turn");

        let known = session.entries().known();
        session.append(&[Message::user("during the next turn")]).expect("room");
        session.note_turn(note(known));
        assert!(session.snapshot().is_stale);
        assert_eq!(session.entries().unseen(), 2..4);
    }

    #[test]
    fn an_agent_remembers_something_else_after_an_item_was_removed_during_a_turn() {
        for of_turn in [false, true] {
            let session = session();
            let message = Message::user("before");
            session.append(std::slice::from_ref(&message)).expect("room");
            let known = session.entries().known();
            let is_removed = match of_turn {
                true => session.remove_turn_item("item"),
                false => session.remove_message(0, &Entry::from_message(&message), true),
            };
            session.note_turn(note(known));
            assert!(is_removed && session.snapshot().is_stale, "{of_turn}");

            session.note_turn(note(session.entries().known()));
            assert!(!session.snapshot().is_stale, "{of_turn}: the agent was sent the history");
        }
    }

    #[test]
    fn a_branch_keeps_the_messages_that_clients_add_while_its_entries_are_read() {
        let session = session();
        let known = session.entries().known();
        session.append(&[Message::user("early")]).expect("room");
        let early = session.doc().unsaved.values().cloned().collect();
        let list = session.prepare_replacement();
        session.append(&[Message::user("written"), Message::user("removed"), Message::user("late")]).expect("room");
        session.doc().note_written(&[0, 1, 2], 0..0);
        let removed = entry("removed");
        assert!(session.remove_message(2, &removed, true));

        let before = Replacement { entries: vec![entry("chain")], added: early, is_branch: true };
        let mut note = note(known);
        note.success.as_mut().expect("success").before = Some(before);
        session.note_turn(note);

        let entries = session.doc().unsaved.clone();
        let texts: Vec<_> = entries.values().map(|entry| entry.to_message().map(|message| message.text())).collect();
        let texts: Vec<_> = texts.iter().map(|text| text.as_deref().unwrap_or("the turn")).collect();
        assert_eq!(texts, ["chain", "early", "written", "late", "the turn"]);
        assert_eq!((list.known().end, session.doc().replaced.clone()), (1, 0..4));
        assert_eq!(session.entries().unseen(), 5..9, "all but the chain");
    }

    #[test]
    fn a_branch_keeps_its_entries_if_another_replica_changes_them_while_they_are_read() {
        for removes in [false, true] {
            let session = session();
            session.append(&[Message::user("mine")]).expect("room");
            let mine = session.doc().unsaved[&0].clone();
            let known = session.entries().known();
            let mut theirs = session.doc().blank();
            if removes {
                let mut stored = session.doc().clone();
                stored.unsaved.clear();
                session.doc().note_written(&[0], 0..0);
                session.note_stored(Version(1), stored.clone());
                theirs = SessionDoc { bytes: 0, ..stored };
            } else {
                theirs.push(entry("theirs"));
                theirs.unsaved.clear();
            }

            session.prepare_replacement();
            session.update_from(Version(2), theirs);
            let before = Replacement { entries: vec![entry("chain")], added: vec![mine], is_branch: true };
            let mut note = note(known);
            note.success.as_mut().expect("success").before = Some(before);
            session.note_turn(note);

            let doc = session.doc().clone();
            let unsaved: Vec<u64> = doc.unsaved.keys().copied().collect();
            assert_eq!(unsaved, if removes { vec![1] } else { vec![1, 2] }, "{removes}");
            assert_eq!((doc.first, doc.replaced, doc.seen, doc.stale), (0, 0..0, 0, true), "{removes}");
        }
    }
}
