//! What an agent is asked: the new input, what was said before where it has to be told, and the answers to what it
//! waits for (Responses page, section 15; human-in-the-loop page, section 3).

use interlingua_core::answer::{self, Answer, AnswerPolicy, AskContext};
use interlingua_core::call::Thread;
use interlingua_core::event::Millis;
use interlingua_core::model::{AgentRequest, Input, Message, MessageType};
use interlingua_core::pending::Pending;
use interlingua_core::{End, Fault, FaultKind, Json, RunId};

use super::driver::Turn;
use super::entries::{Entry, said};
use super::session::{Doc, Session};
use super::{Agent, Engine, History, clock, names};

/// A branch is told of so many turns before it, at least.
const MAX_CHAIN: usize = 1000;

/// What is needed to find out what to ask.
pub(super) struct Preparing<'a> {
    pub(super) session: &'a Session,
    pub(super) agent: &'a Agent,
    pub(super) request: &'a AgentRequest,
    pub(super) preamble: &'a [Message],
    pub(super) answers: &'a [Answer],
    pub(super) terms: AnswerPolicy,
    pub(super) thread: &'a Thread,
}

/// What to ask.
pub(super) struct Prepared {
    /// The whole request.
    pub(super) request: AgentRequest,
    /// The session's id as the upstream knows it.
    pub(super) upstream_id: String,
    /// What the connector remembered.
    pub(super) memory: Json,
    /// The items that are answered by it.
    pub(super) answered: Vec<Pending>,
    /// The runs whose last open item it closes.
    pub(super) freed: Vec<RunId>,
    /// True if an item was decided: the session has to be safe before the agent is asked.
    pub(super) decided: bool,
    /// What the client said, if it is another than was told at first.
    pub(super) said: Option<Input>,
}

/// What comes of preparing.
pub(super) enum Outcome {
    /// Ask.
    Ready(Box<Prepared>),
    /// The session waits for answers first, to a question of this run.
    Waiting(Option<RunId>),
}

impl Outcome {
    /// For a turn that was told of already: one that may not be taken fails.
    pub(super) fn ready(self) -> Result<Prepared, Fault> {
        match self {
            Self::Ready(prepared) => Ok(*prepared),
            Self::Waiting(_) => Err(waiting()),
        }
    }
}

/// The session waits for answers first.
pub(super) fn waiting() -> Fault {
    Fault::new(FaultKind::Waiting, "the session waits for an answer to what the agent asked")
}

impl Engine {
    /// Finds out what to ask. The caller has the session's turn.
    pub(super) async fn prepare(&self, preparing: Preparing<'_>) -> Result<Outcome, Fault> {
        let Preparing { session, agent, request, preamble, answers, terms, thread } = preparing;
        let now = clock::now();
        let doc = session.doc().clone();
        let strict = doc.kept || matches!(thread, Thread::After(_));
        let branch = match thread {
            Thread::After(run) => (!doc.ends_with(*run)).then_some(*run),
            _ => None,
        };
        let whole = match agent.history {
            History::Gateway => true,
            History::Upstream => strict && (doc.stale || branch.is_some()),
        };
        let mut upstream_id = doc.upstream_id.clone().unwrap_or_else(|| doc.id.clone());
        let mut memory = doc.memory.clone();
        if agent.history == History::Upstream && whole {
            // The upstream remembers something else: it is told all anew, as a session it has not seen.
            if !doc.is_empty() {
                upstream_id = names::session(&session.owner, &clock::fresh().to_string(), None);
            }
            memory = Json::null();
        }
        let before = if whole {
            match branch {
                Some(run) => self.chain(run, agent).await?,
                None => self.said_before(session, &doc, agent).await?,
            }
        } else if strict {
            // What was put into the session since the upstream was asked last.
            self.unseen(session, &doc).await?
        } else {
            Vec::new()
        };
        // Last of all, so that a request that is given up while its history is read answers nothing. The session is told
        // of what was decided in one piece: refused requests leave no trace in it.
        let outcome = session.doc().waiting.take(request.input.clone(), answers.to_vec(), terms, now);
        let (input, answered, freed) = match outcome {
            answer::Outcome::Send { input, answered, freed } => (input, answered, freed),
            answer::Outcome::Wait => {
                let run = session.doc().waiting.open().next().map(|open| open.run).or(doc.latest);
                // Answers that were collected meanwhile survive a restart too.
                self.save_session(session).await?;
                return Ok(Outcome::Waiting(run));
            }
            answer::Outcome::Refused(fault) => return Err(fault),
        };
        let decided = !answered.is_empty();
        let said = decided.then(|| input.clone());
        let mut asked = request.clone();
        asked.input = if preamble.is_empty() && before.is_empty() {
            input
        } else {
            preamble.iter().cloned().chain(join(before, input)).collect()
        };
        asked.session_id = Some(upstream_id.clone());
        // Without both ids all anonymous clients share one lock upstream (Agent API, section 10). And an upstream that
        // waits for an answer knows its session by both: a client that names no user means the one named before.
        let user = asked.user_id.take().or(doc.user_id).unwrap_or_else(|| session.own_user());
        asked.user_id = Some(session.upstream_user(&user, &upstream_id));
        session.doc().user_id.get_or_insert(user);
        Ok(Outcome::Ready(Box::new(Prepared { request: asked, upstream_id, memory, answered, freed, decided, said })))
    }

