//! Duplicate messages: the search for the task of the first one, and the claim of a message so that no other request
//! starts a task or a turn for it (docs/protocols/a2a.md#operations). Not here: the stored claim ([`super::super::claim`]).

use interlingua_core::call::{Cursor, Filter, Page, Reply, RunCall, RunState, RunView, Target, Thread};
use interlingua_core::exchange::Next;
use interlingua_core::{Call, Fault, Out};

use super::super::A2aExchange;
use super::super::claim::{ClaimStage, MessageClaim};
use super::super::stream::Streaming;
use super::{SendOperation, Stage};
use crate::decode::input;
use crate::options::Deduplicate;

/// Number of a context's newest tasks that are searched for a duplicate message.
const MAX_DUPLICATE_SEARCH: usize = 100;

impl A2aExchange {
    /// Searches for a task with the same message before `call`, if the route deduplicates. A message without a context
    /// cannot be a duplicate.
    pub(super) fn with_duplicate_search(&self, operation: &mut SendOperation, call: Call) -> Call {
        if self.route.options.deduplicate != Deduplicate::Context || operation.message.context.is_none() {
            return call;
        }

        let duplicate_search = Self::search(operation);
        let stage = std::mem::replace(&mut operation.stage, Stage::Running);
        operation.stage = Stage::FindingDuplicate(Box::new((call, stage)), MAX_DUPLICATE_SEARCH);
        duplicate_search
    }

    fn search(operation: &SendOperation) -> Call {
        Self::duplicate_search(operation, MAX_DUPLICATE_SEARCH, None)
    }

    fn duplicate_search(operation: &SendOperation, limit: usize, cursor: Option<Cursor>) -> Call {
        let session = operation.message.context.as_deref().map(str::to_owned);
        let protocol = Some(crate::NAME.to_owned());
        Call::List(Filter { session, protocol, limit, cursor, ..Filter::default() })
    }

    /// Responds to the duplicate if the page has one. Otherwise requests the next page or, after the last one,
    /// `pending_call`.
    pub(super) fn continue_duplicate_search(
        &mut self,
        operation: &mut SendOperation,
        pending_call: Box<(Call, Stage)>,
        left: usize,
        page: &Page<'_>,
        out: &mut Out,
    ) -> Next {
        if let Some((turn, view)) = self.find_duplicate(operation, &page.runs) {
            return self.answer_duplicate(operation, turn, view, out);
        }

        let left = left.saturating_sub(page.runs.len());
        if let Some(cursor) = page.next.filter(|_| left > 0) {
            // Pages of large tasks may hold fewer tasks than the limit.
            operation.stage = Stage::FindingDuplicate(pending_call, left);
            return Next::Call(Self::duplicate_search(operation, left, Some(cursor)));
        }

        let (call, stage) = *pending_call;
        operation.stage = stage;
        Next::Call(match call {
            Call::Run(run) => self.start_task(operation, run),
            call => call,
        })
    }

