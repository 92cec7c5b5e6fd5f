//! Calling the agent: at which of its endpoints a turn is begun, and at which other one if that does not take it.
//!
//! [`plan`] decides where, and [`outcome`] what a turn says about its endpoint; both are pure. Not here: which
//! endpoints are well ([`interlingua_upstream::pool`]), and reading the answer ([`super::listen`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::HistoryNeed;
use interlingua_core::run::RunError;
use interlingua_core::{Fault, FaultKind, error_class};

use super::context::{ContextBuilder, takes_history};
use crate::agent::Agent;
use crate::faults;
use crate::runs::{Prepared, Turn};
use crate::sessions::SessionDoc;
use interlingua_upstream::pool::{
    Affinity, EndpointKey, EndpointPermit, EndpointPool, Outcome, PickRequest, Reason, SessionAffinity, Target,
};
use interlingua_upstream::{self as upstream, Conversation, SendOptions};

/// The pause before a turn is begun again; it doubles each time.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause that an endpoint may ask for before the same endpoint is asked again.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Begins turns.
pub(super) struct Caller<'a> {
    pub(crate) agent: &'a Agent,
    pub(super) turn: &'a Turn,
    pub(crate) context: &'a ContextBuilder,
}

impl Caller<'_> {
    /// Begins a turn. `conversation` is set once something may have been sent, also if this is canceled.
    pub(super) async fn call(
        &self,
        prepared: &mut Prepared,
        conversation: &mut Option<Conversation>,
    ) -> Result<(), Fault> {
        let mut may_be_known = false;
        let begun = match self.agent.upstream.pool() {
            Some(pool) => self.begin(pool, prepared, conversation, &mut may_be_known).await,
            None => self.begin_here(prepared, conversation, &mut may_be_known).await,
        };
        prepared.is_unknown = begun.is_err() && !may_be_known;
        begun
    }

    /// Begins a turn with an agent that has no endpoints.
    async fn begin_here(
        &self,
        prepared: &Prepared,
        conversation: &mut Option<Conversation>,
        may_be_known: &mut bool,
    ) -> Result<(), Fault> {
        self.turn.attempts.placed(None);
        let started = self.agent.upstream.start(&prepared.turn_request(self.agent), self.via(None))?;
        let started = conversation.insert(started);
        let begun = started.begin().await;
        *may_be_known = started.may_be_known();
        begun
    }

    /// `may_be_known`: set once an endpoint may know of the turn.
    async fn begin(
        &self,
        pool: &Arc<EndpointPool>,
        prepared: &mut Prepared,
        conversation: &mut Option<Conversation>,
        may_be_known: &mut bool,
    ) -> Result<(), Fault> {
        let (home, was_new) = {
            let doc = self.turn.session.doc();
            (doc.home.clone(), is_new(&doc, prepared))
        };
        let (mut tried, mut avoid, mut last) = (0, None, None::<Fault>);
        // Where the turn is begun again with the history.
        let mut again_at: Option<EndpointKey> = None;
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
            let seat = match again_at.take() {
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
            self.turn.attempts.placed(Some(seat.url()));
            // Nothing is awaited between the two: the place belongs to the conversation.
            let via = self.via(Some(seat));
            let started = conversation.insert(self.agent.upstream.start(&prepared.turn_request(self.agent), via)?);
            if self.has_forgotten(started, prepared) {
                self.add_history(prepared, conversation).await?;
                again_at = Some(key);
                continue;
            }
            let Err(fault) = started.begin().await else { return Ok(()) };

            if self.has_forgotten(started, prepared) {
                // It has refused the turn, and knows nothing of it.
                started.report(outcome(Some(&fault), None, false));
                self.add_history(prepared, conversation).await?;
                again_at = Some(key);
                continue;
            }
            *may_be_known |= started.may_be_known();
            started.report(outcome(Some(&fault), None, false));
            let moves = pool.len() > 1 && started.can_move() && tried < pool.retries() && pool.may_retry(endpoint);
            if !moves {
                return Err(fault);
            }

            self.turn.attempts.retried(fault.code());
            tracing::debug!(%fault, tried, "the agent did not take the turn: trying again");
            // Its place is free for others meanwhile.
            *conversation = None;
            tokio::time::sleep(RETRY_PAUSE * 2_u32.saturating_pow(tried)).await;
            (tried, avoid, last) = (tried + 1, Some(endpoint), Some(fault));
        }
    }

    /// True if the agent cannot take the turn without the history, which was not sent yet.
    fn has_forgotten(&self, started: &Conversation, prepared: &Prepared) -> bool {
        let may_send = prepared.history.is_empty() && prepared.resent.is_none() && takes_history(self.agent);
        may_send && started.needs_history()
    }

    /// Puts the history into the request, which is then begun again.
    async fn add_history(&self, prepared: &mut Prepared, conversation: &mut Option<Conversation>) -> Result<(), Fault> {
        // Its place at the endpoint is the next one's.
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

    /// The endpoint that a turn is begun at. `last`: what the turn failed with at another one.
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

    fn via(&self, seat: Option<EndpointPermit>) -> SendOptions<'_> {
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

    /// Where turns of a session go: an agent that remembers nothing can be asked anywhere.
    fn affinity(&self, pool: &Arc<EndpointPool>) -> Affinity {
        let affinity = pool.affinity();
        let remembers = || self.agent.upstream.capabilities().history != HistoryNeed::SentEachTime;
        if affinity != Affinity::None && remembers() { affinity } else { Affinity::None }
    }
}

