//! What a session waits for, and what becomes of a request in the face of it: the rules of section 3.
//!
//! Pure bookkeeping, kept by the engine in the session's document, so that it survives a restart. A request that is
//! refused leaves no trace in it. Not here: whose session it is, and sending anything anywhere.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::answer::decide::{Decided, Undecided, decide};
use crate::answer::{
    Answer, AnswerPolicy, AskPolicy, Given, NOT_TAKEN, NOT_WAITING, OrphanPolicy, Said, fits, native, offer, taken,
};
use crate::event::Millis;
use crate::fault::{Fault, FaultKind};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{Input, Message, MessageType, Role};
use crate::pending::{Decision, Pending, PendingKind, time};

/// Items open at once. More come from an upstream that has lost count; the oldest tools go first.
const MAX_OPEN: usize = 256;
/// Ids of answered items, kept to recognise repetitions.
const MAX_CLOSED: usize = 256;

/// What a session waits for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    open: Vec<Open>,
    /// On their way upstream, until it accepted them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sent: Vec<Open>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    closed: VecDeque<String>,
}

/// One open item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The item; its `decisions` are cut down to what the upstream takes.
    pub item: Pending,
    /// The run that asked.
    pub run: RunId,
    /// When it can only be cancelled any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Millis>,
    /// Schema of the arguments, where the request named the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Json>,
    /// Whether the answer carries the extension.
    #[serde(default)]
    pub extension: bool,
    /// What was decided, while other items are still waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
    /// The message it was decided in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Said>,
}

impl Open {
    fn waits(&self) -> bool {
        self.decided.is_none()
    }

    fn is_expired(&self, now: Millis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// True if nothing goes upstream before this is answered. Tools block nobody who is not asked for them.
    fn blocks(&self, asking: AskPolicy) -> bool {
        self.waits() && (self.item.kind != PendingKind::Tool || asking == AskPolicy::OneByOneWithTools)
    }

    fn message(&self) -> Option<Message> {
        let mut message = self.decided.as_ref()?.message(&self.item, self.extension);
        if let Some(said) = &self.said {
            message.id.clone_from(&said.id);
            message.metadata.clone_from(&said.metadata);
        }
        Some(message)
    }
}

/// How a run asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The run.
    pub run: RunId,
    /// Now.
    pub now: Millis,
    /// The terms of the route it was begun over.
    pub terms: AnswerPolicy,
    /// The tools its request named.
    pub tools: &'a [Json],
    /// Whether the upstream takes more than the plain native answer.
    pub approval_extension: bool,
}

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It goes upstream. What it answered is closed from now on; call [`Waiting::settled`] when the upstream has
    /// accepted it, [`Waiting::reopen`] if it did not.
    Goes {
        /// The input, its answers in native form; the questions are not in it ([`super::with_requests`]).
        input: Input,
        /// What it answers.
        answered: Vec<Pending>,
        /// The runs that wait for nothing any more: their last open item was closed by this.
        freed: Vec<RunId>,
    },
    /// Nothing goes upstream: the first of [`Waiting::open`] is to be shown. Either nothing was answered, or the
    /// answers are kept until the last one is there.
    Waits,
    /// It is refused, and nothing has changed.
    Refused(Fault),
}

/// Where an answer was found.
struct Found {
    answer: Answer,
    /// Its message in the input.
    place: Option<usize>,
    is_output: bool,
}