    /// The oldest visible task with the message, and the turn.
    fn find_duplicate<'a>(&self, operation: &SendOperation, runs: &[RunView<'a>]) -> Option<(u32, RunView<'a>)> {
        let visible = runs.iter().filter(|view| self.route.is_visible(**view, &self.agent));
        let mut found = visible.filter_map(|view| Some((input::find_turn(view.run(), &operation.message.id)?, *view)));
        found.next_back()
    }

    /// Looks once more for the message, now that it is claimed by this request or by another one.
    fn verification(operation: &SendOperation, claim: &MessageClaim) -> Call {
        match claim.run.thread {
            Thread::Continue(id) => Call::Fetch(Target::Run(id)),
            _ => Self::search(operation),
        }
    }

    /// Starts a turn. Where the route deduplicates, its message is claimed first.
    pub(super) fn start_task(&self, operation: &mut SendOperation, run: Box<RunCall>) -> Call {
        if self.route.options.deduplicate != Deduplicate::Context {
            return Call::Run(run);
        }

        match MessageClaim::new(&operation.message, operation.new_id, run) {
            Ok(claim) => {
                let put = claim.put();
                operation.stage = Stage::Claiming(Box::new(ClaimStage::Putting(claim)));
                put
            }
            Err(run) => Call::Run(run),
        }
    }

    /// Continues while the message is claimed, by this request or another one.
    pub(super) fn continue_claim(
        &mut self,
        operation: &mut SendOperation,
        stage: ClaimStage,
        reply: Reply<'_>,
        out: &mut Out,
    ) -> Result<Next, Fault> {
        let (stage, call) = match (stage, reply) {
            (ClaimStage::Putting(claim), Reply::Done) => {
                let verification = Self::verification(operation, &claim);
                (ClaimStage::Verifying(claim, true), verification)
            }
            (ClaimStage::Putting(mut claim), Reply::Documents(found)) => {
                claim.see(found);
                let verification = Self::verification(operation, &claim);
                (ClaimStage::Verifying(claim, false), verification)
            }
            (ClaimStage::Verifying(mut claim, is_claimed), reply @ (Reply::Runs(_) | Reply::Run(_))) => {
                let (duplicate, task) = match &reply {
                    Reply::Runs(page) => (self.find_duplicate(operation, &page.runs), None),
                    Reply::Run(view) => (self.find_duplicate(operation, &[*view]), Some(*view)),
                    _ => return Err(Fault::unexpected_reply()),
                };
                match (duplicate, is_claimed) {
                    (Some((turn, view)), false) => return Ok(self.answer_duplicate(operation, turn, view, out)),
                    (Some((turn, view)), true) => (ClaimStage::Withdrawing(view.run().id, turn), claim.delete()),
                    (None, true) => {
                        // The task may have gone on since the turn was prepared.
                        let prepared = task.map(|view| self.next_turn(operation, view.run().id, view)).transpose();
                        match prepared {
                            // The stage is `Running` from here on.
                            Ok(run) => return Ok(Next::Call(claim.start(run))),
                            Err(fault) => {
                                let delete = claim.delete();
                                (ClaimStage::Refusing(fault), delete)
                            }
                        }
                    }
                    (None, false) => {
                        let wait = claim.wait()?;
                        (ClaimStage::Waiting(claim), wait)
                    }
                }
            }
            (ClaimStage::Waiting(claim), Reply::Done) => {
                let put = claim.put();
                (ClaimStage::Putting(claim), put)
            }
            (ClaimStage::Withdrawing(id, turn), Reply::Done) => {
                (ClaimStage::LoadingDuplicate(turn), Call::Fetch(Target::Run(id)))
            }
            (ClaimStage::Refusing(fault), Reply::Done) => return Err(fault),
            (ClaimStage::LoadingDuplicate(turn), Reply::Run(view)) => {
                return Ok(self.answer_duplicate(operation, turn, view, out));
            }
            _ => return Err(Fault::unexpected_reply()),
        };
        operation.stage = Stage::Claiming(Box::new(stage));
        Ok(Next::Call(call))
    }

    /// Responds to a duplicate message with the task of the first one, or with the rest of its stream.
    pub(super) fn answer_duplicate(
        &mut self,
        operation: &SendOperation,
        turn: u32,
        view: RunView<'_>,
        out: &mut Out,
    ) -> Next {
        let is_working = matches!(view.info.state, RunState::Queued | RunState::Running);
        if !operation.streams || !is_working {
            self.streaming = None;
            self.write_task_result(operation, view, None, out);
            return Next::Done;
        }

        let id = operation.message.id.clone().into_owned();
        self.streaming = Some(Streaming::for_next_turn(&self.route, id, turn, operation.settings.history));
        Next::Call(Call::Follow(Target::Run(view.run().id)))
    }
}
