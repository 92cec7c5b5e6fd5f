//! Questions to the client of a call: by a result, after which it repeats the call, or on the stream
//! (docs/protocols/mcp.md#questions).

use std::collections::BTreeMap;

use interlingua_core::answer::AnswerBody;
use interlingua_core::call::Thread;
use interlingua_core::pending::{Pending, PendingKind};
use interlingua_core::{Answer, Call, Delivery, Fault, Flow, Next, Out, RunView, Target};
use serde_json::{Value, json};

use super::super::question::{Note, NoteOutcome, OpenQuestion};
use super::super::refusal::Refusal;
use super::super::shared::SharedState;
use super::start::policy;
use super::{QUESTION_POLL, Skip, Stage, ToolCall};
use crate::forms::{self, MAX_ROUNDS};
use crate::tokens::{QuestionToken, StateToken};

impl ToolCall {
    /// Asks for all open items by a result. A client that cannot be asked gets a text.
    pub(super) fn ask_by_result(
        &mut self,
        view: RunView<'_>,
        reason: Option<&str>,
        shared: &SharedState,
        out: &mut Out,
    ) -> Result<(), Fault> {
        let reasons = reason.and_then(|reason| Some((view.pending.first()?.id.clone(), reason.to_owned())));
        self.ask_all(view, &reasons.into_iter().collect(), shared, out)
    }

