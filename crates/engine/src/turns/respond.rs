//! The response to a call that starts a turn: immediate, as a stream, or after the turn has ended.

use std::time::Duration;

use interlingua_core::policy::FirstResponse;
use interlingua_core::{Delivery, Event, Fault, RunPolicy};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::runs::{Answer, Follower};

/// The response mode that the client selected.
pub(crate) struct Wanted {
    pub(super) delivery: Delivery,
    pub(crate) policy: RunPolicy,
    /// A stream begins when the agent has started, or after this time.
    pub(super) first_event_timeout: Duration,
    /// The index of the turn in its run.
    pub(super) turn: usize,
    /// True if another request with the same message started the turn.
    pub(super) is_duplicate: bool,
}

impl Wanted {
    /// Waits as long as the mode requires. `started` resolves when the agent has started, or with the reason why it could
    /// not.
    pub(super) async fn respond(
        self,
        mut follower: Follower,
        started: oneshot::Receiver<Result<(), Fault>>,
    ) -> Result<Answer, Fault> {
        // If the client does not wait for the agent, drop the receiver now: the driver checks whether it is closed.
        let started = match self.policy.first_response {
            FirstResponse::Immediate => None,
            FirstResponse::AwaitAgent { .. } => Some(started),
        };

        match self.delivery {
            Delivery::Background => Ok(Answer::Run(follower.run())),
            Delivery::Stream => {
                // After the timeout the stream begins without the agent: a disconnected client is only detected by
                // writing to it.
                if let Some(started) = started
                    && let Ok(Ok(started)) = timeout(self.first_event_timeout, started).await
                {
                    started?;
                }
                Ok(Answer::Steps { follower, attach: false })
            }
            Delivery::Collect => {
                let ended = async {
                    turn_ended(&mut follower, self.turn, started).await?;
                    if self.is_duplicate {
                        // Its own turn, which was queued, does not continue the run: the client gets the state without it.
                        follower.until_next_known().await;
                    }
                    Ok::<(), Fault>(())
                };
                match self.policy.collect_timeout {
                    // After the timeout the client gets the run in its current state.
                    Some(after) => timeout(after, ended).await.unwrap_or(Ok(()))?,
                    None => ended.await?,
                }
                // The last step of the turn becomes visible together with the new state of the run.
                Ok(Answer::Run(follower.run()))
            }
        }
    }
}

async fn turn_ended(
    follower: &mut Follower,
    turn: usize,
    started: Option<oneshot::Receiver<Result<(), Fault>>>,
) -> Result<(), Fault> {
    if let Some(started) = started
        && let Ok(started) = started.await
    {
        started?;
    }
    let is_end = |event: Event| matches!(event, Event::TurnFinished { turn: ended, .. } if ended as usize >= turn);
    follower.until(|step| is_end(step.event)).await;
    Ok(())
}
