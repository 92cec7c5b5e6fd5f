//! The pending items of a session, and their effect on a new request: the rules in docs/human-in-the-loop.md#rules.
//!
//! Pure bookkeeping. The engine stores it in the session's document, so that it survives a restart. A refused request
//! changes nothing. Not here: the session's owner, and sending.

use std::collections::{HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::answer::decide::{AnswerError, CheckedDecision, decide};
use crate::answer::{
    Answer, AnswerBody, AnswerMessage, AnswerPolicy, AskPolicy, NOT_TAKEN, NOT_WAITING, OrphanPolicy, UNDECIDED, fits,
    native, offer,
};
use crate::capability::ToolOutputs;
use crate::event::Millis;
use crate::fault::{Fault, FaultKind};
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{Input, Message, MessageType, Role};
use crate::pending::{Decision, Pending, PendingKind};

/// Maximum number of open items. Only a misbehaving upstream asks for more; the oldest tool calls are dropped first.
const MAX_OPEN: usize = 256;
/// Maximum number of remembered ids of answered items, which serve to recognize repeated answers.
const MAX_CLOSED: usize = 256;

/// The pending items of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    open: Vec<Open>,
    /// Answered items whose answers the upstream has not accepted yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sent: Vec<Open>,
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    closed: VecDeque<String>,
}

/// An open item of a session, with the run that asked and the conditions of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// The item. Its `decisions` are limited to what the upstream accepts.
    pub item: Pending,
    /// The run that asked.
    pub run: RunId,
    /// The time of the question; 0 for items of an earlier version.
    #[serde(default)]
    pub asked_at: Millis,
    /// When the item expires. Afterwards it can only be cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Millis>,
    /// JSON Schema of the tool's arguments, if the request defined the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Json>,
    /// True if the answer may contain the extension.
    #[serde(default)]
    pub extension: bool,
    /// True if the agent takes the answer only together with those of all other items of its run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub together: bool,
    /// The decision, while other items are still unanswered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<CheckedDecision>,
    /// The client's message with the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<AnswerMessage>,
}

impl Open {
    fn waits(&self) -> bool {
        self.decided.is_none()
    }

    fn is_expired(&self, now: Millis) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// True if no request is sent upstream before this item is answered. Tool calls block only protocols that ask for
    /// them.
    fn blocks(&self, asking: AskPolicy) -> bool {
        self.waits() && (self.item.kind != PendingKind::Tool || asking == AskPolicy::OneByOneWithTools)
    }

    fn message(&self) -> Option<Message> {
        let mut message = self.decided.as_ref()?.message(&self.item, self.extension);
        if let Some(said) = &self.said {
            message.id.clone_from(&said.id);
            message.metadata.clone_from(&said.metadata);
            if said.is_error && self.item.kind == PendingKind::Tool {
                message.mark_failed_output();
            }
        }
        Some(message)
    }
}

/// The context in which a run asked.
#[derive(Clone, Copy, Debug)]
pub struct AskContext<'a> {
    /// The run that asked.
    pub run: RunId,
    /// The current time.
    pub now: Millis,
    /// The answer settings of the route on which the run was started.
    pub terms: AnswerPolicy,
    /// The tools in the run's request.
    pub tools: &'a [Json],
    /// The decisions that the agent accepts.
    pub decisions: &'static [Decision],
    /// The way in which the agent accepts the outputs of several calls.
    pub tool_outputs: ToolOutputs,
}

