//! Configuration of the scenarios' gateways. Not here: the processes (`interlingua_testing_support::cluster`).

pub(crate) use interlingua_testing_support::cluster::{GatewayProcess as Gateway, answers};

/// Routes for the scenarios, in front of the demo agent: `/agents/demo` (Agent API), `/v1` (Responses), `/a2a/demo`.
pub(crate) const ROUTES: &str = r#"
[agents.demo]
upstream = { protocol = "demo" }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"

[[routes]]
protocol = "responses"
path = "/v1"

[[routes]]
protocol = "a2a"
path = "/a2a/{agent}"
"#;

/// A store that stays small and one route, `/agents/demo`, in front of a demo agent that answers at once.
pub(crate) const FAST_DEMO: &str = r#"
[store]
kind = "memory"
retention = { runs = 1000 }

[agents.demo]
upstream = { protocol = "demo", options = { pace_ms = 0 } }

[[routes]]
protocol = "agent-api"
path = "/agents/{agent}"
"#;
