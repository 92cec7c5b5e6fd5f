//! The state that all exchanges of a mount share.

use interlingua_core::Mount;
use interlingua_core::exchange::AuthScheme;
use serde_json::{Map, Value, json};

use super::streams::SessionStreams;
use crate::envelope::TASKS_EXTENSION;
use crate::options::{Options, Tasks};
use crate::tools::Tools;

/// The server's name towards clients.
const SERVER_NAME: &str = "interlingua";

/// One mounted server.
pub(crate) struct Route {
    /// The operator's options.
    pub(crate) options: Options,
    /// The tools.
    pub(crate) tools: Tools,
    /// The mount point, without a trailing slash.
    pub(crate) path: String,
    /// The URL of the mount point, if configured.
    pub(crate) public_url: Option<String>,
    /// True if callers authenticate.
    pub(crate) authenticates: bool,
    /// The issuers whose tokens are accepted.
    pub(crate) issuers: Vec<String>,
    /// The open streams of sessions.
    pub(crate) streams: SessionStreams,
}

impl Route {
    /// Builds the state of a mount.
    ///
    /// # Errors
    /// The problem with the options, for the operator.
    pub(crate) fn new(mount: &Mount, options: Options) -> Result<Self, String> {
        let issuers = mount.schemes.iter().filter_map(|scheme| match scheme {
            AuthScheme::Issuer { issuer, .. } => Some(issuer.clone()),
            _ => None,
        });
        Ok(Self {
            tools: Tools::new(mount, &options)?,
            path: mount.path.clone(),
            public_url: mount.public_url.clone(),
            authenticates: mount.authenticates(),
            issuers: issuers.collect(),
            streams: SessionStreams::default(),
            options,
        })
    }

    /// Warnings for the operator at startup.
    pub(crate) fn warnings(&self, mount: &Mount) -> Vec<String> {
        let mut warnings = Vec::new();
        let audiences = mount.schemes.iter().filter_map(|scheme| match scheme {
            AuthScheme::Issuer { audiences, .. } => Some(audiences),
            _ => None,
        });
        let mut audiences = audiences.flatten().peekable();
        if audiences.peek().is_some()
            && let Some(resource) = &self.public_url
            && !audiences.any(|audience| audience.trim_end_matches('/') == resource.trim_end_matches('/'))
        {
            warnings.push(format!(
                "no issuer of tokens has the audience \"{resource}\", for which OAuth clients ask: their tokens are \
                 refused"
            ));
        }
        if self.options.answer_tool_approves && !self.authenticates {
            warnings.push(
                "\"answer_tool_approves\" is set and callers are anonymous: every client may let a model approve calls"
                    .to_owned(),
            );
        }
        warnings
    }

    /// The name and version of the server.
    pub(crate) fn server_info() -> Value {
        json!({ "name": SERVER_NAME, "version": env!("CARGO_PKG_VERSION") })
    }

    /// The capabilities of the server.
    pub(crate) fn capabilities(&self, is_modern: bool) -> Value {
        let mut all = Map::new();
        all.insert("tools".to_owned(), json!({ "listChanged": true }));
        if self.options.resources {
            all.insert("resources".to_owned(), json!({ "listChanged": true }));
        }
        if self.options.prompts {
            all.insert("prompts".to_owned(), json!({ "listChanged": true }));
        }
        all.insert("completions".to_owned(), json!({}));
        if is_modern && self.has_tasks() {
            all.insert("extensions".to_owned(), json!({ TASKS_EXTENSION: {} }));
        }
        Value::Object(all)
    }

    /// True if the tasks extension is offered.
    pub(crate) fn has_tasks(&self) -> bool {
        self.options.tasks != Tasks::Never || self.tools.agents().iter().any(|tool| tool.settings.tasks != Tasks::Never)
    }

    /// The instructions for models.
    pub(crate) fn instructions(&self) -> String {
        if !self.options.instructions.is_empty() {
            return self.options.instructions.clone();
        }
        let Options { answer_tool, wait_tool, .. } = &self.options;
        let mut text = "Each tool asks an agent. To continue a conversation, call the tool again with the session of \
                        its result."
            .to_owned();
        if !answer_tool.is_empty() {
            text.push_str(&format!(" If a result names a question, ask the person and call {answer_tool}."));
        }
        if !wait_tool.is_empty() {
            text.push_str(&format!(" If a result says that the run goes on, call {wait_tool}."));
        }
        text
    }

    /// The caches that may keep an answer.
    pub(crate) const fn cache_scope(&self) -> &'static str {
        if self.authenticates { "private" } else { "public" }
    }

    /// The time for which clients may keep lists, in milliseconds.
    pub(crate) fn list_ttl_ms(&self) -> u64 {
        u64::try_from(self.options.list_ttl.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The URL of the server as clients see it, without a trailing slash.
    pub(crate) fn resource(&self, base_url: &str) -> String {
        self.public_url.as_deref().unwrap_or(base_url).trim_end_matches('/').to_owned()
    }
}
