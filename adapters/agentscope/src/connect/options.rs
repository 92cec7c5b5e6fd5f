//! Options of an agent in a service of AgentScope 2.0.

use interlingua_core::duration::Period;
use interlingua_core::{Extra, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Options of an upstream with `protocol = "agentscope"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// The agent's id in the service. Required.
    pub agent_id: String,
    /// The user of the service, sent as `X-User-ID`. Agents, credentials and sessions belong to a user. Default: the
    /// user of each request.
    pub user: Option<String>,
    /// Further fields of the request that makes a session, as they are: `chat_model_config`, which most services need,
    /// `fallback_chat_model_config`, `tts_model_config`, `knowledge_config`, `workspace_id`, `name` (the
    /// id of the session in the gateway, if it is not set).
    #[schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")]
    pub session: SessionFields,
    /// The events that only this protocol has (hints, custom events) and that are stored.
    pub events: Events,
    /// Time that a turn waits for a session that still processes an earlier turn. Zero: a busy session is an error at
    /// once.
    pub busy_timeout: Period,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            agent_id: String::new(),
            user: None,
            session: SessionFields::default(),
            events: Events::default(),
            busy_timeout: Period::seconds(10),
        }
    }
}

/// Fields of the request that makes a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct SessionFields(serde_json::Map<String, serde_json::Value>);

impl SessionFields {
    /// The fields, in order.
    pub(super) fn to_extra(&self) -> Extra {
        self.0.iter().map(|(name, value)| (Box::<str>::from(name.as_str()), Json::from_serialize(value))).collect()
    }

    fn names(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// Stored events of those that only this protocol has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Events {
    /// They are kept if clients of this agent read them.
    #[default]
    Auto,
    /// They are kept.
    Keep,
    /// They are left out.
    Drop,
}

impl UpstreamOptions {
    /// Checks what no type can say.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.agent_id.is_empty() {
            return Err("\"agent_id\" is missing: the service has one for each agent (GET /agent/)".to_owned());
        }
        if self.user.as_deref().is_some_and(|user| !is_header_value(user)) {
            return Err("\"user\" becomes a header: it has visible characters only, and at least one".to_owned());
        }
        if self.session.names("agent_id") {
            return Err("\"session.agent_id\" is set twice: the agent is that of \"agent_id\"".to_owned());
        }
        Ok(())
    }

    /// Settings that will hardly do what they should.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.session.names("chat_model_config") {
            warnings.push(
                "options.session has no chat_model_config: sessions have no model then, and every turn fails"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// Whether a text can be the value of a header.
pub(super) fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.len() <= 256 && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<UpstreamOptions, String> {
        let options: UpstreamOptions = serde_json::from_str(text).map_err(|error| error.to_string())?;
        options.check().map(|()| options)
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        let minimum = options(r#"{"agent_id":"a"}"#).expect("options");
        assert_eq!((minimum.events, minimum.busy_timeout), (Events::Auto, Period::seconds(10)));
        for wrong in [
            "{}",
            r#"{"agent_id":""}"#,
            r#"{"agent_id":"a","user":""}"#,
            r#"{"agent_id":"a","user":"a\nb"}"#,
            r#"{"agent_id":"a","session":{"agent_id":"b"}}"#,
            r#"{"agent_id":"a","events":"all"}"#,
            r#"{"agent_id":"a","model":"m"}"#,
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_session_without_a_model_is_reported() {
        let warnings = |text: &str| options(text).expect("options").warnings();
        assert_eq!(warnings(r#"{"agent_id":"a"}"#).len(), 1);
        assert_eq!(warnings(r#"{"agent_id":"a","session":{"chat_model_config":{}}}"#), Vec::<String>::new());
    }
}
