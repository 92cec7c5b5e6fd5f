//! The readiness of this gateway for load balancers: `/readyz`. Not here: the reasons, which only operators receive
//! (`interlingua_admin`).

use serde_json::{Value, json};

use interlingua_engine::Engine;
use interlingua_store::{Health, LeaseState};

/// Status and body of the response. A gateway with its own store is not ready while the store fails. A gateway that
/// shares a store stays ready once it has joined: the store fails for all gateways at once, and if the load balancer
/// removed all of them, clients would not receive `Retry-After`.
pub fn readiness(engine: &Engine) -> (u16, Value) {
    if engine.is_stopping() {
        return (503, json!({ "status": "shutting down" }));
    }

    // The error itself is only logged, because it may contain names of files and hosts.
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
