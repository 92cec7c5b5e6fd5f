//! Interfaces that the engine and callers use, besides agents and stores: sending webhooks, reading the keys of token
//! issuers, and sending telemetry. Also the interface of the configuration for the admin listener.
//!
//! The implementations are above or beside the users of these traits. Not here: calls to agents
//! (`interlingua-upstream`) and storage of runs (`interlingua-store`).

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use interlingua_core::public_address::{Policy, RefusedAddress};
use interlingua_core::push::PushRequest;
use serde_json::Value;
use url::Url;

/// The configuration of a running gateway, for operators. All values are JSON without secrets.
pub trait Reload: Send + Sync + 'static {
    /// Reads the configuration again and takes all of it, or keeps the one in force. `Err` has the errors. Has to be
    /// awaited on a thread with a local task set.
    fn reload(&self) -> LocalBoxFuture<'static, Result<Value, Value>>;

    /// When the configuration was read last, and with which outcome.
    fn last(&self) -> Value;

    /// The configuration in force.
    fn config(&self) -> Value;

    /// Checks another text instead of the file: errors, warnings, and the routes it would serve. Blocks: reads the
    /// files that the text names.
    fn check(&self, text: &str) -> Value;

    /// The routes in force.
    fn routes(&self) -> Value;

    /// The agents, with their endpoints.
    fn agents(&self) -> Value;

    /// The callers, with what they use.
    fn callers(&self) -> Value;
}

/// Sends to receivers that clients have named.
pub trait WebhookClient: Send + Sync + 'static {
    /// Resolves the URL's host and checks every address of it against the policy.
    fn check_url(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), RefusedAddress>>;

    /// Sends one request, to an address that is checked as part of the same connection attempt. Resolves when the
    /// receiver has accepted it.
    fn post(&self, url: &str, policy: &Policy, request: PushRequest) -> BoxFuture<'static, Result<(), WebhookError>>;
}

/// Why a request did not arrive.
#[derive(Clone, Debug)]
pub struct WebhookError {
    /// True if trying again could help.
    pub retryable: bool,
    /// For the log.
    pub reason: String,
}

/// Reads what issuers of tokens publish: discovery documents and keys.
pub trait JwksFetcher: Send + Sync + 'static {
    /// The body of a successful answer. Redirects are not followed; time and size are bounded.
    ///
    /// # Errors
    /// Why there is no such body, for the log.
    fn get(&self, url: Url) -> BoxFuture<'static, Result<Bytes, String>>;
}

/// A message to a collector of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
    /// Log records.
    Logs,
}

impl Signal {
    /// Its name in paths and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Sends telemetry to a collector.
pub trait TelemetryClient: Send + Sync + 'static {
    /// Sends an encoded request of OTLP. Resolves in bounded time to the encoded response, which is bounded too.
    fn export(&self, signal: Signal, request: Bytes) -> BoxFuture<'static, Result<Bytes, ExportError>>;
}

/// Why a collector did not take something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportError {
    /// True if the same may be sent again.
    pub retryable: bool,
    /// The pause that the collector asks for.
    pub retry_after: Option<Duration>,
    /// For the log.
    pub reason: String,
}