/// The answers that [`Waiting::take`] has taken for one turn, possibly none. The turn ends this state by exactly one
/// call: [`Waiting::confirm_sent`] once the upstream has accepted the request, [`Waiting::reopen`] if it has not
/// accepted it, and [`Waiting::put_back`] if the request was never sent.
///
/// A turn confirms its answers, then it may ask:
///
/// ```
/// # use interlingua_core::answer::{AskContext, TakenAnswers, Waiting};
/// fn conclude(waiting: &mut Waiting, taken: TakenAnswers, context: &AskContext<'_>) {
///     let sent = waiting.confirm_sent(taken);
///     waiting.ask(sent, Vec::new(), context);
/// }
/// ```
///
/// A turn that skips the confirmation does not compile, and neither does a second call with the same answers:
///
/// ```compile_fail,E0308
/// # use interlingua_core::answer::{AskContext, TakenAnswers, Waiting};
/// fn conclude(waiting: &mut Waiting, taken: TakenAnswers, context: &AskContext<'_>) {
///     waiting.ask(taken, Vec::new(), context);
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use interlingua_core::answer::{AskContext, TakenAnswers, Waiting};
/// fn conclude(waiting: &mut Waiting, taken: TakenAnswers, context: &AskContext<'_>) {
///     let sent = waiting.confirm_sent(taken);
///     waiting.reopen(taken);
/// }
/// ```
#[derive(Debug)]
#[must_use = "confirm that the answers were sent, or open their items again"]
pub struct TakenAnswers {
    /// The decisions that earlier requests gave about the items, by the items' ids.
    earlier: Vec<(String, Option<CheckedDecision>, Option<AnswerMessage>)>,
}

impl TakenAnswers {
    /// Private: only [`Waiting::take`] makes this value.
    const fn new() -> Self {
        Self { earlier: Vec::new() }
    }
}

/// Proof that the answers of a turn were sent: only then may the turn ask something ([`Waiting::ask`]). Only
/// [`Waiting::confirm_sent`] makes this value:
///
/// ```compile_fail,E0423
/// let sent = interlingua_core::answer::SentAnswers(());
/// ```
#[derive(Debug)]
pub struct SentAnswers(());

/// The handling of a request.
#[derive(Debug)]
pub enum Outcome {
    /// Send it upstream. The items it answers are closed from now on.
    Send {
        /// The answers, until the upstream has accepted or refused them.
        taken: TakenAnswers,
        /// The input with its answers in canonical form, but without the questions ([`super::with_requests`]).
        input: Input,
        /// The items it answers.
        answered: Vec<Pending>,
        /// The runs that do not wait any longer, because this request closed their last open item.
        freed: Vec<RunId>,
    },
    /// Send nothing: show the first of [`Waiting::open`]. Either the request answered no item, or answers are collected
    /// until the last one arrives. The text is the reason why the items are shown again. `None`: the request contains
    /// nothing that could be an answer, or answers only some of the items.
    Wait(Option<String>),
    /// Refuse it. Nothing has changed.
    Refused(Fault),
}

/// An answer and its origin.
struct LocatedAnswer {
    answer: Answer,
    /// Index of its message in the input. `None`: the answer came beside the input.
    index: Option<usize>,
    is_output: bool,
}

impl Waiting {
    /// The unanswered items, in the order in which they were asked.
    pub fn open(&self) -> impl Iterator<Item = &Open> {
        self.open.iter().filter(|open| open.waits())
    }

    /// The open items of one run.
    #[must_use]
    pub fn pending_of(&self, run: RunId) -> Vec<Pending> {
        self.open().filter(|open| open.run == run).map(|open| open.item.clone()).collect()
    }

    /// The runs that wait for an answer, in the order in which they asked.
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

    /// True if new input would not reach the upstream (docs/human-in-the-loop.md#rule-5). Tool calls do not block.
    #[must_use]
    pub fn blocks(&self) -> bool {
        self.open().any(|open| open.blocks(AskPolicy::Together))
    }

