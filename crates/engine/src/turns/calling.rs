//! Calling the agent: choice of the endpoint for a turn, and retries at other endpoints.
//!
//! [`plan`] chooses the kind of endpoint, and [`outcome`] derives the health of an endpoint from the result of a turn.
//! Both are pure. Not here: the health of endpoints ([`interlingua_upstream::pool`]) and reading the answer
//! ([`super::listen`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::HistoryNeed;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, error_class};

use super::context::{ContextBuilder, takes_history};
use crate::agent::Agent;
use crate::faults;
use crate::runs::{Prepared, Turn};
use interlingua_upstream::pool::{
    Affinity, EndpointKey, EndpointPermit, EndpointPool, Outcome, PickRequest, Reason, SessionAffinity, Target,
};
use interlingua_upstream::{self as upstream, Conversation, SendOptions};

/// The pause before the first retry. It doubles with each retry.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// If an endpoint asks for a longer pause, the turn is not retried there.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Sends the request of a turn.
pub(super) struct Caller<'a> {
    pub(crate) agent: &'a Agent,
    pub(super) turn: &'a Turn,
    pub(crate) context: &'a ContextBuilder,
}

impl Caller<'_> {
    /// Sends the request. `conversation` is set as soon as a part of it may have been sent, even if this future is
    /// dropped.
    pub(super) async fn call(
        &self,
        prepared: &mut Prepared,
        conversation: &mut Option<Conversation>,
    ) -> Result<(), Fault> {
        let mut may_be_known = false;
        let begun = match self.agent.upstream.pool() {
            Some(pool) => self.begin(pool, prepared, conversation, &mut may_be_known).await,
            None => self.begin_without_pool(prepared, conversation, &mut may_be_known).await,
        };
        prepared.is_unknown = begun.is_err() && !may_be_known;
        begun
    }

    async fn begin_without_pool(
        &self,
        prepared: &Prepared,
        conversation: &mut Option<Conversation>,
        may_be_known: &mut bool,
    ) -> Result<(), Fault> {
        self.turn.attempts.placed(None);
        let started = self.agent.upstream.start(&prepared.turn_request(self.agent), self.send_options(None))?;
        let started = conversation.insert(started);
        let begun = started.begin().await;
        *may_be_known = started.may_be_known();
        begun
    }

    /// `may_be_known` is set as soon as an endpoint may have received the turn.
    async fn begin(
        &self,
        pool: &Arc<EndpointPool>,
        prepared: &mut Prepared,
        conversation: &mut Option<Conversation>,
        may_be_known: &mut bool,
    ) -> Result<(), Fault> {
        let (home, was_new) = self.turn.session.home_of(&prepared.upstream_id);
        let (mut tried, mut avoid, mut last) = (0, None, None::<Fault>);
        // The endpoint that gets the request again, this time with the history.
        let mut repeat_at: Option<EndpointKey> = None;
        loop {
            let situation = Situation {
                affinity: self.affinity(pool),
                home: home.as_ref().map(|home| pool.home(home)),
                has_failed: last.is_some(),
                answers: !prepared.answered.is_empty(),
                is_new: was_new || prepared.resent.is_some(),
                takes_history: takes_history(self.agent),
            };
            let was_resent = prepared.resent.is_some();
            let seat = match repeat_at.take() {
                Some(key) => pool.seat(PickRequest { target: Target::Only(&key), avoid: None }).await?,
                None => {
                    let target = self.target(&situation, pool, home.as_ref(), prepared, &mut last).await?;
                    pool.seat(PickRequest { target, avoid }).await?
                }
            };
            let endpoint = seat.endpoint();
            if prepared.resent.is_some() && !was_resent {
                tracing::info!(
                    agent = self.agent.name, from = home.as_ref().map(EndpointKey::as_str), to = %seat.key(),
                    messages = prepared.request.input.len(), "the session moves to another endpoint: its history is sent there"
                );
            }
            let key = seat.key().clone();
            prepared.home = Some(key.clone());
            self.turn.attempts.placed(Some(seat.address()));
            // Do not await before `conversation` is set: it must own the seat if this future is dropped.
            let options = self.send_options(Some(seat));
            let started = conversation.insert(self.agent.upstream.start(&prepared.turn_request(self.agent), options)?);
            if self.lacks_history(started, prepared) {
                self.add_history(prepared, conversation).await?;
                repeat_at = Some(key);
                continue;
            }
            let Err(fault) = started.begin().await else { return Ok(()) };

            if self.lacks_history(started, prepared) {
                // The endpoint refused the turn, so `may_be_known` stays unset.
                started.report(outcome(Some(&fault), None, false));
                self.add_history(prepared, conversation).await?;
                repeat_at = Some(key);
                continue;
            }
            *may_be_known |= started.may_be_known();
            started.report(outcome(Some(&fault), None, false));
            let is_retried = pool.len() > 1 && started.can_move() && tried < pool.retries() && pool.may_retry(endpoint);
            if !is_retried {
                return Err(fault);
            }

            self.turn.attempts.retried(fault.code());
            tracing::debug!(%fault, tried, "the agent did not take the turn: trying again");
            // Release the seat during the pause.
            *conversation = None;
            tokio::time::sleep(RETRY_PAUSE * 2_u32.saturating_pow(tried)).await;
            (tried, avoid, last) = (tried + 1, Some(endpoint), Some(fault));
        }
    }

    /// True if the agent needs the history, and it was not sent yet.
    fn lacks_history(&self, started: &Conversation, prepared: &Prepared) -> bool {
        let may_send = prepared.history.is_empty() && prepared.resent.is_none() && takes_history(self.agent);
        may_send && started.needs_history()
    }

    /// Adds the history to the request before it is sent again.
    async fn add_history(&self, prepared: &mut Prepared, conversation: &mut Option<Conversation>) -> Result<(), Fault> {
        // Release the seat: the next attempt needs it.
        *conversation = None;
        let Turn { session, spoken, .. } = self.turn;
        Box::pin(self.context.resend_history(session, self.agent, spoken, prepared)).await?;
        tracing::info!(
            agent = self.agent.name,
            session = &*session.id,
            messages = prepared.request.input.len(),
            "the agent cannot continue from its own memory: the session's history is sent"
        );
        Ok(())
    }

    /// The endpoint for the turn. `last` is the fault of the previous attempt.
    async fn target<'a>(
        &self,
        situation: &Situation,
        pool: &EndpointPool,
        home: Option<&'a EndpointKey>,
        prepared: &'a mut Prepared,
        last: &mut Option<Fault>,
    ) -> Result<Target<'a>, Fault> {
        match (plan(situation), home) {
            (Plan::Home, Some(home)) => match last.take_if(|fault| fault.retry_after > Some(MAX_PAUSE)) {
                Some(fault) => Err(fault),
                None => Ok(Target::Only(home)),
            },
            (Plan::Refuse, home) => {
                let returns = home.and_then(|home| pool.returns_in(home));
                Err(last.take().unwrap_or_else(|| faults::home_away(returns)))
            }
            (Plan::Resend, _) => {
                let Turn { session, spoken, .. } = self.turn;
                Box::pin(self.context.resend_history(session, self.agent, spoken, prepared)).await?;
                Ok(Target::NewSession(&prepared.upstream_id))
            }
            (Plan::New, _) => Ok(Target::NewSession(&prepared.upstream_id)),
            (Plan::Session, _) => Ok(Target::Session(&prepared.upstream_id)),
            (Plan::Any | Plan::Home, _) => Ok(Target::Any),
        }
    }

    fn send_options(&self, seat: Option<EndpointPermit>) -> SendOptions<'_> {
        let Turn { session, caller, trace, forwarded, attempts, .. } = self.turn;
        let known = upstream::Caller { owner: &session.owner, name: &caller.name };
        let caller = caller.is_authenticated().then_some(known);
        SendOptions {
            seat,
            trace: trace.as_deref(),
            forwarded: forwarded.clone(),
            attempts: Arc::clone(attempts),
            caller,
        }
    }

    /// The affinity of sessions to endpoints. None if the agent does not remember sessions.
    fn affinity(&self, pool: &Arc<EndpointPool>) -> Affinity {
        let affinity = pool.affinity();
        let remembers = || self.agent.upstream.capabilities().history != HistoryNeed::SentEachTime;
        if affinity != Affinity::None && remembers() { affinity } else { Affinity::None }
    }
}

