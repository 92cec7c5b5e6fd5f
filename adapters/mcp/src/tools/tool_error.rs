//! Errors of calls that a model can act on.

/// An error that a model can read: a result with `isError`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolError {
    /// A code of [`interlingua_core::FaultKind`], or of [`interlingua_core::answer`].
    pub(crate) code: &'static str,
    /// A message for the model.
    pub(crate) message: String,
}

impl ToolError {
    /// An error with this code.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The session is unknown, or that of another caller or agent.
    pub(crate) fn no_such_session() -> Self {
        Self::new("RESOURCE_NOT_FOUND", "no such session; leave session out to begin a new one")
    }
}