    /// True if there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sent.is_empty() && self.closed.is_empty()
    }

    /// Adds the items that a turn ended with. An item with a known id replaces the old one. Beyond 256 items, the
    /// oldest are dropped, tool calls first. Takes linear time: a misbehaving agent may ask tens of thousands of
    /// questions at once. `_sent`: the answers of the same turn.
    pub fn ask(&mut self, _sent: SentAnswers, items: Vec<Pending>, asked: &AskContext<'_>) {
        let mut items = last_of_each_id(items);
        {
            let ids: HashSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
            self.open.retain(|open| !ids.contains(open.item.id.as_str()));
            self.closed.retain(|id| !ids.contains(id.as_str()));
        }
        drop_oldest(&mut items, |item| item.kind);
        for mut item in items {
            item.decisions = offer(&item, asked.decisions);
            if item.expires_at.is_none()
                && item.kind != PendingKind::Tool
                && let Some(ttl) = asked.terms.ttl
            {
                let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                item.expires_at = Some(crate::time::format_rfc3339(asked.now.saturating_add(ttl)));
            }
            self.open.push(Open {
                run: asked.run,
                asked_at: asked.now,
                expires: item.expires(),
                parameters: parameters(asked.tools, &item.name),
                // The plain answer of the Agent API has no place for new arguments.
                extension: asked.decisions.contains(&Decision::Edit),
                together: asked.tool_outputs == ToolOutputs::Together,
                decided: None,
                said: None,
                item,
            });
        }
        drop_oldest(&mut self.open, |open| open.item.kind);
    }

    /// Processes a request: its input, and the answers beside the input. A refused request changes nothing.
    pub fn take(&mut self, input: impl Into<Input>, answers: Vec<Answer>, terms: AnswerPolicy, now: Millis) -> Outcome {
        let mut next = self.clone();
        match next.apply_answers(input.into(), answers, terms, now) {
            Ok(mut outcome) => {
                // The items of these runs were all closed by this request.
                if let Outcome::Send { freed, taken, .. } = &mut outcome {
                    let waiting = next.runs();
                    *freed = self.runs().into_iter().filter(|run| !waiting.contains(run)).collect();
                    let is_sent = |open: &&Open| next.sent.iter().any(|sent| sent.item.id == open.item.id);
                    let earlier = self.open.iter().filter(|open| open.decided.is_some()).filter(is_sent);
                    taken.earlier =
                        earlier.map(|open| (open.item.id.clone(), open.decided.clone(), open.said.clone())).collect();
                }
                *self = next;
                outcome
            }
            Err(fault) if terms.asks_again && is_no_decision(&fault) => Outcome::Wait(Some(fault.message)),
            Err(fault) => Outcome::Refused(fault),
        }
    }

    /// Withdraws the items of a run, which can no longer be answered. True if there were any.
    pub fn withdraw(&mut self, run: RunId) -> bool {
        let (withdrawn, open) =
            std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(|open| open.run == run);
        self.open = open;
        let asked = !withdrawn.is_empty();
        self.closed.extend(withdrawn.into_iter().map(|open| open.item.id));
        while self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
        asked
    }

    /// The upstream has accepted the answers: they cannot be given again.
    pub fn confirm_sent(&mut self, _taken: TakenAnswers) -> SentAnswers {
        self.sent.clear();
        SentAnswers(())
    }

    /// The request was not sent: its items are open again, with the decisions that earlier requests gave.
    pub fn put_back(&mut self, taken: TakenAnswers) {
        let earlier = taken.earlier;
        self.reopen(TakenAnswers::new());
        for (id, decided, said) in earlier {
            if let Some(open) = self.open.iter_mut().find(|open| open.item.id == id) {
                (open.decided, open.said) = (decided, said);
            }
        }
    }

    /// The upstream has not accepted the answers: their items are open again (docs/human-in-the-loop.md#rule-3).
    pub fn reopen(&mut self, _taken: TakenAnswers) {
        for mut open in std::mem::take(&mut self.sent).into_iter().rev() {
            open.decided = None;
            open.said = None;
            self.closed.retain(|id| *id != open.item.id);
            self.open.insert(0, open);
        }
    }

    fn apply_answers(
        &mut self,
        input: Input,
        answers: Vec<Answer>,
        terms: AnswerPolicy,
        now: Millis,
    ) -> Result<Outcome, Fault> {
        let found = self.expand_groups(find_answers(&input, answers));
        let mut seen = HashSet::new();
        let mut placed = Vec::new();
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
            // An output that still waits for others may come again with them.
            if !open.waits() && open.item.kind != PendingKind::Tool {
                return Err(already_answered(id));
            }
            self.open[at].decided = Some(check_answer(open, &found.answer, now)?);
            self.open[at].said = found.answer.said;
            placed.extend(found.index.map(|index| (index, at)));
        }

        // Clients that send their complete history repeat old answers in it.
        if let Some(id) = repeated
            && seen.is_empty()
            && !is_history(&input, &id)
        {
            return Err(already_answered(&id));
        }

        let has_answers = !seen.is_empty();
        let immediately = terms.accepts_single_answers && has_answers;
        if !immediately && !self.cancel_expired(now, terms.asking) {
            return match terms.asking {
                AskPolicy::Together if has_answers => Err(self.missing_answers()),
                _ => Ok(Outcome::Wait(self.reason_to_wait().filter(|_| !has_answers && says_more(&input)))),
            };
        }
        if has_answers && self.is_incomplete(&seen) && !says_more(&input) {
            return Ok(Outcome::Wait(None));
        }

        Ok(self.send(input, &placed, orphans))
    }

    /// Moves decided items to `sent` and writes their answers into the input: in place if they came in the input, else
    /// in front of it. `placed` are pairs of indexes into the input and into `open`.
    fn send(&mut self, input: Input, placed: &[(usize, usize)], mut output: Vec<Message>) -> Outcome {
        // A client that sends anything but answers continues without its tool calls.
        let continues =
            input.iter().any(|message| native(message).is_empty() && message.kind != MessageType::McpApprovalRequest);
        for (at, open) in self.open.iter().enumerate() {
            if placed.iter().all(|(_, item)| *item != at) {
                output.extend(open.message());
            }
        }

        let input = if output.is_empty() && placed.is_empty() {
            // The usual case: no answers, so the shared input need not be copied.
            input
        } else {
            for (index, message) in input.into_iter().enumerate() {
                let mut answers = placed.iter().filter(|(answered, _)| *answered == index).peekable();
                if answers.peek().is_none() {
                    output.push(message);
                } else {
                    output.extend(answers.filter_map(|(_, at)| self.open[*at].message()));
                    // An output may have pictures beside its text.
                    if message.kind == MessageType::FunctionCallOutput
                        && let Some(last) = output.last_mut()
                    {
                        last.content.extend(message.content.into_iter().filter(|content| content.as_data().is_none()));
                    }
                }
            }
            output.into()
        };

        let (open, mut sent) = std::mem::take(&mut self.open).into_iter().partition::<Vec<_>, _>(Open::waits);
        self.closed.extend(sent.iter().map(|open| open.item.id.clone()));
        while self.closed.len() > MAX_CLOSED {
            self.closed.pop_front();
        }
        let answered = sent.iter().map(|open| open.item.clone()).collect();

        // Tool calls the client leaves out become open again if this request does not reach the upstream.
        let (left_out, open) = open.into_iter().partition(|open| continues && open.item.kind == PendingKind::Tool);
        self.open = open;
        sent.extend::<Vec<_>>(left_out);

        self.sent = sent;
        Outcome::Send { taken: TakenAnswers::new(), input, answered, freed: Vec::new() }
    }

    /// True if the agent would refuse these answers now, because outputs of other calls of the same run are missing.
    fn is_incomplete(&self, answered: &HashSet<usize>) -> bool {
        let mut runs = answered.iter().map(|at| &self.open[*at]).filter(|open| open.together).map(|open| open.run);
        runs.any(|run| self.open().any(|open| open.together && open.run == run))
    }

    /// Index of the item an answer is for. Some front ends show approvals as tools and answer with the call's output.
    fn find(&self, found: &LocatedAnswer) -> Option<usize> {
        let id = found.answer.id.as_str();
        self.open.iter().position(|open| open.item.id == id).or_else(|| {
            let concerns =
                |open: &Open| open.item.kind != PendingKind::Tool && open.item.call_id.as_deref() == Some(id);
            self.open.iter().position(|open| found.is_output && concerns(open))
        })
    }

    /// The reason why a message that answers no item does not reach the agent.
    fn reason_to_wait(&self) -> Option<String> {
        let mut open = self.open().filter(|open| open.item.kind != PendingKind::Tool);
        let item = &open.next()?.item;
        if open.next().is_some() {
            return Some("the message does not say which of the pending items it answers".to_owned());
        }
        Some(AnswerError::Unclear(item.decisions.clone()).to_string())
    }

    fn missing_answers(&self) -> Fault {
        let missing: Vec<&str> =
            self.open().filter(|open| open.blocks(AskPolicy::Together)).map(|open| open.item.id.as_str()).collect();
        let message =
            format!("all pending items must be answered in one request: '{}' is missing", missing.join("', '"));
        Fault::new(FaultKind::Waiting, message).with_code(NOT_TAKEN)
    }

    /// Cancels expired items if only they block the request (docs/human-in-the-loop.md#rule-7). True if nothing blocks
    /// it any longer.
    fn cancel_expired(&mut self, now: Millis, asking: AskPolicy) -> bool {
        if self.open.iter().any(|open| open.blocks(asking) && !open.is_expired(now)) {
            return false;
        }
        for open in self.open.iter_mut().filter(|open| open.blocks(asking)) {
            open.decided = Some(CheckedDecision::new(Decision::Cancel));
        }
        true
    }

    /// Splits an answer with one decision per action of a payload into answers to the items of all actions
    /// (docs/human-in-the-loop.md#decisions-for-several-items).
    fn expand_groups(&self, found: Vec<LocatedAnswer>) -> Vec<LocatedAnswer> {
        let mut expanded = Vec::with_capacity(found.len());
        for found in found {
            let group = self.group(&found.answer);
            let Some(decisions) = decisions(&found.answer.given).filter(|list| list.len() == group.len()) else {
                expanded.push(found);
                continue;
            };
            let mut said = found.answer.said;
            for (id, decision) in group.into_iter().zip(decisions) {
                let answer = Answer { id, given: AnswerBody::Payload(decision), said: said.clone() };
                expanded.push(LocatedAnswer { answer, index: found.index, is_output: found.is_output });
                if let Some(said) = &mut said {
                    said.id = None;
                }
            }
        }
        expanded
    }

    /// Ids of this item and of later open items with the same payload. Empty if there is only this one.
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

