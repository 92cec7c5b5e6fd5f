//! Bounds of what the engine holds for all callers together, as the configuration sets them. Not here: what one caller
//! may use ([`interlingua_callers`]).

/// Bounds of what the engine holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs in memory: those under way, and those that wait or are being read.
    pub runs: usize,
    /// Turns that wait for another one of their session.
    pub queued_turns: usize,
    /// Push receivers that a caller has named and that are still stored.
    pub receivers: usize,
    /// Runs being sent to a push receiver, one for each receiver. A caller may have half of them.
    pub pushes: usize,
    /// Bytes of runs on one page of a list. A larger run has a page of its own.
    pub page: u64,
    /// Bytes of all runs that their attached readers have not read, beyond 32 KiB each. Agents wait beyond that.
    pub unread: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 200_000, queued_turns: 64, receivers: 10_000, pushes: 20_000, page: 8 << 20, unread: 256 << 20 }
    }
}