/// The input of [`plan`].
#[derive(Clone, Copy, Debug)]
struct Situation {
    affinity: Affinity,
    /// State of the endpoint that remembers the session. `None`: that endpoint is unknown.
    home: Option<SessionAffinity>,
    /// True if an attempt of this turn failed.
    has_failed: bool,
    /// True if the turn answers pending items.
    answers: bool,
    /// True if no endpoint remembers the session.
    is_new: bool,
    /// True if the protocol of the agent can transfer earlier turns.
    takes_history: bool,
}

/// The kind of endpoint for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Any,
    /// An endpoint with a free seat, preferably the one that the id of the session hashes to.
    New,
    /// The endpoint that the id of the session hashes to: it may remember the session.
    Session,
    /// The endpoint that remembers the session.
    Home,
    /// Another endpoint. The request contains the history and a new session id.
    Resend,
    /// None: the turn fails.
    Refuse,
}

fn plan(situation: &Situation) -> Plan {
    let Situation { affinity, home, has_failed, answers, is_new, takes_history } = *situation;
    // An answer must go to the endpoint that asked: only that one has the pending item.
    let may_resend = affinity == Affinity::Session && !answers && takes_history;
    match home {
        _ if affinity == Affinity::None => Plan::Any,
        _ if is_new => Plan::New,
        Some(SessionAffinity::Here) if has_failed && may_resend => Plan::Resend,
        Some(SessionAffinity::Here) => Plan::Home,
        None if !may_resend => Plan::Session,
        _ if may_resend => Plan::Resend,
        _ => Plan::Refuse,
    }
}