impl Waiting {
    /// The items that are waited for, in the order they were asked.
    pub fn open(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| open.waits())
    }

    /// The items of one run that are waited for.
    #[must_use]
    pub fn pending_of(&self, run: RunId) -> Vec<Pending> {
        self.open().filter(|open| open.run == run).map(|open| open.item.clone()).collect()
    }

    /// The runs that wait for something, in the order they asked.
    #[must_use]
    pub fn runs(&self) -> Vec<RunId> {
        let mut runs: Vec<RunId> = Vec::new();
        for open in self.open() {
            if !runs.contains(&open.run) {
                runs.push(open.run);
            }
        }
        runs
    }

    /// True if new input would not reach the upstream (rule 5): tools do not block.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.open().any(|open| open.blocks(AskPolicy::Together))
    }

    /// True if there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sent.is_empty() && self.closed.is_empty()
    }

    /// Adds what a turn ended with. An item asked again under its old id takes the old one's place.
    pub fn ask(&mut self, items: Vec<Pending>, asked: &Asked<'_>) {
        for mut item in items {
            item.decisions = offer(&item, taken(&item, asked.approval_extension));
            if item.expires_at.is_none()
                && item.kind != PendingKind::Tool
                && let Some(ttl) = asked.terms.ttl
            {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                item.expires_at = Some(time::spell(asked.now.saturating_add(ttl)));
            }
            self.open.retain(|open| open.item.id != item.id);
            self.closed.retain(|id| *id != item.id);
            self.open.push(Open {
                run: asked.run,
                expires: item.expires(),
                parameters: parameters(asked.tools, &item.name),
                extension: asked.approval_extension,
                decided: None,
                said: None,
                item,
            });
        }
        while self.open.len() > MAX_OPEN {
            let oldest = self.open.iter().position(|open| open.item.kind == PendingKind::Tool).unwrap_or(0);
            self.open.remove(oldest);
        }
    }

    /// Takes a request: its input, and answers its protocol tells beside it.
    pub fn take(&mut self, input: impl Into<Input>, answers: Vec<Answer>, terms: AnswerPolicy, now: Millis) -> Outcome {
        let mut next = self.clone();
        match next.answered(input.into(), answers, terms, now) {
            Ok(mut outcome) => {
                if let Outcome::Goes { freed, .. } = &mut outcome {
                    let waiting = next.runs();
                    *freed = self.runs().into_iter().filter(|run| !waiting.contains(run)).collect();
                }
                *self = next;
                outcome
            }
            Err(fault) => Outcome::Refused(fault),
        }
    }

    /// Withdraws what a run asked: nobody decides it any more. True if it asked something.
    pub fn withdraw(&mut self, run: RunId) -> bool {
        let (gone, open) = std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(|open| open.run == run);
        self.open = open;
        let asked = !gone.is_empty();
        self.closed.extend(gone.into_iter().map(|open| open.item.id));
        while self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
        asked
    }

    /// The upstream has accepted the answers: they cannot be given again.
    pub fn settled(&mut self) {
        self.sent.clear();
    }

    /// The upstream did not accept the answers: their items are open again (rule 3).
    pub fn reopen(&mut self) {
        for mut open in std::mem::take(&mut self.sent).into_iter().rev() {
            open.decided = None;
            open.said = None;
            self.closed.retain(|id| *id != open.item.id);
            self.open.insert(0, open);
        }
    }

    fn answered(
        &mut self,
        input: Input,
        answers: Vec<Answer>,
        terms: AnswerPolicy,
        now: Millis,
    ) -> Result<Outcome, Fault> {
        let found = self.spread(find(&input, answers));
        let mut seen = HashSet::new();
        let mut places = Vec::new();
        let mut orphans = Vec::new();
        let mut repeated = None;
        for found in found {
            let id = &found.answer.id;
            let Some(at) = self.find(&found) else {
                if self.closed.contains(id) {
                    repeated = Some(found.answer.id);
                } else if !found.is_output {
                    orphans.extend(orphan(&found, terms.orphans)?);
                }
                continue;
            };
            let open = &self.open[at];
            if !seen.insert(at) {
                return Err(Fault::new(FaultKind::Invalid, format!("'{id}' is answered twice")).with_code(NOT_TAKEN));
            }
            if !open.waits() {
                return Err(answered_already(id));
            }
            self.open[at].decided = Some(judge(open, &found.answer, now)?);
            self.open[at].said = found.answer.said;
            places.extend(found.place.map(|place| (place, at)));
        }
        // Clients that send their whole history repeat in it what was answered long ago.
        if let Some(id) = repeated
            && seen.is_empty()
            && !is_history(&input, &id)
        {
            return Err(answered_already(&id));
        }
        let goes_at_once = terms.taken_one_by_one && !seen.is_empty();
        if !goes_at_once && !self.cancel_expired(now, terms.asking) {
            return match terms.asking {
                AskPolicy::Together if !seen.is_empty() => Err(self.left()),
                _ => Ok(Outcome::Waits),
            };
        }
        Ok(self.send(input, &places, orphans))
    }

    /// Moves what is decided to what is sent, and writes it into the input: in place where the client told it there,
    /// else in front.
    fn send(&mut self, input: Input, places: &[(usize, usize)], mut written: Vec<Message>) -> Outcome {
        // A client that says something else goes on without its tools.
        let goes_on =
            input.iter().any(|message| native(message).is_empty() && message.kind != MessageType::McpApprovalRequest);
        for (at, open) in self.open.iter().enumerate() {
            if places.iter().all(|(_, placed)| *placed != at) {
                written.extend(open.message());
            }
        }
        let input = if written.is_empty() && places.is_empty() {
            // Nearly always: nothing is written into it, and nobody copies it.
            input
        } else {
            for (place, message) in input.into_iter().enumerate() {
                let mut told = places.iter().filter(|(told, _)| *told == place).peekable();
                if told.peek().is_none() {
                    written.push(message);
                } else {
                    written.extend(told.filter_map(|(_, at)| self.open[*at].message()));
                }
            }
            written.into()
        };
        let (open, mut sent) = std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(Open::waits);
        self.closed.extend(sent.iter().map(|open| open.item.id.clone()));
        while self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
        let answered = sent.iter().map(|open| open.item.clone()).collect();
        // Tools that are gone on without are waited for again if this does not reach the upstream.
        let (left_out, open) = open.into_iter().partition(|open| goes_on && open.item.kind == PendingKind::Tool);
        self.open = open;
        sent.extend::<Vec<_>>(left_out);
        self.sent = sent;
        Outcome::Goes { input, answered, freed: Vec::new() }
    }

    /// The item an answer is for. Some front ends render approvals as tools, and answer them with the call's output.
    fn find(&self, found: &Found) -> Option<usize> {
        let id = found.answer.id.as_str();
        self.open.iter().position(|open| open.item.id == id).or_else(|| {
            let concerns =
                |open: &Open| open.item.kind != PendingKind::Tool && open.item.call_id.as_deref() == Some(id);
            self.open.iter().position(|open| found.is_output && concerns(open))
        })
    }

    fn left(&self) -> Fault {
        let left: Vec<&str> =
            self.open().filter(|open| open.blocks(AskPolicy::Together)).map(|open| open.item.id.as_str()).collect();
        let message = format!("everything that waits has to be answered at once: '{}' is not", left.join("', '"));
        Fault::new(FaultKind::Waiting, message).with_code(NOT_TAKEN)
    }

    /// Cancels what has expired, if that is all that is in the way (rule 7). True if nothing is in the way.
    fn cancel_expired(&mut self, now: Millis, asking: AskPolicy) -> bool {
        if self.open.iter().any(|open| open.blocks(asking) && !open.is_expired(now)) {
            return false;
        }
        for open in self.open.iter_mut().filter(|open| open.blocks(asking)) {
            open.decided = Some(Decided::new(Decision::Cancel));
        }
        true
    }

    /// An answer with one decision for each action of the payload answers the items of all of them (section 4).
    fn spread(&self, found: Vec<Found>) -> Vec<Found> {
        let mut spread = Vec::with_capacity(found.len());
        for found in found {
            let group = self.group(&found.answer);
            let Some(decisions) = decisions(&found.answer.given).filter(|list| list.len() == group.len()) else {
                spread.push(found);
                continue;
            };
            let mut said = found.answer.said;
            for (id, decision) in group.into_iter().zip(decisions) {
                let answer = Answer { id, given: Given::Payload(decision), said: said.clone() };
                spread.push(Found { answer, place: found.place, is_output: found.is_output });
                if let Some(said) = &mut said {
                    said.id = None;
                }
            }
        }
        spread
    }

    /// The open items that were asked with the same payload as this one, if there are several, from this one on.
    fn group(&self, answer: &Answer) -> Vec<String> {
        let Some(first) = self.open().position(|open| open.item.id == answer.id) else { return Vec::new() };
        let mut rest = self.open().skip(first);
        let Some(asked) = rest.next() else { return Vec::new() };
        if asked.item.payload.is_none() {
            return Vec::new();
        }
        let alike = rest.filter(|open| open.run == asked.run && open.item.payload == asked.item.payload);
        let group: Vec<String> = std::iter::once(asked).chain(alike).map(|open| open.item.id.clone()).collect();
        if group.len() > 1 { group } else { Vec::new() }
    }
}

