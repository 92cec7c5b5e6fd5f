//! What was said in a session: its entries read as messages for the agent, and as items for its owner.
//!
//! Entries name runs, so this stands above both sessions and runs. Not here: what of it is sent with a turn
//! ([`super::context`]), and entries in the store ([`crate::sessions::entries`]).

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_core::call::SessionItem;
use interlingua_core::model::{Message, MessageType};
use interlingua_core::{End, Fault, Run, RunId, run};

use crate::agent::HistoryLimit;
use crate::runs::RunTable;
use crate::sessions::{Entry, MessageOrigin, Session, SessionDoc, SessionEntries, input_id, sizes, windows};

/// The most turns that a session begins with that branches off.
const MAX_CHAIN_TURNS: usize = 1000;

/// A message that was said before.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(crate) message: Message,
    pub(crate) origin: MessageOrigin,
}

/// What was said before, as far as it is sent again.
#[derive(Default)]
pub(crate) struct Past {
    pub(super) messages: Vec<Said>,
    /// True if older turns exceed the limit.
    pub(crate) is_cut: bool,
}

/// Reads what was said in sessions.
pub(crate) struct Transcripts {
    runs: Arc<RunTable>,
}

impl Transcripts {
    pub(crate) const fn new(runs: Arc<RunTable>) -> Self {
        Self { runs }
    }

    fn entries(&self) -> &SessionEntries {
        self.runs.sessions().entries()
    }

    /// The messages of a session, the latest ones within a limit.
    pub(crate) async fn history(
        &self,
        session: &Session,
        doc: &SessionDoc,
        limit: HistoryLimit,
    ) -> Result<Past, Fault> {
        let mut turns = Vec::new();
        let mut bytes = 0;
        let mut is_cut = doc.is_cut;
        'windows: for indices in windows(doc, true) {
            for (_, entry) in self.entries().read(session, doc, indices).await?.into_iter().rev() {
                let Some(messages) = self.messages_of(&entry).await? else { continue };
                bytes += size_of(&messages);
                let is_needed = turns.is_empty() && asks(&messages);
                if turns.len() >= limit.turns || (bytes > limit.bytes && !is_needed) {
                    is_cut = true;
                    break 'windows;
                }
                turns.push(messages);
            }
        }

