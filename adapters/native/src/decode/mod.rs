//! Reads bodies, and the ids of runs in paths.

pub(crate) mod body;
pub(crate) mod run_id;
