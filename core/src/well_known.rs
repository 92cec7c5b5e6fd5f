//! What an agent's own server publishes about it, such as a card: what an adapter wants to know of that, and what was
//! found.
//!
//! Not here: fetching and keeping it, which is the gateway's, and what such a document means, which is the adapter's.

use crate::event::Millis;
use crate::json::Json;

/// A document an agent's server may publish at a place that a protocol has agreed on.
#[derive(Clone, Debug)]
pub struct WellKnownDocument {
    /// The agent, by its name in the configuration: one of the route's.
    pub agent: String,
    /// Where it may lie, best first: paths below the agent's URL, below the URL that one stands under, and below the
    /// root of the host.
    pub paths: &'static [&'static str],
    /// Headers of the request, names in lower case; the operator's are added and win.
    pub headers: &'static [(&'static str, &'static str)],
    /// What is kept of what was found: the URL and the body. None: it is no such document. Called once for each
    /// document fetched, so that reading it, and leaving out what no client may see, costs nobody else anything.
    pub extract: fn(&str, &[u8]) -> Option<Json>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// What was kept of it.
    pub document: Json,
    /// When it was first seen as it is.
    pub since: Millis,
}
