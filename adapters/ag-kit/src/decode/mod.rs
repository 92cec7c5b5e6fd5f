//! Reads requests and their history.

pub(crate) mod request;