fn judge(open: &Open, answer: &Answer, now: Millis) -> Result<Decided, Fault> {
    let decided = decide(&open.item, &answer.given, &open.item.decisions);
    if open.is_expired(now) {
        return match decided {
            Ok(decided) if decided.decision == Decision::Cancel => Ok(decided),
            _ => {
                let message = format!("'{}' has expired and can only be cancelled", answer.id);
                Err(Fault::new(FaultKind::Conflict, message).with_code(NOT_WAITING))
            }
        };
    }
    let decided = decided?;
    if let (Some(parameters), Some(arguments)) = (&open.parameters, &decided.arguments) {
        let arguments = Json::parse(arguments).ok_or(Undecided::WithoutArguments)?;
        fits(parameters, &arguments).map_err(Undecided::Misfit)?;
    }
    Ok(decided)
}

/// Answers told beside the input, then those in it. What the agent said after an answer makes the answer history.
fn find(input: &[Message], answers: Vec<Answer>) -> Vec<Found> {
    let beside = answers.into_iter().map(|answer| Found { answer, place: None, is_output: false });
    let news = input.iter().rposition(is_said_by_agent).map_or(0, |last| last + 1);
    let inside = input.iter().enumerate().skip(news).flat_map(|(place, message)| {
        let is_output = message.kind == MessageType::FunctionCallOutput;
        let first = message.id.clone();
        native(message).into_iter().enumerate().map(move |(nth, answer)| {
            let said = Said { id: first.clone().filter(|_| nth == 0), metadata: message.metadata.clone() };
            Found { answer: Answer { said: Some(said), ..answer }, place: Some(place), is_output }
        })
    });
    beside.chain(inside).collect()
}

