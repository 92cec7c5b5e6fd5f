//! Reads the bodies of requests.

pub(crate) mod body;
