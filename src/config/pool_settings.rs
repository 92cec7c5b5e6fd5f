//! The settings of an agent's endpoints, as used.
//!
//! Not here: what else belongs to an upstream ([`super::settings::Upstream`]).

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

/// A server of an agent.
#[derive(Clone)]
pub struct Endpoint {
    /// Where it is.
    pub url: Url,
    /// Its share of the runs, from 1 to 100.
    pub weight: u32,
}

impl Endpoint {
    /// Its URL as it may be shown: the query may hold a key.
    pub fn shown(&self) -> String {
        format!("{}{}", self.url.origin().ascii_serialization(), self.url.path())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").field("url", &self.shown()).field("weight", &self.weight).finish()
    }
}

/// Which endpoint takes the turns of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// Any.
    None,
    /// The one that remembers it. If that is out, another one is sent the history.
    Session,
    /// The one that remembers it. If that is out, the turn is refused.
    Strict,
}

/// How endpoints are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// From the root of the endpoint's origin on.
    pub path: String,
    /// The pause between two checks.
    pub every: Duration,
    /// Limit for an answer.
    pub timeout: Duration,
    /// Successes in a row that make an endpoint healthy.
    pub healthy: u32,
    /// Failures in a row that make it unhealthy.
    pub unhealthy: u32,
}

/// When an endpoint gets no runs for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eject {
    /// After this many failures in a row.
    pub failures: u32,
    /// Or if this share of the runs of ten seconds failed, from 0 to 1.
    pub share: f64,
    /// How long the first time; each further time it is this much longer.
    pub pause: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// At most this share of the endpoints is out at a time, from 0 to 1.
    pub most: f64,
}

/// How many requests are sent again, within ten seconds: the larger limit applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Retries per request, from 0 to 1.
    pub share: f64,
    /// Retries per second that are always allowed.
    pub least: u32,
}

/// How many runs an endpoint takes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Runs under way.
    pub runs: u32,
    /// Runs that wait for a place.
    pub queue: u32,
    /// How long they wait.
    pub wait: Duration,
}
