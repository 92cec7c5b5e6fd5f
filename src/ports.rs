//! What the engine and callers need of the world besides agents and stores, as traits: sending webhooks, and reading the
//! keys of token issuers.
//!
//! Below those who call these, and the rooms that implement them. Not here: the way to an agent
//! ([`crate::upstream::Upstream`]) and what keeps runs ([`crate::store::Store`]).

use bytes::Bytes;
use futures_util::future::BoxFuture;
use interlingua_core::public_address::{Policy, Refused};
use interlingua_core::push::PushRequest;
use url::Url;

/// Sends to receivers that clients have named.
pub trait WebhookClient: Send + Sync + 'static {
    /// Resolves the URL's host and checks every address of it against the policy.
    fn check_url(&self, url: &str, policy: &Policy) -> BoxFuture<'static, Result<(), Refused>>;

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