        Ok(Past { messages: without_half_pairs(turns.into_iter().rev().flatten().collect()), is_cut })
    }

    /// The messages up to and in a run, along the chain of runs it belongs to, within a limit.
    pub(super) async fn chain(&self, last: RunId, limit: HistoryLimit) -> Result<Past, Fault> {
        let HistoryLimit { turns: max_turns, bytes: max_bytes } = limit.of_chains();
        let mut turns = Vec::new();
        let mut bytes = 0;
        let (mut next, mut first) = (Some(last), last);
        let mut is_cut = false;
        while let Some(id) = next {
            let Some(handle) = self.runs.find(id).await? else { break };
            let (messages, previous) = handle.view(|view| {
                let run = view.run();
                let messages: Vec<Said> = if is_good(run) || id == last {
                    (0..run.turns.len()).flat_map(|turn| turn_messages(id, run, turn)).collect()
                } else {
                    Vec::new()
                };
                (messages, view.info.previous)
            });

            bytes += size_of(&messages);
            let is_needed = turns.is_empty() && asks(&messages);
            if turns.len() >= max_turns || (bytes > max_bytes && !is_needed) {
                is_cut = true;
                break;
            }
            turns.push(messages);
            (next, first) = (previous, id);
        }

        if !is_cut {
            let beginning = self.beginning(first).await?;
            let said = beginning.iter().filter_map(said_in).collect::<Vec<_>>();
            is_cut = bytes + size_of(&said) > max_bytes;
            turns.extend((!is_cut).then_some(said));
        }

        Ok(Past { messages: without_half_pairs(turns.into_iter().rev().flatten().collect()), is_cut })
    }

    /// The turns up to and in a run, along the chain of runs it belongs to: the entries of a session that branches off
    /// there.
    async fn chain_entries(&self, last: RunId) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        let (mut next, mut first) = (Some(last), last);
        while let Some(id) = next.filter(|_| entries.len() < MAX_CHAIN_TURNS) {
            let Some(handle) = self.runs.find(id).await? else { break };
            next = handle.view(|view| {
                let run = view.run();
                if is_good(run) || id == last {
                    let turns = (0..u32::try_from(run.turns.len()).unwrap_or(u32::MAX)).rev();
                    entries.extend(turns.map(|turn| Entry::Turn { run: id, turn }));
                }
                view.info.previous
            });
            first = id;
        }

        if next.is_none() {
            entries.extend(self.beginning(first).await?.into_iter().rev());
        }
        entries.reverse();
        Ok(entries)
    }

    /// What a client said that was said before the first run of a session. Empty for every other run.
    async fn beginning(&self, run: RunId) -> Result<Vec<Entry>, Fault> {
        let Some(handle) = self.runs.find(run).await? else { return Ok(Vec::new()) };
        let session = self.runs.session_of(&handle).await?;
        let doc = session.doc().clone();

        let mut messages = Vec::new();
        for indices in windows(&doc, false) {
            for (_, entry) in self.entries().read(&session, &doc, indices).await? {
                if matches!(entry, Entry::Turn { .. }) {
                    return Ok(if entry.is_turn_of(run) { messages } else { Vec::new() });
                }
                messages.push(entry);
            }
        }

        // The run has ended otherwise than well, or has not ended yet.
        Ok(if doc.latest == Some(run) { messages } else { Vec::new() })
    }

    /// The messages that the agent has not received: those put into the session, and turns it was not called in.
    pub(super) async fn unseen(&self, session: &Session, doc: &SessionDoc) -> Result<Vec<Said>, Fault> {
        let indices = doc.seen.clamp(doc.first.min(doc.next), doc.next)..doc.next;
        let mut unseen = Vec::new();
        for (_, entry) in self.entries().read(session, doc, indices).await? {
            unseen.extend(self.messages_of(&entry).await?.unwrap_or_default());
        }
        Ok(unseen)
    }

    /// The messages of an entry. `None`: its run is gone.
    async fn messages_of(&self, entry: &Entry) -> Result<Option<Vec<Said>>, Fault> {
        match entry {
            Entry::Turn { run, turn } => {
                let handle = self.runs.find(*run).await?;
                Ok(handle.map(|handle| handle.view(|view| turn_messages(*run, view.run(), *turn as usize))))
            }
            Entry::Message { .. } => Ok(Some(said_in(entry).into_iter().collect())),
        }
    }

    /// The entries that a session has to have before a turn is added to it, if those are others than it has. A session
    /// that has just branched off gets all entries before the branch. One that is stored must not name runs that end
    /// with a `connection`. A failure is only logged: the turn itself succeeded.
    pub(super) async fn entries_before(
        &self,
        session: &Session,
        branch: Option<RunId>,
        stored: bool,
        connection: bool,
    ) -> Option<Vec<Entry>> {
        let begins = session.doc().is_empty();
        let known = if stored && connection { self.entries().read_all(session).await } else { Ok(Vec::new()) };
        let known = known.inspect_err(log_unknown).unwrap_or_default();
        let has_unstored = known.iter().any(|entry| self.is_unstored(entry));
        if stored {
            session.store_from_now_on();
        }

        let entries = match branch {
            Some(run) if begins => self.chain_entries(run).await,
            _ if has_unstored => Ok(known),
            _ => return None,
        };

        let entries = match entries {
            Ok(entries) if stored => self.with_unstored_inlined(entries).await,
            entries => entries,
        };

        entries.inspect_err(log_unknown).ok()
    }

    /// True if an entry names a run that ends with its connection.
    fn is_unstored(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Turn { run, .. } if self.runs.unstored().get(*run).is_some())
    }

    /// The same entries, with runs that are not stored replaced by their messages: for a session that outlives them.
    async fn with_unstored_inlined(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, Fault> {
        let mut inlined = Vec::with_capacity(entries.len());
        for entry in entries {
            if self.is_unstored(&entry) {
                let messages = self.messages_of(&entry).await?.unwrap_or_default();
                inlined.extend(messages.iter().map(|said| Entry::from_message(&said.message)));
            } else {
                inlined.push(entry);
            }
        }
        Ok(inlined)
    }

    /// Items of a session, oldest first: at least so many from one end, if there are.
    pub(crate) async fn items(&self, session: &Session, newest: bool, least: usize) -> Result<Vec<SessionItem>, Fault> {
        let doc = session.doc().clone();
        let mut pieces: Vec<Vec<SessionItem>> = Vec::new();
        let mut count = 0;
        'windows: for indices in windows(&doc, newest) {
            if count >= least {
                break;
            }
            let mut entries = self.entries().read(session, &doc, indices).await?;
            if newest {
                entries.reverse();
            }
            for (_, entry) in entries {
                if count >= least {
                    break 'windows;
                }
                let mut items = self.items_of(&entry).await?;
                items.retain(|item| !doc.removed.contains(&item.id));
                count += items.len();
                pieces.push(items);
            }
        }

        if newest {
            pieces.reverse();
        }

        Ok(pieces.into_iter().flatten().collect())
    }

    async fn items_of(&self, entry: &Entry) -> Result<Vec<SessionItem>, Fault> {
        match entry {
            Entry::Message { id, .. } => {
                let item = |message| SessionItem { id: id.clone(), run: None, message };
                Ok(entry.to_message().map(item).into_iter().collect())
            }
            Entry::Turn { run, turn } => {
                let Some(handle) = self.runs.find(*run).await? else { return Ok(Vec::new()) };
                Ok(handle.view_safe(|view| turn_items(*run, *turn, view.run())))
            }
        }
    }

    /// Removes an item from a session. False: there is none of that id.
    pub(crate) async fn remove_item(&self, session: &Session, item: &str) -> Result<bool, Fault> {
        let doc = session.doc().clone();
        if doc.removed.contains(item) {
            return Ok(false);
        }

        for indices in windows(&doc, true) {
            for (index, entry) in self.entries().read(session, &doc, indices).await? {
                match &entry {
                    Entry::Message { id, .. } if id == item => {
                        self.entries().delete(session, index).await?;
                        session.doc().remove_message(index, entry.bytes());
                        return Ok(true);
                    }
                    // The ids of a turn's items name its run.
                    Entry::Turn { run, .. }
                        if item.contains(&run.0.simple().to_string())
                            && self.items_of(&entry).await?.iter().any(|known| known.id == item) =>
                    {
                        session.doc().remove_turn_item(item);
                        return Ok(true);
                    }
                    _ => {}
                }
            }
        }

        Ok(false)
    }
}