    /// What was said in a session, bounded as the agent's setting says.
    async fn said_before(&self, session: &Session, doc: &Doc, agent: &Agent) -> Result<Vec<Message>, Fault> {
        let mut turns = Vec::new();
        let mut bytes = 0;
        'windows: for places in Self::windows(doc, true) {
            for (_, entry) in self.entries(session, doc, places).await?.into_iter().rev() {
                let Some(messages) = self.messages_of(&entry).await? else { continue };
                bytes += messages.iter().map(weight).sum::<usize>();
                if turns.len() >= agent.history_limit.turns || bytes > agent.history_limit.bytes {
                    break 'windows;
                }
                turns.push(messages);
            }
        }
        Ok(whole_pairs(turns.into_iter().rev().flatten().collect()))
    }

    /// What was said up to and in a run, along the chain it belongs to.
    async fn chain(&self, last: RunId, agent: &Agent) -> Result<Vec<Message>, Fault> {
        let mut turns = Vec::new();
        let mut bytes = 0;
        let mut next = Some(last);
        while let Some(id) = next {
            let Some(handle) = self.handle(id).await? else { break };
            let (messages, previous) = handle.view(|view| {
                let run = view.run();
                let messages: Vec<Message> = if is_good(run) || id == last {
                    (0..run.turns.len()).flat_map(|turn| turn_messages(run, turn)).collect()
                } else {
                    Vec::new()
                };
                (messages, view.info.previous)
            });
            bytes += messages.iter().map(weight).sum::<usize>();
            if turns.len() >= agent.history_limit.turns.max(MAX_CHAIN)
                || bytes > agent.history_limit.bytes.max(16 << 20)
            {
                break;
            }
            turns.push(messages);
            next = previous;
        }
        Ok(whole_pairs(turns.into_iter().rev().flatten().collect()))
    }

    /// What the upstream was not told yet: messages that were put there, and turns it was not asked in.
    async fn unseen(&self, session: &Session, doc: &Doc) -> Result<Vec<Message>, Fault> {
        let mut unseen = Vec::new();
        for (_, entry) in
            self.entries(session, doc, doc.seen.clamp(doc.first.min(doc.next), doc.next)..doc.next).await?
        {
            unseen.extend(self.messages_of(&entry).await?.unwrap_or_default());
        }
        Ok(unseen)
    }

    /// What an entry says. None: its run is gone.
    async fn messages_of(&self, entry: &Entry) -> Result<Option<Vec<Message>>, Fault> {
        match entry {
            Entry::Turn { run, turn } => {
                let handle = self.handle(*run).await?;
                Ok(handle.map(|handle| handle.view(|view| turn_messages(view.run(), *turn as usize))))
            }
            Entry::Said { .. } => Ok(Some(entry.message().into_iter().collect())),
        }
    }

    /// The turns up to and in a run, along the chain it belongs to: what went before in a session that branches off
    /// there.
    pub(super) async fn turns_of_chain(&self, last: RunId) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        let mut next = Some(last);
        while let Some(id) = next.filter(|_| entries.len() < MAX_CHAIN) {
            let Some(handle) = self.handle(id).await? else { break };
            next = handle.view(|view| {
                let run = view.run();
                if is_good(run) || id == last {
                    let turns = (0..u32::try_from(run.turns.len()).unwrap_or(u32::MAX)).rev();
                    entries.extend(turns.map(|turn| Entry::Turn { run: id, turn }));
                }
                view.info.previous
            });
        }
        entries.reverse();
        Ok(entries)
    }

    /// What was said in the session before this turn, if that is another than stands in it: a session that has just
    /// branched off has all that went before, and one that is stored does not name what goes with a connection.
    pub(super) async fn entries_before(&self, turn: &Turn) -> Option<Vec<Entry>> {
        let begins = turn.session.doc().is_empty();
        let stays = turn.stored && turn.connection.is_some();
        let known = if stays { self.all_entries(&turn.session).await } else { Ok(Vec::new()) };
        let known = known.inspect_err(|fault| tracing::error!("what went before is not known: {fault}"));
        let known = known.unwrap_or_default();
        let outlives = known.iter().any(|entry| self.is_unstored(entry));
        if turn.stored {
            turn.session.write_down();
        }
        let entries = match turn.thread {
            Thread::After(run) if begins => self.turns_of_chain(run).await,
            _ if outlives => Ok(known),
            _ => return None,
        };
        let entries = match entries {
            Ok(entries) if turn.stored => self.spelled_out(entries).await,
            entries => entries,
        };
        entries.inspect_err(|fault| tracing::error!("what went before is not known: {fault}")).ok()
    }

    /// Whether an entry names a run that goes with its connection.
    pub(super) fn is_unstored(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Turn { run, .. } if self.unstored().get(*run).is_some())
    }

    /// The same entries, with the messages of runs that are not stored in the place of those runs: for a session that
    /// outlives them.
    pub(super) async fn spelled_out(&self, entries: Vec<Entry>) -> Result<Vec<Entry>, Fault> {
        let mut spelled = Vec::with_capacity(entries.len());
        for entry in entries {
            if self.is_unstored(&entry) {
                spelled.extend(self.messages_of(&entry).await?.unwrap_or_default().iter().map(said));
            } else {
                spelled.push(entry);
            }
        }
        Ok(spelled)
    }
}

