//! Converts messages of clients to the canonical model.

pub(crate) mod input;
