//! The endpoints, one file each, with their errors and the names of a user's sessions.

pub(crate) mod delete;
pub(crate) mod fault;
pub(crate) mod invoke;
pub(crate) mod names;
pub(crate) mod overview;
pub(crate) mod resume;
pub(crate) mod status;