/// The health of an endpoint after a turn. `error` is the error of the turn for its client. `is_reported` is true if
/// the agent reported that error itself.
pub(super) fn outcome(fault: Option<&Fault>, error: Option<&RunError>, is_reported: bool) -> Outcome {
    use FaultKind as K;
    let kind_of = |error: &RunError| error_class::of_run_code(&error.code);
    let kind = fault.map(|fault| fault.kind).or_else(|| error.filter(|_| !is_reported).map(kind_of));
    match kind {
        Some(K::UpstreamTruncated | K::UpstreamGarbage) => Outcome::Failed(Reason::Broken),
        // The endpoint works: it rejected the request with a regular answer.
        Some(
            K::UpstreamRefused
            | K::UpstreamContextTooLong
            | K::UpstreamFiltered
            | K::UpstreamUnsupportedMedia
            | K::UpstreamInputTooLarge
            | K::UpstreamNoSuchModel
            | K::UpstreamCredentials
            | K::UpstreamMisconfigured
            | K::UpstreamRateLimited
            | K::UpstreamQuota
            | K::AgentFailed,
        )
        | None => Outcome::Good,
        Some(_) => Outcome::Neutral,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_of_a_turn() {
        use Affinity::{None as Nowhere, Session, Strict};
        let plan_of = |affinity, home, has_failed, answers, is_new| {
            plan(&Situation { affinity, home, has_failed, answers, is_new, takes_history: true })
        };
        for home in [None, Some(SessionAffinity::Here), Some(SessionAffinity::Away), Some(SessionAffinity::Gone)] {
            for (has_failed, answers) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(plan_of(Nowhere, home, has_failed, answers, false), Plan::Any);
                assert_eq!(plan_of(Session, home, has_failed, answers, true), Plan::New);
                assert_eq!(plan_of(Strict, home, has_failed, answers, true), Plan::New);
            }
        }

        let cases = [
            (Some(SessionAffinity::Here), false, false, Plan::Home, Plan::Home),
            (Some(SessionAffinity::Here), true, false, Plan::Resend, Plan::Home),
            (Some(SessionAffinity::Here), true, true, Plan::Home, Plan::Home),
            (Some(SessionAffinity::Away), false, false, Plan::Resend, Plan::Refuse),
            (Some(SessionAffinity::Away), false, true, Plan::Refuse, Plan::Refuse),
            (Some(SessionAffinity::Gone), false, false, Plan::Resend, Plan::Refuse),
            (Some(SessionAffinity::Gone), false, true, Plan::Refuse, Plan::Refuse),
            (None, false, false, Plan::Resend, Plan::Session),
            (None, false, true, Plan::Session, Plan::Session),
        ];
        for (home, has_failed, answers, session, strict) in cases {
            assert_eq!(plan_of(Session, home, has_failed, answers, false), session, "{home:?} {has_failed} {answers}");
            assert_eq!(plan_of(Strict, home, has_failed, answers, false), strict, "{home:?} {has_failed} {answers}");
            // Without a way to transfer the history, the session is bound to its home.
            let situation =
                Situation { affinity: Session, home, has_failed, answers, is_new: false, takes_history: false };
            assert_eq!(plan(&situation), strict, "{home:?} {has_failed} {answers}");
        }
    }

    #[test]
    fn the_health_of_an_endpoint_after_a_turn() {
        let fault = |kind| Fault::new(kind, "it failed");
        for (kind, expected) in [
            (FaultKind::UpstreamTruncated, Outcome::Failed(Reason::Broken)),
            (FaultKind::UpstreamGarbage, Outcome::Failed(Reason::Broken)),
            (FaultKind::UpstreamRefused, Outcome::Good),
            (FaultKind::UpstreamTimeout, Outcome::Neutral),
            (FaultKind::UpstreamTooLarge, Outcome::Neutral),
            (FaultKind::Canceled, Outcome::Neutral),
            (FaultKind::Internal, Outcome::Neutral),
        ] {
            assert_eq!(outcome(Some(&fault(kind)), None, false), expected, "{kind:?}");
        }

        let truncated = faults::to_run_error(&fault(FaultKind::UpstreamTruncated));
        assert_eq!(outcome(None, Some(&truncated), false), Outcome::Failed(Reason::Broken));
        assert_eq!(outcome(None, Some(&truncated), true), Outcome::Good, "the agent says so itself");
        assert_eq!(outcome(None, None, false), Outcome::Good);
    }
}
