//! The endpoints: streams, runs, background tasks, and their errors.

pub(crate) mod fault;
pub(crate) mod process;
pub(crate) mod runs;
pub(crate) mod task;