/// True if no endpoint remembers the session as the request names it.
fn is_new(doc: &SessionDoc, prepared: &Prepared) -> bool {
    let known = doc.upstream_id.as_ref().unwrap_or(&doc.id);
    prepared.upstream_id != *known || (doc.home.is_none() && doc.seen == 0)
}

/// What is known before a turn is begun.
#[derive(Clone, Copy, Debug)]
struct Situation {
    affinity: Affinity,
    /// Where the session's home is. `None`: it is not known.
    home: Option<SessionAffinity>,
    /// The turn was begun before, and an endpoint did not take it.
    has_failed: bool,
    /// The turn answers what the agent asked.
    answers: bool,
    /// No endpoint remembers the session.
    is_new: bool,
    /// The agent's protocol has a place for earlier turns.
    takes_history: bool,
}

/// Where a turn is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Any,
    /// At an endpoint with a free place, preferably the one that the session's id points to.
    New,
    /// At the endpoint that the session's id points to: it may remember the session.
    Session,
    Home,
    /// At another endpoint, with the history, as a session of a new id.
    Resend,
    Refuse,
}

fn plan(situation: &Situation) -> Plan {
    let Situation { affinity, home, has_failed, answers, is_new, takes_history } = *situation;
    // What an agent waits for exists only where it asked.
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

/// What a turn that has ended says about its endpoint. `error`: how it failed, for its client. `is_reported`: the agent
/// reported the failure itself.
pub(super) fn outcome(fault: Option<&Fault>, error: Option<&RunError>, is_reported: bool) -> Outcome {
    use FaultKind as K;
    let kind_of = |error: &RunError| error_class::of_run_code(&error.code);
    let kind = fault.map(|fault| fault.kind).or_else(|| error.filter(|_| !is_reported).map(kind_of));
    match kind {
        Some(K::UpstreamTruncated | K::UpstreamGarbage) => Outcome::Failed(Reason::Broken),
        // It works, and answers what it thinks of the request.
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
    fn where_a_turn_is_begun() {
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
            // What cannot be sent elsewhere binds a session to its home.
            let situation =
                Situation { affinity: Session, home, has_failed, answers, is_new: false, takes_history: false };
            assert_eq!(plan(&situation), strict, "{home:?} {has_failed} {answers}");
        }
    }

    #[test]
    fn what_a_turn_says_about_its_endpoint() {
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
