//! The validated settings of an upstream: its servers, their selection, and headers of requests.
//!
//! Not here: the other settings of an agent ([`super::settings::Agent`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::UpstreamCapabilities;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use super::options::Options;
use interlingua_base::identity::IdentityKey;
use interlingua_base::tls::ClientTls;

/// Protocol and address of an agent.
#[derive(Clone)]
pub struct Upstream {
    /// The name of a protocol that is compiled in.
    pub protocol: String,
    /// Never empty, except for built-in agents.
    pub endpoints: Vec<Endpoint>,
    /// The endpoint for the turns of a session, if there are several.
    pub affinity: Affinity,
    /// Health checks. `None`: an endpoint's health is judged by its runs alone.
    pub health: Option<HealthCheck>,
    /// Ejection of failing endpoints.
    pub eject: Eject,
    /// Limits of retries.
    pub retry_budget: RetryBudget,
    /// Limits of the runs on each endpoint.
    pub limits: UpstreamLimits,
    /// Headers to add to every request.
    pub headers: Vec<Header>,
    /// Names, in lower case, of forwarded headers of a client's request.
    pub forward: Vec<String>,
    /// The identity of the caller that the agent receives.
    pub identity: Identity,
    /// TLS towards the agent's servers. `None`: the authorities of the system, and no client certificate.
    pub tls: Option<UpstreamTls>,
    /// The proxy for all requests.
    pub proxy: Option<Proxy>,
    /// Timeouts of requests to the agent.
    pub timeouts: Timeouts,
    /// Retries of a request that the agent did not process.
    pub retries: u32,
    /// The largest event accepted, in bytes.
    pub max_event: usize,
    /// The agent's capabilities with these options and settings.
    pub capabilities: UpstreamCapabilities,
    /// The protocol's own options.
    pub options: Options,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Upstream")
            .field("protocol", &self.protocol)
            .field("endpoints", &self.endpoints)
            .field("affinity", &self.affinity)
            .field("health", &self.health)
            .field("eject", &self.eject)
            .field("retry_budget", &self.retry_budget)
            .field("limits", &self.limits)
            .field("headers", &self.headers)
            .field("forward", &self.forward)
            .field("identity", &self.identity)
            .field("tls", &self.tls)
            .field("proxy", &self.proxy)
            .field("timeouts", &self.timeouts)
            .field("retries", &self.retries)
            .field("max_event", &self.max_event)
            .field("capabilities", &self.capabilities)
            .field("options", &self.options)
            .finish()
    }
}

/// A header to add to every request. Its value is never printed, secret or not.
#[derive(Clone, Debug)]
pub struct Header {
    /// In lower case.
    pub name: String,
    /// The complete value, one line of printable ASCII.
    pub value: SecretString,
}

/// Timeouts of requests to an agent. All are greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including name lookup and TLS.
    pub connect: Duration,
    /// For the first byte of the response, after the request was sent.
    pub first_byte: Duration,
    /// Between two reads of the response.
    pub idle: Duration,
    /// For the complete response.
    pub total: Duration,
}

/// A server of an agent.
#[derive(Clone)]
pub struct Endpoint {
    /// The URL for requests, including a query.
    pub url: Url,
    /// Share of the runs, from 1 to 100, relative to the other endpoints.
    pub weight: u32,
}

impl Endpoint {
    /// The URL without its query, which may contain a key, for messages.
    pub fn shown(&self) -> String {
        format!("{}{}", self.url.origin().ascii_serialization(), self.url.path())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Endpoint").field("url", &self.shown()).field("weight", &self.weight).finish()
    }
}

/// The endpoint for the turns of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Affinity {
    /// Any endpoint.
    None,
    /// The endpoint that remembers the session. While it is ejected, another endpoint gets the history.
    Session,
    /// The endpoint that remembers the session. While it is ejected, the turn is refused.
    Strict,
}

/// The identity of the caller that an agent receives.
#[derive(Clone, Debug)]
pub enum Identity {
    /// No identity.
    None,
    /// An id that is derived for this agent, in the header `x-interlingua-caller`.
    Derived,
    /// A token signed with this key, in the header `x-interlingua-identity`.
    Jwt(Arc<IdentityKey>),
}

impl Identity {
    #[must_use]
    /// The value in the file.
    pub const fn kind(&self) -> IdentityKind {
        match self {
            Self::None => IdentityKind::None,
            Self::Derived => IdentityKind::Derived,
            Self::Jwt(_) => IdentityKind::Jwt,
        }
    }
}

/// [`Identity`] without its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IdentityKind {
    /// No identity.
    None,
    /// An id that no other agent gets, in the header `x-interlingua-caller`.
    Derived,
    /// A signed token that is valid for one minute, in the header `x-interlingua-identity`.
    Jwt,
}

/// TLS towards an agent's servers.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// The trusted authorities, and the certificate of the gateway.
    pub trust: ClientTls,
    /// Whether authorities other than the system's are trusted.
    pub has_ca: bool,
    /// Whether the gateway presents a certificate.
    pub has_certificate: bool,
    /// The name in the certificates of the servers, if it differs from the host of their URL.
    pub server_name: Option<String>,
}

/// An HTTP proxy.
#[derive(Clone)]
pub struct Proxy {
    /// The URL of the proxy, which begins with `http://`.
    pub url: Url,
    /// User name and password.
    pub credentials: Option<(String, SecretString)>,
}

impl Proxy {
    /// A proxy without credentials.
    pub(super) fn open(url: Url) -> Self {
        Self { url, credentials: None }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Proxy").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Health checks of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path, from the root of the endpoint's origin.
    pub path: String,
    /// The pause between two checks.
    pub every: Duration,
    /// Timeout of a check.
    pub timeout: Duration,
    /// Consecutive successes after which an endpoint is healthy.
    pub healthy: u32,
    /// Consecutive failures after which an endpoint is unhealthy.
    pub unhealthy: u32,
}

/// Ejection of failing endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eject {
    /// Consecutive failures that eject an endpoint.
    pub failures: u32,
    /// Share of failed runs, from 0 to 1, over ten seconds, that ejects an endpoint.
    pub share: f64,
    /// Duration of the first ejection. Each further ejection is this much longer.
    pub pause: Duration,
    /// Maximum duration of an ejection.
    pub longest: Duration,
    /// Maximum share of the endpoints, from 0 to 1, that is ejected at the same time.
    pub most: f64,
}

/// Limits of retries. The larger limit applies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryBudget {
    /// Retries per request, from 0 to 1, over the last ten seconds.
    pub share: f64,
    /// Retries per second that are always allowed.
    pub least: u32,
}

/// Limits of the runs on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamLimits {
    /// Concurrent runs.
    pub runs: u32,
    /// Runs that wait for one of these to end.
    pub queue: u32,
    /// Maximum waiting time.
    pub wait: Duration,
}
