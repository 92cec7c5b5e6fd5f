//! Options of an agent that speaks AG-UI.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of an upstream with `protocol = "ag-ui"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The version that requests declare, such as `1.0`. None: none, as before 1.0.
    pub protocol_version: Option<String>,
    /// Handling of the agent's reasoning.
    pub reasoning: Reasoning,
    /// Whether reasoning of earlier turns is sent back. Servers before 1.0 refuse messages of that role.
    pub reasoning_input: ReasoningInput,
    /// The form of media in messages of users.
    pub parts: Parts,
    /// The events that only this protocol has (state, activity, steps, custom events) and that are stored.
    pub events: Events,
    /// The form of the answer for an agent that interrupted its run.
    pub resume_style: ResumeStyle,
    /// Names of calls that ask for confirmation by being left unanswered, as tools of Agno do.
    pub confirm_calls: Vec<String>,
    /// Names of calls that ask for missing arguments by being left unanswered, as tools of Agno do.
    pub input_calls: Vec<String>,
    /// The meaning of a call without a result at the end of its run, if the client declared no tool of its name.
    pub unanswered_calls: UnansweredCalls,
}

/// Handling of the agent's reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    /// It is passed on.
    #[default]
    Keep,
    /// It is left out.
    Drop,
}

/// Whether reasoning of earlier turns is sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningInput {
    /// It is left out.
    #[default]
    Drop,
    /// Messages of the role `reasoning`.
    Send,
}

/// The form of media in messages of users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parts {
    /// `image`, `audio`, `video` and `document`.
    #[default]
    Typed,
    /// `binary`, for servers before 1.0.
    Binary,
}

/// Stored events of those that only this protocol has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Events {
    /// They are kept if clients of this agent read them.
    #[default]
    Auto,
    /// They are kept, without raw events of the agent's framework.
    Keep,
    /// They are kept, with raw events of the agent's framework, which repeat everything at several times its size.
    All,
    /// They are left out.
    Drop,
}

/// The form of the answer for an agent that interrupted its run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResumeStyle {
    /// The form of the question: `resume` for an outcome, `forwardedProps.command.resume` for a custom event.
    #[default]
    Auto,
    /// In `resume`.
    Standard,
    /// In `forwardedProps.command.resume`.
    Command,
}

/// The meaning of a call without a result and without a declaration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnansweredCalls {
    /// A call for the client to run.
    #[default]
    Tool,
    /// A call of the agent whose result it does not show.
    Plugin,
}

impl UpstreamOptions {
    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(version) = &self.protocol_version {
            let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if !version.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor)) {
                return Err(format!("protocol_version \"{version}\" is no version such as \"1.0\""));
            }
        }

        if let Some(name) = self.confirm_calls.iter().find(|name| self.input_calls.contains(name)) {
            return Err(format!("\"{name}\" is in confirm_calls and in input_calls: a call asks for one of them"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn contradicting_options_are_refused() {
        let check = |json: Value| serde_json::from_value::<UpstreamOptions>(json).expect("options").check();
        assert_eq!(check(json!({ "protocol_version": "1.0", "confirm_calls": ["a"], "input_calls": ["b"] })), Ok(()));
        for wrong in [
            json!({ "protocol_version": "1" }),
            json!({ "protocol_version": "v1.0" }),
            json!({ "protocol_version": "1." }),
            json!({ "confirm_calls": ["a"], "input_calls": ["a"] }),
        ] {
            assert!(check(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
