//! Whether requests should be sent to this gateway: `/readyz`. Not here: the reasons, which only operators see
//! ([`super::admin`]).

use serde_json::{Value, json};

use crate::engine::Engine;
use crate::store::{Health, LeaseState};

/// Status and body. A store of its own that fails makes a gateway useless. One that several gateways share fails for
/// all of them alike: without any of them behind a load balancer, clients would not even learn when to try again.
pub(super) fn readiness(engine: &Engine) -> (u16, Value) {
    if engine.is_stopping() {
        return (503, json!({ "status": "shutting down" }));
    }

    // The reason is only logged, since it may contain names of files and hosts.
    let failing_for = match engine.health() {
        Health::Failing { since, .. } => Some(since.elapsed().as_secs()),
        Health::Good => None,
    };
    let Some(replica) = engine.replica() else {
        return match failing_for {
            Some(seconds) => (503, json!({ "status": "not ready", "store": "failing", "for_seconds": seconds })),
            None => (200, json!({ "status": "ready" })),
        };
    };

    let is_joining = replica.lease == LeaseState::Joining;
    let mut body = json!({
        "status": if is_joining { "not ready" } else { "ready" },
        "store": if is_joining || failing_for.is_some() { "unavailable" } else { "available" },
        "lease": replica.lease.as_str(),
    });
    if let Some(seconds) = failing_for {
        body["for_seconds"] = seconds.into();
    }
    if let Some(since) = replica.since_renewal {
        body["renewed_seconds_ago"] = since.as_secs().into();
    }
    (if is_joining { 503 } else { 200 }, body)
}
