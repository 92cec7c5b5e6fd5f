//! The endpoints, their errors, and the calls that the next stream of a conversation has to know.

pub(crate) mod fault;
pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod send;
