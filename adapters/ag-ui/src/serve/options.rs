//! Options of an AG-UI route (docs/protocols/ag-ui.md#options).
//!
//! Not here: keep-alive times, CORS and what happens when a client leaves. They are settings of every route.

use interlingua_core::duration::Ttl;
use interlingua_core::model::MessageType;
use interlingua_core::options::Switch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connect::ReasoningInput;

/// The options of a route with `protocol = "ag-ui"`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The agent that the route serves, if it has several and its path does not contain `{agent}`.
    pub agent: Option<String>,
    /// The authoritative history.
    pub history: History,
    /// When the stream starts.
    pub start: Start,
    /// The form of the agent's reasoning.
    pub reasoning: ReasoningForm,
    /// Whether reasoning in the client's history is sent to the agent.
    pub reasoning_input: ReasoningInput,
    /// The form of images, audio, video and files of the agent.
    pub media: Media,
    /// If true, a tool output that is a JSON list of text blocks is sent as their text.
    pub unwrap_tool_output: Switch,
    /// If true, a question is also sent as the custom event `on_interrupt`, for front ends of the time before outcomes.
    pub legacy_on_interrupt: Switch,
    /// Types of messages whose data are the state of the front end.
    pub state_types: Vec<String>,
    /// Handling of a second run of a busy thread.
    pub busy: Busy,
    /// Time after which an interrupt can only be cancelled: seconds, or `"15m"`. Default: never.
    pub interrupt_ttl: Option<Ttl>,
    /// The path below the route's at which `GET` answers with the capabilities of the agent, such as `"capabilities"`.
    /// Default: none.
    pub capabilities_path: Option<String>,
    /// If true, clients that prefer it get protobuf instead of an event stream.
    pub protobuf: Switch,
    /// If true, the events of a stream are numbered, so that a client can take it up again.
    pub event_ids: Switch,
    /// Name of a request header with the user's id. Default: the gateway decides.
    pub user_header: Option<String>,
    /// If true, the user's id is `forwardedProps.user_id` or `forwardedProps.userId`, unless the header has it.
    pub user_from_props: Switch,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            agent: None,
            history: History::Client,
            start: Start::Immediate,
            reasoning: ReasoningForm::Events,
            reasoning_input: ReasoningInput::Drop,
            media: Media::Both,
            unwrap_tool_output: Switch(false),
            legacy_on_interrupt: Switch(false),
            state_types: Vec::new(),
            busy: Busy::Refuse,
            interrupt_ttl: None,
            capabilities_path: None,
            protobuf: Switch(true),
            event_ids: Switch(true),
            user_header: None,
            user_from_props: Switch(false),
        }
    }
}

/// Values of the option `history`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum History {
    /// The client's. If it is another than the thread's, because a message was edited or is answered again, the agent
    /// begins again with all of it; else the agent gets what is new.
    Client,
    /// The thread's. The agent gets what is new.
    Delta,
    /// Like `delta`, and the client receives the whole conversation before a run ends.
    Gateway,
}

/// Values of the option `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At once: all errors of the agent are events.
    Immediate,
    /// Once the agent has begun: until then its errors are errors of HTTP.
    OnUpstream,
}

/// Values of the option `reasoning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningForm {
    /// `REASONING_*` events, which clients before 0.0.47 do not know.
    Events,
    /// `THINKING_*` events, as before version 0.0.47.
    Thinking,
    /// Not at all.
    Drop,
}

/// Values of the option `media`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Media {
    /// A custom event, and a link in the text if there is a URL.
    Both,
    /// A custom event.
    Custom,
    /// A link in the text, if there is a URL.
    Link,
    /// Not at all.
    Drop,
}

impl Media {
    /// The form of media in a message of this type. The results of the client's own tools stay as the client sent them.
    pub(super) fn of_message(self, kind: &MessageType) -> Self {
        if *kind == MessageType::FunctionCallOutput { Self::Custom } else { self }
    }

    /// True if media are sent as custom events.
    pub(super) const fn has_custom(self) -> bool {
        matches!(self, Self::Both | Self::Custom)
    }

    /// True if media are sent as links.
    pub(super) const fn has_links(self) -> bool {
        matches!(self, Self::Both | Self::Link)
    }
}

/// Values of the option `busy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// It fails with status 409.
    Refuse,
    /// It waits until the thread is free.
    Queue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_default_in_the_schema_that_is_accepted() {
        interlingua_core_testkit::check_options::<Options>();
    }
}
