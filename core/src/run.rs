//! The state of a run and how it changes: [`Run`] is the state, and only [`Record`] changes it.

mod cause;
mod evicted;
mod preview;
mod record;
mod size;
pub(crate) mod state;

pub use self::cause::FailureCause;
pub(crate) use self::evicted::text_hash;
pub use self::record::{MessageEnd, MessageStart, Record};
pub(crate) use self::size::{content_size, reserve_one};
pub use self::state::{CallHead, Message, Run, RunError, Slot, Turn};
