//! The settings of an upstream, as used: its servers, how they are chosen, and what is sent to them.
//!
//! Not here: what else belongs to an agent ([`super::settings::Agent`]).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use interlingua_core::capability::UpstreamCapabilities;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use url::Url;

use super::options::Options;
use crate::identity::IdentityKey;
use crate::tls::ClientTls;

/// How an agent is reached.
#[derive(Clone)]
pub struct Upstream {
    /// The name of a protocol that is compiled in.
    pub protocol: String,
    /// Never empty, except for agents that are part of the gateway.
    pub endpoints: Vec<Endpoint>,
    /// Which endpoint takes the turns of a session, if there are several.
    pub affinity: Affinity,
    /// How the endpoints are checked. `None`: only by the runs they get.
    pub health: Option<HealthCheck>,
    /// When endpoints get no runs for a while.
    pub eject: Eject,
    /// How many requests are sent again.
    pub retry_budget: RetryBudget,
    /// How many runs each endpoint takes at a time.
    pub limits: UpstreamLimits,
    /// Headers to add to every request.
    pub headers: Vec<Header>,
    /// Names, in lower case, of the headers of a client's request that the agent gets.
    pub forward: Vec<String>,
    /// What the agent learns of the caller.
    pub identity: Identity,
    /// TLS towards its servers. `None`: as the system has it.
    pub tls: Option<UpstreamTls>,
    /// The proxy that all requests go through.
    pub proxy: Option<Proxy>,
    /// How long the gateway waits for the upstream.
    pub timeouts: Timeouts,
    /// How often a request is retried if the agent cannot have started on it.
    pub retries: u32,
    /// The largest event accepted, in bytes.
    pub max_event: usize,
    /// What the agent takes and gives, with the options and settings as they are.
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

/// How long the gateway waits for an upstream. All are greater than zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit for a connection, name lookup and TLS included.
    pub connect: Duration,
    /// For the first byte of the response, once the request is sent.
    pub first_byte: Duration,
    /// Between two reads of the response.
    pub idle: Duration,
    /// For the complete response.
    pub total: Duration,
}

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

/// What an agent learns of the caller.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Nothing.
    None,
    /// An id that no other agent gets.
    Derived,
    /// A token, signed with this key.
    Jwt(Arc<IdentityKey>),
}

impl Identity {
    /// The value in the file.
    #[must_use]
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
    /// Nothing.
    None,
    /// An id that no other agent gets, in the header `x-interlingua-caller`.
    Derived,
    /// A short-lived token, in the header `x-interlingua-identity`.
    Jwt,
}

/// TLS towards an agent's servers.
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Who is trusted, and the certificate that the gateway shows.
    pub trust: ClientTls,
    /// True if authorities other than the system's are trusted.
    pub has_ca: bool,
    /// True if the gateway shows a certificate.
    pub has_certificate: bool,
    /// The name in the certificates of the servers, if that is not the host of their URL.
    pub server_name: Option<String>,
}

/// A proxy.
#[derive(Clone)]
pub struct Proxy {
    /// Where it is.
    pub url: Url,
    /// Name and password.
    pub credentials: Option<(String, SecretString)>,
}

impl Proxy {
    /// One that asks for no credentials.
    pub(super) fn open(url: Url) -> Self {
        Self { url, credentials: None }
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Proxy").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
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
