//! Changed and lost content: one log line and the counters of a run.
//!
//! Not here: noticing it, which adapters do ([`interlingua_core::loss`]).

use std::fmt::Write as _;
use std::sync::Arc;

use interlingua_core::loss::{Change, Loss};
use serde::Serialize;

use super::parts::{RequestParts, TurnPart};
use crate::metrics::{ContentLost, Metrics};

/// Where content was lost or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    /// On the way between the client and the gateway.
    Client,
    /// On the way between the gateway and the agent.
    Agent,
}

impl Side {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Agent => "agent",
        }
    }
}

/// A loss, as the access log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LossAt {
    side: Side,
    #[serde(flatten)]
    loss: Loss,
}

/// The losses of a run: those of its turn, and those of the response to the request that began it. A response that only
/// shows a run again, or another one's, has none that count.
pub(super) fn in_request(parts: &RequestParts) -> impl Iterator<Item = LossAt> + '_ {
    let at = |side| move |loss: &Loss| LossAt { side, loss: *loss };
    let turn = parts.turn.iter();
    turn.flat_map(move |turn| parts.losses.iter().map(at(Side::Client)).chain(turn.losses.iter().map(at(Side::Agent))))
}

/// Counts the losses of a run, and writes its line if there are any.
pub(super) fn report(parts: &RequestParts, metrics: &Metrics) {
    let Some(turn) = parts.turn.as_ref().filter(|turn| !turn.losses.is_empty() || !parts.losses.is_empty()) else {
        return;
    };

    let agent: Arc<str> = turn.agent.as_str().into();
    let (mut lost, mut changed) = (String::new(), String::new());
    for LossAt { side, loss } in in_request(parts) {
        metrics.content_lost(&ContentLost {
            agent: Arc::clone(&agent),
            protocol: parts.protocol,
            side: side.as_str(),
            kind: loss.kind.as_str(),
            change: loss.change.as_str(),
            count: loss.count,
        });
        let list = if loss.change == Change::Lost { &mut lost } else { &mut changed };
        let _ = write!(list, "{}{loss}", if list.is_empty() { "" } else { "; " });
    }
    log(parts, turn, &lost, &changed);
}

fn log(parts: &RequestParts, turn: &TurnPart, lost: &str, changed: &str) {
    let given = |list: &'_ str| (!list.is_empty()).then(|| list.to_owned());
    tracing::info!(
        run = turn.run,
        agent = turn.agent,
        route = parts.route.as_deref(),
        protocol = parts.protocol,
        agent_protocol = &*turn.provider,
        request = parts.id,
        lost = given(lost),
        changed = given(changed),
        "content lost or changed"
    );
}

#[cfg(test)]
mod tests {
    use interlingua_core::loss::{ContentKind, Losses};

    use super::*;

    #[test]
    fn only_the_request_that_started_a_turn_reports_losses() {
        let mut client = Losses::new();
        client.lost(ContentKind::Reasoning, "this protocol has none");
        client.lost(ContentKind::Reasoning, "this protocol has none");
        let mut agent = Losses::new();
        agent.changed(ContentKind::Usage, "counted again");
        let mut parts = RequestParts { losses: client.as_slice().to_vec(), ..RequestParts::default() };
        assert_eq!(in_request(&parts).count(), 0);

        parts.turn = Some(TurnPart { losses: agent.as_slice().to_vec(), ..TurnPart::default() });
        let found = serde_json::to_value(in_request(&parts).collect::<Vec<_>>()).expect("JSON");
        assert_eq!(
            found,
            serde_json::json!([
                { "side": "client", "kind": "reasoning", "change": "lost", "how": "this protocol has none", "count": 2 },
                { "side": "agent", "kind": "usage", "change": "changed", "how": "counted again", "count": 1 }
            ])
        );
    }
}