fn check_answer(open: &Open, answer: &Answer, now: Millis) -> Result<CheckedDecision, Fault> {
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
        let arguments = Json::parse(arguments).ok_or(AnswerError::MissingArguments)?;
        fits(parameters, &arguments).map_err(AnswerError::SchemaMismatch)?;
    }
    Ok(decided)
}

/// True if an answer was refused because of its content, and not because its item cannot be answered.
fn is_no_decision(fault: &Fault) -> bool {
    fault.code.as_deref().is_some_and(|code| [UNDECIDED, NOT_TAKEN].contains(&code))
}

/// The answers beside the input, then those in it. Answers before the agent's last message are history.
fn find_answers(input: &[Message], answers: Vec<Answer>) -> Vec<LocatedAnswer> {
    let beside = answers.into_iter().map(|answer| LocatedAnswer { answer, index: None, is_output: false });
    let first_new = input.iter().rposition(is_agent_message).map_or(0, |last| last + 1);
    let inside = input.iter().enumerate().skip(first_new).flat_map(|(index, message)| {
        let is_output = message.kind == MessageType::FunctionCallOutput;
        let id = message.id.clone();
        let outputs = message.outputs().zip(message.failures()).filter(|(output, _)| !output.call_id.is_empty());
        let failures: Vec<bool> = outputs.map(|(_, is_failed)| is_failed).collect();
        native(message).into_iter().enumerate().map(move |(nth, answer)| {
            let said = AnswerMessage {
                id: id.clone().filter(|_| nth == 0),
                metadata: message.metadata.clone(),
                is_error: failures.get(nth) == Some(&true),
            };
            LocatedAnswer { answer: Answer { said: Some(said), ..answer }, index: Some(index), is_output }
        })
    });
    beside.chain(inside).collect()
}

