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
    /// the host. Not used if the options of the agent name the document's URL
    /// ([`crate::connector::Connector::document_lookup`]).
    pub paths: &'static [&'static str],
    /// Request headers, names in lower case. The operator's headers are added and take precedence.
    pub headers: &'static [(&'static str, &'static str)],
    /// Extracts the content to cache, from the URLs of the document and of the agent, and from the body. `None`: the
    /// body is not such a document. Called once per fetched document, so that it is parsed once; it also removes
    /// content that clients must not see.
    pub extract: fn(&[&str], &[u8]) -> Option<Json>,
}

/// A document that was fetched from the server of an agent, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedDocument {
    /// The extracted content.
    pub document: Json,
    /// When this version was first seen.
    pub since: Millis,
}
