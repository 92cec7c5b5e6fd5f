//! The fields of a request that its answer needs. They are stored as the labels of the run, so that an answer can be
//! encoded again, and a thread continued, after a restart.

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
    /// The number of declared tools that no agent can receive.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) hosted_tools: usize,
    pub(crate) thinking: Thinking,
    /// The settings of a thread. `None`: the request belongs to no thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<ThreadSettings>,
}

/// The settings that later requests of a thread omit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ThreadSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system: Option<String>,
    /// The tools that the agent did not get with this message, because it may call none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) withheld_tools: Option<Vec<Json>>,
}

/// The display of reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Thinking {
    /// Nothing.
    #[default]
    Hidden,
    /// The reasoning without its text. Its data is sent back with the next request.
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
        let thread = Some(ThreadSettings {
            system: Some("be brief".into()),
            withheld_tools: Some(vec![Json::from_serialize("tool")]),
        });
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
