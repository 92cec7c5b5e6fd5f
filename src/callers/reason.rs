//! Why credentials are refused: for the log and for counters. Clients are told the same whatever it is.

/// Why credentials are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The request has none.
    Missing,
    /// The request has more than one.
    Several,
    /// They are not written as credentials are.
    Malformed,
    /// There is no such key, or no issuer has such a key.
    Unknown,
    /// The key was revoked.
    Revoked,
    /// The key or token was valid once.
    Expired,
    /// The signature does not fit, or is of an algorithm that may not be used.
    Signature,
    /// What the token says is not what the configuration asks for.
    Claims,
    /// The route does not accept credentials of this kind.
    Method,
    /// The keys of the issuer cannot be read.
    Unavailable,
}

impl Reason {
    /// The word for log lines and labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Several => "several",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::Signature => "signature",
            Self::Claims => "claims",
            Self::Method => "method",
            Self::Unavailable => "unavailable",
        }
    }
}
