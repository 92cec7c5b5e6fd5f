//! Signs by which people and programs recognize a server of a protocol without running its agent: paths, published
//! documents, fields of requests, names of products.
//!
//! A protocol for agents declares them ([`UpstreamAdapter::SIGNS`](crate::connector::UpstreamAdapter::SIGNS)). The
//! command line uses them to guess the protocol of a URL, and to find a configured protocol that the server does not
//! have; the configuration uses them to correct unknown names. Not here: the requests, and questions that only one
//! connector can ask ([`crate::probe`]).

use serde_json::Value;

/// Signs of the servers of one protocol.
#[derive(Clone, Copy, Debug)]
pub struct ServerSigns {
    /// Paths of the endpoint that runs the agent, below the URL of the server. A URL that ends in one of them belongs
    /// to this protocol.
    pub endpoints: &'static [&'static str],
    /// True: model servers have the endpoint, often next to those of other protocols. Such a server is recognized by
    /// the paths in its OpenAPI description.
    pub is_of_models: bool,
    /// Path of a list of models below the URL, for protocols that every server with such a list can be expected to
    /// speak.
    pub models: Option<&'static str>,
    /// A document that only servers of this protocol publish.
    pub document: Option<ServerDocument>,
    /// Fields that only requests of this protocol have together, in the OpenAPI description of a server.
    pub request_fields: &'static [&'static str],
    /// True: the connector's probe reads nothing that only servers of this protocol have.
    pub has_vague_probe: bool,
    /// Names of vendors and products that people write for the protocol: in lower case, with `_` for `-`.
    pub products: &'static [&'static str],
}

impl ServerSigns {
    /// No signs.
    pub const NONE: Self = Self {
        endpoints: &[],
        is_of_models: false,
        models: None,
        document: None,
        request_fields: &[],
        has_vague_probe: false,
        products: &[],
    };
}

/// A document that only servers of one protocol publish.
#[derive(Clone, Copy, Debug)]
pub struct ServerDocument {
    /// Its path below the URL.
    pub path: &'static str,
    /// Its name in findings, such as `agent card`.
    pub name: &'static str,
    /// Reads the URLs of agents from the document at the origin of the server. `None`: it names no URLs.
    pub urls: Option<fn(&Value) -> Vec<&str>>,
}
