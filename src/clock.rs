//! The current time and new ids. Only the gateway asks for them: core and adapters take both as arguments.

use interlingua_core::RunId;
use interlingua_core::event::Millis;

/// Milliseconds since 1970 in UTC.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// An unused id. Later ids are greater.
#[must_use]
pub fn new_id() -> RunId {
    RunId(uuid::Uuid::now_v7())
}

/// An unused id of a span. Never zero.
#[must_use]
pub fn new_span_id() -> [u8; 8] {
    // The half that is counted up and random; its first two bits are fixed.
    let [_, _, _, _, _, _, _, _, id @ ..] = uuid::Uuid::now_v7().into_bytes();
    id
}
