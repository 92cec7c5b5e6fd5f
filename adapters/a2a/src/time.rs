//! Timestamps as A2A encodes them.

use interlingua_core::event::Millis;
use interlingua_core::time::format_rfc3339_millis;
use serde::{Serialize, Serializer};

/// UTC, always with milliseconds: `2026-11-20T10:00:00.000Z` (docs/protocols/a2a.md#data-model).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timestamp(pub(crate) Millis);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_rfc3339_millis(self.0))
    }
}
