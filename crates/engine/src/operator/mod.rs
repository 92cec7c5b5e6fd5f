//! Calls about sessions and documents, the view of operators on all runs, and housekeeping.
//!
//! Imports every other module. Not here: the pages and metrics that show the results.

mod access;
mod documents;
mod housekeeping;
mod levels;
mod seal_key;
mod session_calls;

pub use self::access::{Operator, RunQuery, RunSummary, Summaries, summary_of};

pub(crate) use self::documents::Documents;
pub(crate) use self::housekeeping::Housekeeping;
pub(crate) use self::levels::{levels, running_by_protocol};
pub(crate) use self::session_calls::SessionCalls;
