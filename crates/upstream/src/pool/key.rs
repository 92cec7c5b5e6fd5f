//! The name of an endpoint where its URL must not be: in stored sessions and in metrics.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// An endpoint's name: a hash of its URL, the same in every process.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndpointKey(String);

impl EndpointKey {
    /// The key of a URL, which must be without query and user info: those may hold secrets, and change with them.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let digest = Sha256::digest(url.as_bytes());
        Self(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// 16 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for EndpointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
