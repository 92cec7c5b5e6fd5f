//! Documents that an agent's own server publishes about the agent, such as an agent card.
//!
//! Not here: fetching and caching (the gateway), and interpreting the document (the adapter).

use crate::event::Millis;
use crate::json::Json;

/// Describes a document that an agent's server may publish at a path which a protocol defines.
#[derive(Clone, Debug)]
pub struct WellKnownDocument {
    /// The agent's name in the configuration; one of the route's agents.
    pub agent: String,
    /// Candidate paths, best first. Each is tried below the agent's URL, below its parent URL, and below the root of
    /// the host.
    pub paths: &'static [&'static str],
    /// Request headers, names in lower case. The operator's headers are added and take precedence.
    pub headers: &'static [(&'static str, &'static str)],
    /// Extracts what is cached, given the URL and the body. `None`: the body is not such a document. Called once per
    /// fetched document, so parsing and removing what clients must not see happens once.
    pub extract: fn(&str, &[u8]) -> Option<Json>,
}

/// A fetched document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// The extracted content.
    pub document: Json,
    /// When this version was first seen.
    pub since: Millis,
}
