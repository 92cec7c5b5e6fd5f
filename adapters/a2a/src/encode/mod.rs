//! Converts runs to tasks, updates and messages.

pub(crate) mod direct;
pub(crate) mod history;
pub(crate) mod render;
pub(crate) mod task;
pub(crate) mod updates;
