//! Answers to questions that were asked on the stream of a call, in revisions with sessions.
//!
//! The stream of the call may be at another replica, which sees the run continue. An answer that decides nothing leaves
//! a note with the run, which that stream finds.

use interlingua_core::answer::{NOT_TAKEN, NOT_WAITING, UNDECIDED};
use interlingua_core::call::{Reply, Tags, Target};
use interlingua_core::policy::RunPolicy;
use interlingua_core::{Call, Delivery, Fault, FaultKind, RunView};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::refusal::Refusal;
use super::shared::SharedState;
use crate::envelope::rpc_error::INVALID_REQUEST;
use crate::envelope::{RpcError, RpcId};
use crate::forms::{self, Reading};
use crate::tasks::Phase;
use crate::tokens::{QuestionToken, SessionToken, TokenError};

/// The tag with the note of an answer that decided nothing.
const NOTE_TAG: &str = "mcp.answer";
/// Maximum length of a reason in a note, in bytes.
const MAX_REASON: usize = 400;

/// The error of an answer to a question that is not open.
pub(super) fn not_open() -> RpcError {
    RpcError::bad(INVALID_REQUEST, "no open question has this id")
}

/// The note of an answer that decided nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The question, without the run.
    turn: usize,
    item: String,
    opens: bool,
    call: String,
    round: u32,
    /// The effect of the answer.
    pub(super) outcome: NoteOutcome,
}

/// An answer that decided nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum NoteOutcome {
    /// It was not understood, for this reason.
    Undecided(String),
    /// The form was closed.
    Closed,
    /// The page of a login was opened.
    Opened,
}

impl Note {
    fn new(question: &QuestionToken, outcome: NoteOutcome) -> Self {
        let QuestionToken { turn, opens, round, .. } = *question;
        Self { turn, item: question.item.clone(), opens, call: question.call.clone(), round, outcome }
    }

    /// The note of a run, if it is about this question.
    pub(super) fn find(tags: &Tags, question: &QuestionToken) -> Option<NoteOutcome> {
        let note: Self = serde_json::from_str(tags.get(NOTE_TAG)?).ok()?;
        let own = Self::new(question, note.outcome.clone());
        (note == own).then_some(note.outcome)
    }

    fn put(&self, question: &QuestionToken, tags: &Tags) -> Call {
        let mut tags = tags.clone();
        tags.insert(NOTE_TAG.to_owned(), serde_json::to_string(self).unwrap_or_default());
        Call::Tag(Target::Run(question.run), tags)
    }
}

/// A question that is open on the stream of a call.
pub(super) struct OpenQuestion {
    pub(super) question: QuestionToken,
    /// The id of its request.
    pub(super) id: String,
}

/// One answer.
pub(super) struct QuestionAnswer {
    question: QuestionToken,
    /// `None`: the client answered with an error.
    result: Option<Value>,
    tags: Tags,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Loading,
    Answering,
    Noting,
}

impl QuestionAnswer {
    /// Reads the id of a response, and makes the first call.
    ///
    /// # Errors
    /// No question of the session has this id.
    pub(super) fn decode(
        shared: &SharedState,
        session: &SessionToken,
        id: &RpcId,
        result: Option<Value>,
    ) -> Result<(Self, Call), Refusal> {
        let RpcId::Text(id) = id else { return Err(not_open().into()) };
        let question = match QuestionToken::open(shared.seals(), id, &session.id) {
            Ok(question) => question,
            Err(TokenError::Unavailable(fault)) => return Err(fault.into()),
            Err(TokenError::Invalid | TokenError::Expired) => return Err(not_open().into()),
        };
        let call = Call::Fetch(Target::Run(question.run));
        Ok((Self { question, result, tags: Tags::new(), stage: Stage::Loading }, call))
    }

    /// The next call. `None`: the answer is accepted.
    ///
    /// # Errors
    /// The question is not open.
    pub(super) fn reply(&mut self, reply: Reply<'_>, shared: &SharedState) -> Result<Option<Call>, Refusal> {
        match (self.stage, reply) {
            (Stage::Loading, Reply::Run(view)) => self.answer(view, shared),
            (Stage::Answering, Reply::Waiting(view, Some(reason))) => {
                let is_open = view.pending.iter().any(|item| item.id == self.question.item);
                Ok(is_open.then(|| self.note(NoteOutcome::Undecided(reason.to_owned()))))
            }
            (Stage::Loading, _) => Err(not_open().into()),
            // Other items are open, or the run continues.
            _ => Ok(None),
        }
    }

    fn answer(&mut self, view: RunView<'_>, shared: &SharedState) -> Result<Option<Call>, Refusal> {
        let is_same_turn = forms::asking_turn(view) == self.question.turn && Phase::of(view) == Phase::Asks;
        let item = view.pending.iter().find(|item| item.id == self.question.item).filter(|_| is_same_turn);
        let item = item.ok_or_else(not_open)?;
        self.tags.clone_from(&view.info.tags);

        let (revision, modes) = (shared.writer.revision, shared.client.modes);
        let reading = match &self.result {
            Some(result) => forms::read(item, revision, modes, self.question.opens, result),
            None => Reading::StaysOpen,
        };
        Ok(Some(match reading {
            Reading::Answer(answer) => {
                let mut call = forms::answer_call(view, vec![answer], Delivery::Background, RunPolicy::task());
                call.answer_policy.asks_again = true;
                self.stage = Stage::Answering;
                Call::Run(Box::new(call))
            }
            Reading::Undecided(reason) => self.note(NoteOutcome::Undecided(reason)),
            Reading::StaysOpen => self.note(NoteOutcome::Closed),
            Reading::Opened => self.note(NoteOutcome::Opened),
        }))
    }

    fn note(&mut self, outcome: NoteOutcome) -> Call {
        self.stage = Stage::Noting;
        let outcome = match outcome {
            NoteOutcome::Undecided(mut reason) => {
                reason.truncate(forms::beginning(&reason, MAX_REASON).len());
                NoteOutcome::Undecided(reason)
            }
            other => other,
        };
        Note::new(&self.question, outcome).put(&self.question, &self.tags)
    }

    /// The error for a fault that means that the question is not open.
    pub(super) fn on_fault(&self, fault: &Fault) -> Option<Result<Value, RpcError>> {
        let is_closed = matches!(fault.code(), NOT_WAITING | UNDECIDED | NOT_TAKEN)
            || matches!(fault.kind, FaultKind::NotFound | FaultKind::Conflict);
        is_closed.then(|| Err(not_open()))
    }
}
