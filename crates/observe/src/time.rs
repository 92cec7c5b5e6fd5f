//! Times as logs write them.

use interlingua_core::event::Millis;

/// RFC 3339 in UTC, with milliseconds.
pub(super) fn time(at: Millis) -> String {
    let time = i64::try_from(at).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok()).unwrap_or_default();
    format!("{time:.3}")
}
