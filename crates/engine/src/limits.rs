//! Limits of the engine for all callers together. Not here: the limits of one caller ([`interlingua_callers`]).

/// Limits of the engine, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Runs in memory: running, waiting, or being read.
    pub runs: usize,
    /// Turns that wait for another turn of their session.
    pub queued_turns: usize,
    /// Stored push receivers per caller.
    pub receivers: usize,
    /// Concurrent deliveries of a run to a push receiver. One caller may use half of them.
    pub pushes: usize,
    /// Bytes of runs on one page of a list. A larger run gets a page of its own.
    pub page: u64,
    /// Bytes that attached readers have not read yet, in all runs together. 32 KiB per run are not counted. The gateway
    /// reads no more from an agent while the limit is reached.
    pub unread: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 200_000, queued_turns: 64, receivers: 10_000, pushes: 20_000, page: 8 << 20, unread: 256 << 20 }
    }
}
