//! Gateways that are killed, paused and started again, alone or several over one store, and the oracle that judges what
//! clients saw: the harness of `tests/crash`, `tests/takeover`, `tests/replicas` and of the scenarios `kills` and
//! `replicas` of the fault rig.
//!
//! `members` are gateways over one `store`, in this process or in others; `gateway` is a process that keeps its folder
//! and address, `stream` reads frames of answers that may be truncated, `client` begins runs and resumes them by
//! number, `oracle` compares. The last four block and need no runtime, so that tests and the fault rig use the same
//! code.

mod client;
mod gateway;
mod members;
mod oracle;
mod store;
pub mod stream;

pub use self::client::{Protocol, RunView, Task, may_refuse};
pub use self::gateway::{GatewayProcess, answers};
pub use self::members::{Cluster, Member};
pub use self::oracle::{Oracle, Violation, count_no_prefixes};
pub use self::store::SharedStore;
