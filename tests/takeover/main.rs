//! Several whole gateways in one process, on a store that they share and that stops them wherever a test wants: real
//! HTTP, a scripted agent, and a clock that tests move.
//!
//! Not here: the shared store of the product (`tests/store`, `tests/replicas`), and faults under load
//! (`cargo xtask faults`).

// An error here fails the test.
#![expect(clippy::unwrap_used)]

mod client;
mod pushes;
mod runs;
mod stand;
mod steps;
use interlingua_testing_support as support;
