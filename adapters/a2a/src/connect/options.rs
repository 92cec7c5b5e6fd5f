//! Options of an agent that speaks A2A.

use interlingua_core::duration::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dialect::{Binding, Generation};
use interlingua_core::http_url::Url;

/// Options of an agent that speaks A2A.
///
/// The agent's card names its URL, binding and version, unless both `binding` and `version` are set: then `url` is the
/// interface itself, and no card is read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpstreamOptions {
    /// Where the card is. None: at the well-known places below `url` and at the root of its host.
    pub card_url: Option<String>,
    /// The only binding that is used.
    pub binding: Option<Binding>,
    /// The only version that is used.
    pub version: Option<Generation>,
    /// Whether answers are streamed or polled. None: as the card says.
    pub streaming: Option<bool>,
    /// The tenant in each request of version 1.0. None: as the card says.
    pub tenant: Option<String>,
    /// Further servers that a card may send requests to, as `host:port`, or as `host` for the port of the scheme.
    pub allow_hosts: Vec<String>,
    /// The first pause before a task is polled.
    pub poll_interval: Period,
    /// Maximum pause between two polls.
    pub max_poll_interval: Period,
    /// The context of a session's first message.
    pub context: UpstreamContext,
    /// Whether earlier messages of the request go ahead of the first message of a context.
    pub transcript: bool,
    /// The meaning of plain text in a status of a working task.
    pub status_text: UpstreamStatusText,
    /// Whether the turn continues while the task waits for a login.
    pub follow_auth: bool,
    /// URIs of the extensions that are asked for.
    pub extensions: Vec<String>,
    /// The agent reads tools of clients, and parameters of the model, in `metadata.agent_api` of a request, as this
    /// gateway does.
    pub client_tools: bool,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            card_url: None,
            binding: None,
            version: None,
            streaming: None,
            tenant: None,
            allow_hosts: Vec::new(),
            poll_interval: Period::milliseconds(500),
            max_poll_interval: Period::seconds(5),
            context: UpstreamContext::default(),
            transcript: true,
            status_text: UpstreamStatusText::default(),
            follow_auth: false,
            extensions: Vec::new(),
            client_tools: false,
        }
    }
}

/// The context of a session's first message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamContext {
    /// None: the agent chooses one, which is kept.
    #[default]
    Learn,
    /// The id of the session.
    Send,
}

/// The meaning of plain text in a status of a working task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamStatusText {
    /// Reasoning; and the answer as well, if the task completes without any other.
    #[default]
    Auto,
    /// Reasoning.
    Reasoning,
    /// Part of the answer.
    Message,
    /// Left out.
    Drop,
}

impl UpstreamOptions {
    /// Errors of the options that their types cannot express.
    pub(super) fn check(&self, url: &str) -> Result<(), String> {
        for url in std::iter::once(url).chain(self.card_url.as_deref()) {
            if Url::parse(url).is_none() {
                return Err(format!("\"{url}\" is no http or https URL"));
            }
        }
        if self.poll_interval.0.is_zero() || self.max_poll_interval.0 < self.poll_interval.0 {
            return Err("\"poll_interval\" is more than zero and at most \"max_poll_interval\"".into());
        }
        // They become parts of a header and of a path.
        let is_visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if self.extensions.iter().any(|uri| !is_visible(uri) || uri.contains(',')) {
            return Err("\"extensions\" are URIs without spaces and commas".into());
        }
        if self.tenant.as_deref().is_some_and(|tenant| tenant.is_empty() || tenant == "v1") {
            return Err("\"tenant\" is not empty, and not \"v1\"".into());
        }
        Ok(())
    }

    /// Settings that cannot have their effect.
    pub(super) fn warnings(&self, url: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        let reads_no_card = self.binding.is_some() && self.version.is_some();
        if reads_no_card && self.card_url.is_some() {
            warnings.push(
                "card_url has no effect on calls: with binding and version set, only card_from of a route reads the card"
                    .to_owned(),
            );
        }
        if reads_no_card && is_card(url) {
            warnings.push("url is that of a card, but with binding and version set it is asked as an agent".to_owned());
        }
        if self.tenant.is_some() && self.version == Some(Generation::V03) {
            warnings.push("tenant has no effect: version 0.3 has none".to_owned());
        }
        let secure = Url::parse(url).zip(self.card_url.as_deref().and_then(Url::parse));
        if secure.is_some_and(|(own, card)| !own.trusts(&card, &self.allow_hosts)) {
            warnings.push(
                "card_url has another origin than url: it is fetched without this upstream's headers; name its host and \
                 port in allow_hosts to send them there too"
                    .to_owned(),
            );
        }
        warnings
    }
}

/// True for a URL that is a card's rather than an agent's.
pub(super) fn is_card(url: &str) -> bool {
    Url::parse(url).is_some_and(|url| url.path().ends_with(".json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<UpstreamOptions, String> {
        let options: UpstreamOptions = serde_json::from_str(text).map_err(|error| error.to_string())?;
        options.check("http://agent").map(|()| options)
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        assert_eq!(options("{}"), Ok(UpstreamOptions::default()));
        for wrong in [
            r#"{"poll":"1s"}"#,
            r#"{"binding":"GRPC"}"#,
            r#"{"version":"2.0"}"#,
            r#"{"card_url":"card.json"}"#,
            r#"{"poll_interval":0}"#,
            r#"{"poll_interval":"10s"}"#,
            r#"{"extensions":["a,b"]}"#,
            r#"{"extensions":["a\nb"]}"#,
            r#"{"tenant":"v1"}"#,
        ] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_operator_learns_of_options_without_effect() {
        let warnings = |url: &str, text: &str| options(text).expect("options").warnings(url);
        assert_eq!(warnings("http://agent", "{}"), Vec::<String>::new());
        let fixed = r#"{"binding":"JSONRPC","version":"0.3","card_url":"http://agent/card.json","tenant":"a"}"#;
        assert_eq!(warnings("http://agent", fixed).len(), 2);
        assert_eq!(warnings("http://agent", r#"{"card_url":"http://other/card.json"}"#).len(), 1);
        assert_eq!(warnings("http://agent/card.json", r#"{"binding":"JSONRPC","version":"0.3"}"#).len(), 1);
    }
}