/// Whether what a run said is part of what was said.
const fn is_good(run: &interlingua_core::Run) -> bool {
    matches!(run.end, Some(End::Completed | End::Incomplete) | None)
}

/// What was said in one turn, as history: complaints are not part of it.
fn turn_messages(run: &interlingua_core::Run, turn: usize) -> Vec<Message> {
    let Some(asked) = run.turns.get(turn) else { return Vec::new() };
    let answer = run.messages_of(turn).iter().filter(|message| {
        !matches!(message.kind, MessageType::Error | MessageType::Heartbeat | MessageType::McpListTools)
    });
    asked.input.iter().cloned().chain(answer.map(interlingua_core::run::Message::to_model)).collect()
}

/// Drops outputs whose call was cut off: half a pair is worse than none.
fn whole_pairs(messages: Vec<Message>) -> Vec<Message> {
    let mut called = std::collections::HashSet::new();
    messages
        .into_iter()
        .filter(|message| {
            called.extend(message.calls().map(|call| call.call_id));
            message.outputs().all(|output| called.contains(&output.call_id))
        })
        .collect()
}

/// History, then what is new. System messages of this turn come first, as instructions do.
fn join(before: Vec<Message>, input: Input) -> Vec<Message> {
    let mut input: Vec<Message> = input.into_iter().collect();
    if before.is_empty() {
        return input;
    }
    use interlingua_core::model::Role;
    let leading = input.iter().take_while(|message| message.role == Some(Role::System)).count();
    let rest = input.split_off(leading);
    input.into_iter().chain(before).chain(rest).collect()
}

/// How much a message weighs, in bytes.
pub(super) fn weight(message: &Message) -> usize {
    Json::from_serialize(message).text().len()
}

/// Takes down what the agent asked at the end of a turn; answers what of it is open.
pub(super) fn ask(
    doc: &mut Doc,
    agent: &Agent,
    run: RunId,
    pending: Vec<Pending>,
    turn: &AskPolicy<'_>,
) -> Vec<Pending> {
    let asked = AskContext {
        run,
        now: turn.now,
        terms: turn.terms,
        tools: turn.tools,
        approval_extension: agent.approval_extension,
    };
    // The agent has gone on without what it was not given of the turn before.
    doc.waiting.withdraw(run);
    doc.waiting.ask(pending, &asked);
    doc.waiting.pending_of(run)
}

/// How a turn asked.
pub(super) struct AskPolicy<'a> {
    pub(super) now: Millis,
    pub(super) terms: AnswerPolicy,
    pub(super) tools: &'a [Json],
}
