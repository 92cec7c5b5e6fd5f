//! The one place where the gateway looks at the clock for what it tells: cores and adapters are handed the time.

use interlingua_core::RunId;
use interlingua_core::event::Millis;

/// Milliseconds since 1970 in UTC.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// An id nobody has used; later ones are greater.
#[must_use]
pub fn fresh() -> RunId {
    RunId(uuid::Uuid::now_v7())
}
