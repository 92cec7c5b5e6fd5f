//! Stop requests to agents whose answer is no longer read.
//!
//! Not here: canceling a turn ([`crate::turns::turn_driver`]) and the protocol of a stop request
//! ([`interlingua_upstream`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::Cancel;
use interlingua_core::connector::TurnRequest;
use interlingua_core::model::AgentRequest;
use interlingua_core::{Fault, RunId};
use tokio::time::timeout;

use super::active_run::ActiveRun;
use super::handle::RunHandle;
use super::table::RunTable;
use crate::agent::Agent;
use interlingua_upstream::pool::{PickRequest, Target};
use interlingua_upstream::{SendOptions, StopOutcome};

/// Timeout of a stop request for a run of a lost gateway. The next turn of the session waits for it.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// Sends a stop request, in the background, to the agent of a run whose gateway was lost. That gateway may be paused
/// with its connection still open. No effect for agents that stop when their connection closes, or that need an id that
/// only the lost gateway received.
pub(crate) fn stop_lost(runs: &Arc<RunTable>, run: &Arc<ActiveRun>) {
    // If the agent was removed from the configuration, `run.agent` is another one.
    let is_its_agent = run.view(|view| view.run().agent == run.agent.name);
    if !is_its_agent || run.agent.upstream.capabilities().cancel != Cancel::Request {
        return;
    }

    let (runs, run) = (Arc::clone(runs), Arc::clone(run));
    tokio::task::spawn_local(async move {
        let fault = match timeout(STOP_TIMEOUT, send_stop(&runs, &run)).await {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault.message,
            Err(_) => "it took too long".to_owned(),
        };
        tracing::warn!(run = %run.id(), agent = run.agent.name, "cannot stop the agent of a run whose gateway was lost: {fault}");
    });
}

async fn send_stop(runs: &Arc<RunTable>, run: &Arc<ActiveRun>) -> Result<(), Fault> {
    let session = runs.session_of(&RunHandle::InMemory(run.pin())).await?;
    // Some agents stop everything in a session, so acquire its turn: the next turn must not be running.
    let Some(_turn) = runs.sessions().try_turn(&session, None).await? else { return Ok(()) };

    let known = session.snapshot();
    let upstream_id = known.upstream_id;
    let mut request = run.view(|view| view.info.request.clone());
    let user = request.user_id.take().or(known.user).unwrap_or_else(|| session.own_user());
    let request = AgentRequest {
        id: Some(format!("response_{}", run.id())),
        user_id: Some(session.upstream_user(&user, &upstream_id)),
        session_id: Some(upstream_id.clone()),
        ..request
    };

    let agent = &run.agent;
    let seat = match agent.upstream.pool() {
        Some(pool) => {
            let target = known.home.as_ref().map_or(Target::Session(&upstream_id), Target::Only);
            Some(pool.seat(PickRequest { target, avoid: None }).await?)
        }
        None => None,
    };
    let turn = TurnRequest::new(&request, &known.connector_state, &[]).with_agent(&agent.name);
    let conversation = agent.upstream.start(&turn, SendOptions { seat, ..SendOptions::default() })?;
    if let Some(stopping) = conversation.stop() {
        note_stop(run.id(), agent, stopping.await);
    }
    Ok(())
}

/// Counts a stop request. Logs the reason if the agent did not stop.
pub(crate) fn note_stop(run: RunId, agent: &Agent, stopped: StopOutcome) {
    let result = match stopped {
        StopOutcome::Sent => "sent",
        StopOutcome::Refused(why) => {
            tracing::warn!(%run, agent = agent.name, "the agent refused to stop: {why}");
            "refused"
        }
        StopOutcome::Failed(fault) => {
            let detail = fault.detail.as_deref();
            tracing::warn!(%run, agent = agent.name, detail, "the request to stop did not reach the agent: {}", fault.message);
            "failed"
        }
        StopOutcome::Unknown => {
            tracing::warn!(%run, agent = agent.name, "cannot ask the agent to stop: it has not sent the id of its work yet");
            "unknown"
        }
        StopOutcome::Ended => return,
    };
    agent.metrics.canceled(result);
}
