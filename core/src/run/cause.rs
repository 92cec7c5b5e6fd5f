//! The cause of a failed turn. Not here: the error that clients see ([`super::RunError`]).

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::filter::truncated;

/// The cause of a failed turn, for operators only: no client protocol shows it. Configured secrets are masked in all
/// texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureCause {
    /// The HTTP status of the agent's answer. `None`: the agent sent no answer, or its status was no error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The request to the agent and the beginning of its answer, or the error of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The error text that the agent reported, before it was filtered for clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_error: Option<String>,
}

/// Maximum length of each text of a [`FailureCause`], in bytes.
const MAX_CAUSE_TEXT: usize = 2048;

impl FailureCause {
    /// The details of a fault, cut to 2 KiB.
    #[must_use]
    pub fn from_fault(fault: &Fault) -> Self {
        let detail = fault.detail.as_deref().map(|detail| truncated(detail, MAX_CAUSE_TEXT).to_owned());
        Self { status: fault.upstream_status, detail, agent_error: None }
    }

    /// Adds the error text that the agent reported, cut to 2 KiB.
    #[must_use]
    pub fn with_agent_error(mut self, text: &str) -> Self {
        self.agent_error = Some(truncated(text, MAX_CAUSE_TEXT).to_owned());
        self
    }

    /// True if nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Length of the texts, in bytes.
    pub(super) fn size(&self) -> usize {
        self.detail.as_ref().map_or(0, String::len) + self.agent_error.as_ref().map_or(0, String::len)
    }
}
