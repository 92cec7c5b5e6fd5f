//! Once a stream is open, a delta costs no heap memory: neither in the connector that reads it nor in the exchange that
//! writes it for a client. A whole call costs no more allocations than recorded.
//!
//! The counting allocator belongs to this binary alone, and counts for each thread. Not here: nanoseconds (`cargo xtask
//! bench micro`).

mod calls;
mod connectors;
mod encoders;

/// Number of deltas before allocations are counted, so that buffers have their size and the message is open.
const FIRST: usize = 10_000;
/// Number of deltas that are counted.
const DELTAS: usize = 10_000;
