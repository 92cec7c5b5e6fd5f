//! Why credentials are refused: for the log and for counters. Clients get the same answer in each case.

use std::time::Duration;

use interlingua_core::{Fault, FaultKind};

/// When a client should try again if the keys of an issuer cannot be read: until then no attempt is made.
const UNAVAILABLE_RETRY_AFTER: Duration = Duration::from_secs(30);

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
    /// A claim of the token does not match the configuration.
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

/// The fault for refused credentials: in the same words whatever is wrong with them.
pub(super) fn refusal(reason: Reason) -> Fault {
    if reason == Reason::Unavailable {
        let mut fault = Fault::new(FaultKind::Overloaded, "credentials cannot be verified at the moment");
        fault.retry_after = Some(UNAVAILABLE_RETRY_AFTER);
        return fault.with_detail("the keys of the issuer cannot be read");
    }
    Fault::new(FaultKind::Unauthenticated, "valid credentials are required").with_detail(reason.as_str())
}
