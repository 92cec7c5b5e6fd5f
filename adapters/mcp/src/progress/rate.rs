//! The limit on the number of notifications in a second.

use std::collections::VecDeque;

use interlingua_core::event::Millis;

/// Maximum number of notifications in a second.
pub(super) const MAX_PER_SECOND: usize = 20;

/// The times of the last notifications.
#[derive(Debug, Default)]
pub(super) struct RateLimit(VecDeque<Millis>);

impl RateLimit {
    /// Counts a notification.
    pub(super) fn note(&mut self, now: Millis) {
        if self.0.len() == MAX_PER_SECOND {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// The time from which on another notification is allowed.
    pub(super) fn free_at(&self) -> Millis {
        if self.0.len() < MAX_PER_SECOND { 0 } else { self.0.front().map_or(0, |first| first.saturating_add(1000)) }
    }
}