    fn ask_all(
        &mut self,
        view: RunView<'_>,
        reasons: &BTreeMap<String, String>,
        shared: &SharedState,
        out: &mut Out,
    ) -> Result<(), Fault> {
        let reason = reasons.values().next().map(String::as_str);
        let ttl = shared.route.options.answer_ttl.0;
        let first = self.first_run().unwrap_or(view.run().id);
        let state = match self.state.take() {
            Some(state) if state.is_current(view) => state.again(shared.now, ttl),
            _ => StateToken::new(first, view, self.digest.clone(), shared.now, ttl),
        };
        let (revision, modes) = (shared.writer.revision, shared.client.modes);
        let requests = forms::request_all(view.pending, revision, modes, reasons, &|_| String::new());
        if !shared.asks_by_result() || requests.is_empty() || state.round >= MAX_ROUNDS {
            self.write_waiting(view, reason, shared, out);
            return Ok(());
        }

        forms::note_losses(view.pending, &mut self.losses);
        let result = json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": state.seal(shared.seals())?,
        });
        shared.writer.result(result, self.position, out);
        Ok(())
    }

    /// Continues a repeated call: finds the run that asked, and answers it.
    pub(super) fn resume(
        &mut self,
        state: StateToken,
        responses: Option<Value>,
        view: RunView<'_>,
        shared: &mut SharedState,
        out: &mut Out,
    ) -> Result<Next, Refusal> {
        self.note_run(view);
        if let Some(next) = self.next_run(view) {
            self.keep(view);
            self.stage = Stage::Resume(Box::new(state), responses);
            return Ok(Next::Call(Call::Fetch(Target::Run(next))));
        }
        let is_asked = view.run().id == state.asked_by;
        self.skip = if is_asked { Skip::Turn(state.turn) } else { Skip::None };
        if !state.is_current(view) {
            // The answers came over another way, or with this very request, whose response was lost.
            return Ok(self.settle(view, shared, out)?);
        }

        let (revision, modes) = (shared.writer.revision, shared.client.modes);
        let responses = responses.unwrap_or_else(|| json!({}));
        let round = forms::read_all(view.pending, revision, modes, &responses, &|_| String::new())?;
        let is_closed = !round.closed.is_empty();
        if round.answers.is_empty() {
            if is_closed {
                self.write_waiting(view, None, shared, out);
            } else {
                self.state = Some(state);
                self.ask_all(view, &round.undecided, shared, out)?;
            }
            return Ok(Next::Done);
        }

        let mut call = forms::answer_call(view, round.answers, Delivery::Stream, policy(shared));
        call.answer_policy.asks_again = true;
        if matches!(call.thread, Thread::Session(_)) {
            // The answer is a run of its own.
            self.keep(view);
            self.skip = Skip::None;
        }
        self.reasons = round.undecided;
        self.stage = Stage::Answered(Box::new(state), is_closed);
        Ok(Next::Call(Call::Run(Box::new(call))))
    }

    /// Asks for the items that are open although answers were sent.
    pub(super) fn ask_again(
        &mut self,
        state: StateToken,
        is_closed: bool,
        view: RunView<'_>,
        reason: Option<&str>,
        shared: &SharedState,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        if self.kept.last().is_some_and(|kept| kept.view().run().id == view.run().id) {
            self.kept.pop();
        }
        self.note_run(view);
        if is_closed {
            self.write_waiting(view, reason, shared, out);
            return Ok(Next::Done);
        }
        let mut reasons = std::mem::take(&mut self.reasons);
        if let (Some(reason), Some(item)) = (reason, view.pending.first()) {
            reasons.entry(item.id.clone()).or_insert_with(|| reason.to_owned());
        }
        self.state = Some(state);
        self.ask_all(view, &reasons, shared, out).map(|()| Next::Done)
    }

    /// The call that takes the message of this call for the answer to the only open item, if that asks for a text.
    pub(super) fn answer_with_message(&mut self, view: RunView<'_>, shared: &SharedState) -> Option<Call> {
        let [item] = view.pending else { return None };
        if item.kind != PendingKind::Input || item.response_schema.is_some() {
            return None;
        }
        let answer = Answer::new(item.id.clone(), AnswerBody::Text(self.message.take()?));
        self.skip = Skip::Turn(forms::asking_turn(view));
        let mut call = forms::answer_call(view, vec![answer], Delivery::Stream, policy(shared));
        if matches!(call.thread, Thread::Session(_)) {
            self.skip = Skip::None;
            call.labels = self.labels();
        }
        Some(Call::Run(Box::new(call)))
    }

    /// Asks for the first open item on the stream, or reads the note of an answer that decided nothing.
    pub(super) fn ask_on_stream(&mut self, view: RunView<'_>, shared: &SharedState, out: &mut Out) -> Flow {
        if let Some(OpenQuestion { question, .. }) = &self.asked {
            let item = view.pending.iter().find(|item| item.id == question.item);
            if let Some(item) = item.filter(|_| forms::asking_turn(view) == question.turn) {
                let (round, opens) = (question.round, question.opens);
                return match Note::find(&view.info.tags, question) {
                    None => Flow::More,
                    Some(NoteOutcome::Undecided(reason)) if round + 1 >= MAX_ROUNDS => {
                        self.close(view, Some(reason), shared, out)
                    }
                    Some(NoteOutcome::Undecided(reason)) => {
                        self.ask(view, item, (round + 1, !opens), Some(&reason), shared, out)
                    }
                    Some(NoteOutcome::Opened) => self.ask(view, item, (round, true), None, shared, out),
                    Some(NoteOutcome::Closed) => self.close(view, None, shared, out),
                };
            }
        }
        match view.pending.first() {
            Some(item) => self.ask(view, item, (0, false), None, shared, out),
            None => Flow::More,
        }
    }

    /// Asks for an item. `with_form`: its page was opened before.
    fn ask(
        &mut self,
        view: RunView<'_>,
        item: &Pending,
        (round, with_form): (u32, bool),
        reason: Option<&str>,
        shared: &SharedState,
        out: &mut Out,
    ) -> Flow {
        let mut requests = forms::requests(item, shared.writer.revision, shared.client.modes, reason).into_iter();
        let request = if with_form { requests.next_back() } else { requests.next() };
        let (Some((key, params)), Some(session), Some(call)) = (request, &shared.session, &shared.writer.id) else {
            return self.close(view, reason.map(str::to_owned), shared, out);
        };
        let question = QuestionToken {
            run: view.run().id,
            turn: forms::asking_turn(view),
            item: item.id.clone(),
            opens: key == forms::open_key(item),
            session: session.id.clone(),
            call: call.to_json(),
            round,
        };
        let id = match question.seal(shared.seals()) {
            Ok(Some(id)) => id,
            Ok(None) => return self.close(view, reason.map(str::to_owned), shared, out),
            Err(fault) => {
                self.interrupt(&fault, shared, out);
                return Flow::Close;
            }
        };

        self.flush(shared, out);
        // A position of its own: a client that resumes the stream after it has the question.
        let position = self.position + 1;
        if self.resumed_from.is_none_or(|known| known < position) {
            let request = json!({ "jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params });
            shared.writer.message(&request, position, out);
            forms::note_losses(std::slice::from_ref(item), &mut self.losses);
        }
        self.asked = Some(OpenQuestion { question, id });
        self.look_at = Some(shared.now + QUESTION_POLL);
        Flow::More
    }

    /// Ends the call although the run waits.
    pub(super) fn close(
        &mut self,
        view: RunView<'_>,
        reason: Option<String>,
        shared: &SharedState,
        out: &mut Out,
    ) -> Flow {
        self.flush(shared, out);
        self.asked = None;
        self.look_at = None;
        self.stage = Stage::Close(reason);
        self.next = Some(self.closing_call(view.run().id, shared));
        Flow::Next
    }

    /// Withdraws an open question, because it was answered over another protocol.
    pub(super) fn withdraw_question(&mut self, shared: &SharedState, out: &mut Out) {
        if let Some(OpenQuestion { id, .. }) = self.asked.take() {
            let params = json!({ "requestId": id, "reason": "the question was answered elsewhere" });
            let notice = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            shared.writer.message(&notice, self.position, out);
        }
        self.look_at = None;
    }
}