/// True for messages that can only follow after all earlier answers were processed. Not the questions themselves, which
/// clients put in front of their answers.
fn is_agent_message(message: &Message) -> bool {
    match message.kind {
        MessageType::FunctionCall | MessageType::McpApprovalRequest => false,
        MessageType::Reasoning => true,
        ref kind if kind.is_call() => true,
        _ => message.role == Some(Role::Assistant),
    }
}

/// True if the input contains more than answers: the client then does not wait for the missing ones.
fn says_more(input: &[Message]) -> bool {
    let said = input.iter().rev().take_while(|message| !is_agent_message(message));
    said.filter(|message| message.kind == MessageType::Message).any(|message| message.role != Some(Role::System))
}

/// True if the input contains the call as well as its output.
fn is_history(input: &[Message], id: &str) -> bool {
    input.iter().any(|message| message.calls().any(|call| call.call_id == id))
}

fn already_answered(id: &str) -> Fault {
    Fault::new(FaultKind::Conflict, format!("'{id}' was answered or withdrawn already")).with_code(NOT_WAITING)
}

/// Processes an answer to an unknown item (docs/human-in-the-loop.md#unknown-items). Canonical answers stay in the
/// input.
fn orphan(found: &LocatedAnswer, orphans: OrphanPolicy) -> Result<Option<Message>, Fault> {
    let id = found.answer.id.as_str();
    if orphans == OrphanPolicy::Refuse {
        let message = format!("no pending item has the id '{id}'");
        return Err(Fault::new(FaultKind::Conflict, message).with_code(NOT_WAITING));
    }

    let mut data = Extra::new();
    data.set("id", Json::from_serialize(id));
    let Some(item) = Pending::parse(&Json::from_serialize(&data)) else { return Ok(None) };
    let decided = decide(&item, &found.answer.given, super::NATIVE_DECISIONS)?;

    Ok(found.index.is_none().then(|| decided.message(&item, false)))
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

fn decisions(given: &AnswerBody) -> Option<Vec<Json>> {
    let payload = match given {
        AnswerBody::Payload(payload) => {
            payload.decode::<String>().map_or_else(|| Some(payload.clone()), |text| Json::parse(&text))
        }
        AnswerBody::Text(text) => Json::parse(text.trim()),
        AnswerBody::Decided { payload, .. } => payload.clone(),
    }?;
    let fields: Extra = if payload.is_object() { payload.decode()? } else { return None };
    fields.get("decisions")?.decode()
}

/// Removes all but the last item of each id.
fn last_of_each_id(mut items: Vec<Pending>) -> Vec<Pending> {
    let mut later = HashSet::new();
    let mut is_last: Vec<bool> = items.iter().rev().map(|item| later.insert(item.id.as_str())).collect();
    items.retain(|_| is_last.pop().unwrap_or(true));
    items
}

/// Drops the oldest items beyond [`MAX_OPEN`], tool calls first.
fn drop_oldest<T>(items: &mut Vec<T>, kind: impl Fn(&T) -> PendingKind) {
    let mut excess = items.len().saturating_sub(MAX_OPEN);
    items.retain(|item| {
        let is_dropped = excess > 0 && kind(item) == PendingKind::Tool;
        excess -= usize::from(is_dropped);
        !is_dropped
    });
    items.drain(..excess);
}

/// The schema of a tool's arguments, in the Agent API's form of a tool.
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