/// True for what only comes after all answers before it were taken: not for the questions themselves, which clients
/// put in front of their answers.
fn is_said_by_agent(message: &Message) -> bool {
    match message.kind {
        MessageType::FunctionCall | MessageType::McpApprovalRequest => false,
        MessageType::Reasoning => true,
        ref kind if kind.is_call() => true,
        _ => message.role == Some(Role::Assistant),
    }
}

/// True if the input holds the call as well as its output.
fn is_history(input: &[Message], id: &str) -> bool {
    input.iter().any(|message| message.calls().any(|call| call.call_id == id))
}

fn answered_already(id: &str) -> Fault {
    Fault::new(FaultKind::Conflict, format!("'{id}' was answered or withdrawn already")).with_code(NOT_WAITING)
}

/// An answer to an item nobody knows (section 9). Native answers stay where they are.
fn orphan(found: &Found, orphans: OrphanPolicy) -> Result<Option<Message>, Fault> {
    let id = found.answer.id.as_str();
    if orphans == OrphanPolicy::Refuse {
        let message = format!("nothing waits for an answer to '{id}'");
        return Err(Fault::new(FaultKind::Conflict, message).with_code(NOT_WAITING));
    }
    let mut data = Extra::new();
    data.set("id", Json::from_serialize(id));
    let Some(item) = Pending::read(&Json::from_serialize(&data)) else { return Ok(None) };
    let decided = decide(&item, &found.answer.given, super::NATIVE_DECISIONS)?;
    Ok(found.place.is_none().then(|| decided.message(&item, false)))
}

fn decisions(given: &Given) -> Option<Vec<Json>> {
    let payload = match given {
        Given::Payload(payload) => {
            payload.decode::<String>().map_or_else(|| Some(payload.clone()), |text| Json::parse(&text))
        }
        Given::Text(text) => Json::parse(text.trim()),
        Given::Decided { payload, .. } => payload.clone(),
    }?;
    let fields: Extra = if payload.is_object() { payload.decode()? } else { return None };
    fields.get("decisions")?.decode()
}

/// The schema of a tool's arguments, in the native form of a tool.
fn parameters(tools: &[Json], name: &str) -> Option<Json> {
    tools.iter().find_map(|tool| {
        let tool: Extra = tool.decode()?;
        let function: Extra = tool.get("function").and_then(Json::decode).unwrap_or(tool);
        let known: String = function.get("name")?.decode()?;
        (known == name).then(|| function.get("parameters").cloned())?
    })
}

#[cfg(test)]
mod tests;
