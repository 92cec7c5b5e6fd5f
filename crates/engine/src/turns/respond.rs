//! How a call that starts a turn is answered: at once, as a stream, or once the turn has ended.

use std::time::Duration;

use interlingua_core::policy::FirstResponse;
use interlingua_core::{Delivery, Event, Fault, RunPolicy};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::runs::{Answer, Follower};

/// What a client waits for.
pub(crate) struct Wanted {
    pub(super) delivery: Delivery,
    pub(crate) policy: RunPolicy,
    /// How long a stream is held back for the agent to begin.
    pub(super) first_event_timeout: Duration,
    /// The index of the turn in its run.
    pub(super) turn: usize,
}

impl Wanted {
    /// Answers as the client wants. `started` gets a value once the agent has begun, or the reason why it never did.
    pub(super) async fn respond(
        self,
        mut follower: Follower,
        started: oneshot::Receiver<Result<(), Fault>>,
    ) -> Result<Answer, Fault> {
        // A client that does not wait for the agent drops this at once: the driver has to know.
        let started = match self.policy.first_response {
            FirstResponse::Immediate => None,
            FirstResponse::AwaitAgent { .. } => Some(started),
        };

        match self.delivery {
            Delivery::Background => Ok(Answer::Run(follower.run())),
            Delivery::Stream => {
                // After that time the stream begins without the agent: a client that has left is noticed then.
                if let Some(started) = started
                    && let Ok(Ok(started)) = timeout(self.first_event_timeout, started).await
                {
                    started?;
                }
                Ok(Answer::Steps { follower, attach: false })
            }
            Delivery::Collect => {
                let ended = turn_ended(&mut follower, self.turn, started);
                match self.policy.collect_timeout {
                    // After that time the client gets the run as it stands.
                    Some(after) => timeout(after, ended).await.unwrap_or(Ok(()))?,
                    None => ended.await?,
                }
                // The turn's last step becomes visible together with what the run has come to.
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
