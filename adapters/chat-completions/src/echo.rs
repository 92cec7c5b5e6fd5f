//! The fields of a request that its answer needs. They are stored as the labels of the run, so that the answer can be
//! encoded again and compared with the history that a client sends back.

use interlingua_core::answer::chat::ApprovalForm;
use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};

/// The settings of a request that its answer depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Echo {
    /// The client's name of the model.
    pub(crate) model: String,
    /// The tools that the client runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<Tool>,
    /// True if they were declared in the deprecated field `functions`: then calls are shown in `function_call`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) functions: bool,
    /// `stream_options.include_usage`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) include_usage: bool,
    /// True if the request named a `service_tier`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) service_tier: bool,
    /// True if `modalities` has `audio`.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) audio: bool,
    /// `metadata`.
    #[serde(skip_serializing_if = "Extra::is_empty")]
    pub(crate) metadata: Extra,
    /// The route's option when the request came.
    pub(crate) approvals: ApprovalForm,
}

/// A tool that the client declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// True if it takes free text instead of JSON.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) custom: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Echo {
    /// Reads the labels of a run. `None` for a run that another protocol started.
    pub(crate) fn from_labels(labels: &Json) -> Option<Self> {
        labels.decode()
    }

    /// The tool of this name, if the client declared it.
    pub(crate) fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_survives_the_labels() {
        let echo = Echo {
            model: "m".into(),
            tools: vec![Tool { name: "f".into(), custom: true }],
            include_usage: true,
            ..Echo::default()
        };
        assert_eq!(Echo::from_labels(&Json::from_serialize(&echo)), Some(echo));
        assert_eq!(Echo::from_labels(&Json::null()), None);
    }
}