/// The message of an entry that is one.
fn said_in(entry: &Entry) -> Option<Said> {
    let origin = MessageOrigin::Entry(entry.message_id().to_owned());
    entry.to_message().map(|message| Said { message, origin })
}

fn log_unknown(fault: &Fault) {
    tracing::error!("cannot read the history of a session: {fault}");
}

/// True if a run is part of the history of those after it.
const fn is_good(run: &Run) -> bool {
    matches!(run.end, Some(End::Completed | End::Incomplete) | None)
}

/// The messages of one turn, as history: errors are not part of it, and neither is what only the agent's own protocol
/// has a word for.
fn turn_messages(id: RunId, run: &Run, turn: usize) -> Vec<Said> {
    let Some(asked) = run.turns.get(turn) else { return Vec::new() };
    let index = u32::try_from(turn).unwrap_or(u32::MAX);
    let input = asked.input.iter().enumerate().map(|(place, message)| Said {
        message: message.clone(),
        origin: MessageOrigin::Input { run: id, turn: index, place },
    });
    let answer = run.messages_of(turn).iter().enumerate().filter(|(_, message)| is_history(&message.kind));
    let answer = answer.map(|(place, message)| Said {
        message: message.to_model(),
        origin: MessageOrigin::Answer { run: id, place: asked.first_message + place },
    });
    input.chain(answer).collect()
}

const fn is_history(kind: &MessageType) -> bool {
    use MessageType::{Error, Heartbeat, McpListTools, ProtocolEvent};
    !matches!(kind, Error | Heartbeat | McpListTools | ProtocolEvent)
}

fn size_of(messages: &[Said]) -> usize {
    messages.iter().map(|said| sizes::message(&said.message)).sum()
}

/// The items of one turn. Each has an id of its own.
fn turn_items(id: RunId, turn: u32, run: &Run) -> Vec<SessionItem> {
    let index = turn as usize;
    let Some(asked) = run.turns.get(index) else { return Vec::new() };
    let input = asked.input.iter().enumerate().map(|(place, message)| SessionItem {
        id: input_id(id, turn, place),
        run: Some(id),
        message: message.clone(),
    });
    let is_item = |message: &run::Message| !matches!(message.kind, MessageType::Error | MessageType::ProtocolEvent);
    let answer = run.messages_of(index).iter().enumerate().filter(|(_, message)| is_item(message));
    let answer = answer.map(|(place, message)| SessionItem {
        id: id.message_id(asked.first_message + place),
        run: Some(id),
        message: message.to_model(),
    });
    input.chain(answer).collect()
}

/// True for a turn that calls the client or waits for a decision: the answer makes no sense to an agent that does not
/// get the question, however large that is.
fn asks(messages: &[Said]) -> bool {
    let is_question = |kind: &MessageType| matches!(kind, MessageType::FunctionCall | MessageType::McpApprovalRequest);
    messages.iter().any(|said| is_question(&said.message.kind))
}

/// Drops outputs whose call was cut off: agents refuse an output without its call.
fn without_half_pairs(messages: Vec<Said>) -> Vec<Said> {
    let mut called = HashSet::new();
    messages
        .into_iter()
        .filter(|said| {
            called.extend(said.message.calls().map(|call| call.call_id));
            said.message.outputs().all(|output| called.contains(&output.call_id))
        })
        .collect()
}
