//! The name of the protocol, and its revisions, which are dates.

use serde::{Serialize, Serializer};

/// The protocol's name in `gateway.toml`.
pub(crate) const NAME: &str = "mcp";

/// A revision that is served, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Revision {
    /// 2025-03-26.
    March2025,
    /// 2025-06-18.
    June2025,
    /// 2025-11-25.
    November2025,
    /// 2026-07-28: without sessions.
    July2026,
}

impl Revision {
    /// All revisions, newest first.
    pub(crate) const ALL: [Self; 4] = [Self::July2026, Self::November2025, Self::June2025, Self::March2025];
    /// The newest revision that begins with a handshake.
    pub(crate) const LATEST_LEGACY: Self = Self::November2025;

    /// The revision on the wire.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::March2025 => "2025-03-26",
            Self::June2025 => "2025-06-18",
            Self::November2025 => "2025-11-25",
            Self::July2026 => "2026-07-28",
        }
    }

    /// Parses a revision. `None`: it is not served.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// True if each request carries its revision and the client's capabilities.
    pub(crate) const fn is_modern(self) -> bool {
        matches!(self, Self::July2026)
    }

    /// True if results have `structuredContent` and links to resources, and definitions a title.
    pub(crate) const fn has_structured_content(self) -> bool {
        !matches!(self, Self::March2025)
    }
}

impl Serialize for Revision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_revision_is_read_as_it_is_written() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        assert_eq!(Revision::parse("2024-11-05"), None);
        assert!(Revision::March2025 < Revision::July2026);
    }
}
