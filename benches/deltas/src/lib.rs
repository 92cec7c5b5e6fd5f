//! Every connector that reads text deltas and every exchange that writes them, ready to be measured.
//!
//! Not here: allocations (`tests/allocations`), nanoseconds (`cargo xtask bench micro`), and the recorded instructions
//! (`benches/instructions.json`).

pub mod connectors;
pub mod encoders;
