//! The ways in which the callers of a route authenticate, for descriptions of an API. Not here: the checks of credentials
//! (the gateway).

/// A way in which callers authenticate. A caller needs only one of a route's ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthScheme {
    /// A key in the header `x-api-key`.
    ApiKey,
    /// A key or a token in `Authorization: Bearer`.
    Bearer {
        /// True if only JSON Web Tokens are accepted.
        jwt_only: bool,
    },
    /// A token of an OpenID Connect issuer.
    OpenId {
        /// The URL of the issuer's discovery document.
        url: String,
    },
    /// A client certificate of the TLS connection.
    Certificate,
    /// The issuer of a token that is accepted as [`AuthScheme::Bearer`].
    Issuer {
        /// The URL of the issuer, as the operator wrote it.
        issuer: String,
        /// The accepted audiences of its tokens.
        audiences: Vec<String>,
    },
}
