//! What an answer needs of its request. It is stored as the labels of the run, so that an answer can be written again,
//! and a thread continued, after a restart.

use std::collections::BTreeSet;

use interlingua_core::Json;
use serde::{Deserialize, Serialize};

/// Settings of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Echo {
    pub(crate) model: String,
    /// Names of the functions that the client declared, those for the gateway included.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) functions: BTreeSet<String>,
    /// How many tools were declared that no agent can be given.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) hosted_tools: usize,
    pub(crate) thinking: Thinking,
    /// What stays valid in a thread. `None`: the request is in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<ThreadSettings>,
}

/// What later requests of a thread leave out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ThreadSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<String>,
}

/// What the client is shown of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thinking {
    /// Nothing.
    #[default]
    Hidden,
    /// What belongs to it and comes back with the next request, without its text.
    Omitted,
    /// All of it.
    Shown,
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Echo {
    /// Reads the labels of a run. A run that another protocol started has none and gets defaults.
    pub(crate) fn from_labels(labels: &Json, agent: &str) -> Self {
        labels.decode().unwrap_or_else(|| Self { model: agent.to_owned(), ..Self::default() })
    }

    /// Whether the client declared a function.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.functions.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_survives_the_labels() {
        let thread = Some(ThreadSettings { system: Some("be brief".into()) });
        let echo = Echo {
            model: "m".into(),
            functions: ["f".into()].into(),
            hosted_tools: 1,
            thinking: Thinking::Omitted,
            thread,
        };
        assert_eq!(Echo::from_labels(&Json::from_serialize(&echo), "agent"), echo);
        assert!(echo.declares("f") && !echo.declares("g"));

        let other = Echo::from_labels(&Json::null(), "agent");
        assert!(other.model == "agent" && other.thread.is_none());
    }
}
