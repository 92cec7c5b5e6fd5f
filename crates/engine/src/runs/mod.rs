//! Runs: those in memory, their events as clients see them, and the runs that other gateways execute.
//!
//! A run in memory is an [`ActiveRun`], the [`RunTable`] finds it, and a [`Follower`] is the position of a client in it.
//! Imports [`crate::sessions`] only. Not here: the turns of a run ([`crate::turns`]).

mod abort_guard;
mod access;
mod active_run;
mod answer;
mod cancel_flag;
pub(crate) mod commit;
mod connection;
mod elsewhere;
mod end_metrics;
pub(crate) mod follow;
mod followers;
mod handle;
mod listener;
mod lists;
mod loaded;
mod queued_turns;
mod retention;
mod scope;
mod stopper;
mod table;
mod turn;
mod unread;
mod unstored;
mod visibility;
mod waits;

pub use self::active_run::{ActiveRun, Take};
pub use self::answer::Answer;
pub use self::connection::ConnectionCache;
pub use self::follow::Follower;
pub use self::handle::RunHandle;
pub use self::listener::Listener;
pub use self::lists::ListedRun;
pub use self::loaded::Loaded;
pub use self::retention::RetentionRules;
pub use self::scope::Scope;

pub(crate) use self::abort_guard::AbortGuard;
pub(crate) use self::access::RunAccess;
pub(crate) use self::active_run::{Publish, State};
pub(crate) use self::follow::{follow, settled, taken};
pub(crate) use self::lists::list;
pub(crate) use self::queued_turns::{QueuedTurn, WaitEnd};
pub(crate) use self::retention::{SharedRules, owner_of_new_run};
pub(crate) use self::stopper::{note_stop, stop_lost};
pub(crate) use self::table::{HeldRun, RunTable};
pub(crate) use self::turn::{Place, Prepared, Spoken, Turn, TurnPermits};
pub(crate) use self::unread::UnreadBudget;
pub(crate) use self::unstored::UnstoredRuns;
pub(crate) use self::waits::{MAX_BACKLOG, poll_once, unless_canceled, wait_for_room};
