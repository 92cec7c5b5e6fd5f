//! Options of an A2A route (docs/protocols/a2a.md#options), with all defaults filled in. Not here: whose conversation
//! history an agent uses, which is a setting of the agent.

use std::collections::BTreeMap;

use interlingua_core::duration::Ttl;
use interlingua_core::exchange::RunRetention;
use interlingua_core::public_address::{AddressException, Policy};
use interlingua_core::size::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::card::options::CardOptions;
use crate::card::sign::CardSigning;
use crate::dialect::{Binding, Generation};

/// Options of an A2A route, set by the operator.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// URL of the mount as clients reach it; `{agent}` is replaced. `None`: derived from the server's `public_url`.
    pub public_url: Option<String>,
    /// Card contents.
    pub card: CardOptions,
    /// Base card that `card` overrides. `None`: the agent's own settings.
    pub card_from: Option<CardFrom>,
    /// Extra card contents for authenticated callers. `None`: there is no extended card.
    pub extended_card: Option<CardOptions>,
    /// Signing key for 1.0 cards. `None`: cards are not signed.
    pub card_signing: Option<CardSigning>,
    /// Card format for requests without a version.
    pub card_without_version: CardWithoutVersion,
    /// Protocol versions that are served.
    #[schemars(length(min = 1))]
    pub versions: Vec<Generation>,
    /// Bindings that are served.
    #[schemars(length(min = 1))]
    pub bindings: Vec<Binding>,
    /// Handling of 1.0 calls without a version header.
    pub missing_version: MissingVersion,
    /// True if the first A2A route also serves the well-known paths at the root of the host.
    pub well_known_at_root: bool,
    /// Time after which a blocking call returns the task in its current state.
    pub blocking_timeout: Ttl,
    /// Handling of a message to a working task.
    pub while_working: WhileWorking,
    /// Scope in which messages with the same id are duplicates.
    pub deduplicate: Deduplicate,
    /// Task state after a completed turn.
    pub turn_end: TurnEnd,
    /// Task state after a turn that was cut off.
    pub incomplete: Incomplete,
    /// Reply with tasks or with messages.
    pub reply: ReplyAs,
    /// One artifact per message or per turn.
    pub artifacts: ArtifactPer,
    /// The closing statuses that repeat the last answer's text.
    pub status_text: StatusText,
    /// True to send an event for the end of each artifact.
    pub last_chunk: bool,
    /// The form of reasoning.
    pub reasoning: Reasoning,
    /// The form of the agent's own tool calls.
    pub tools: Tools,
    /// True to reject parts whose media type is not in the card.
    pub enforce_input_modes: bool,
    /// True to expose the upstream's response id.
    pub expose_ids: bool,
    /// Time that a task is kept after its end.
    pub task_ttl: Ttl,
    /// Time that a task waits for an answer before it is canceled.
    pub interrupted_ttl: Ttl,
    /// Maximum number of tasks per owner on the route; beyond it, tasks that ended first are deleted.
    #[schemars(range(min = 1))]
    pub max_tasks: u64,
    /// Maximum request body in bytes, written as `"20MiB"` or as a number. Files are sent inline.
    pub max_body: Size,
    /// True if push notifications are supported.
    pub push: bool,
    /// The events that are pushed.
    pub push_events: PushEvents,
    /// Time that text deltas are collected before they are pushed.
    pub push_interval: Ttl,
    /// Body of push notifications for 0.3 receivers.
    pub push_v03: PushV03,
    /// Addresses, networks and host names that may receive pushes although they are not public.
    pub push_allow: Vec<AddressException>,
    /// True to allow `http` receivers.
    pub push_allow_http: bool,
    /// Allowed receiver ports. Empty: any.
    #[schemars(inner(range(min = 1)))]
    pub push_ports: Vec<u16>,
    /// Maximum number of push configs per task.
    #[schemars(range(min = 1))]
    pub max_push_configs: usize,
    /// Agent by tenant. Empty: any tenant is accepted and only separates tasks.
    pub tenants: BTreeMap<String, String>,
    /// Extensions that the agent supports.
    pub extensions: Vec<Extension>,
    /// True to allow web pages of any origin (CORS).
    pub cors: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            public_url: None,
            card: CardOptions::default(),
            card_from: None,
            extended_card: None,
            card_signing: None,
            card_without_version: CardWithoutVersion::default(),
            versions: vec![Generation::V1, Generation::V03],
            bindings: vec![Binding::JsonRpc, Binding::Rest],
            missing_version: MissingVersion::default(),
            well_known_at_root: true,
            blocking_timeout: Ttl::seconds(600),
            while_working: WhileWorking::default(),
            deduplicate: Deduplicate::default(),
            turn_end: TurnEnd::default(),
            incomplete: Incomplete::default(),
            reply: ReplyAs::default(),
            artifacts: ArtifactPer::default(),
            status_text: StatusText::default(),
            last_chunk: true,
            reasoning: Reasoning::default(),
            tools: Tools::default(),
            enforce_input_modes: false,
            expose_ids: false,
            task_ttl: Ttl::seconds(3600),
            interrupted_ttl: Ttl::seconds(24 * 3600),
            max_tasks: 10_000,
            max_body: Size::mebibytes(20),
            push: true,
            push_events: PushEvents::default(),
            push_interval: Ttl::seconds(1),
            push_v03: PushV03::default(),
            push_allow: Vec::new(),
            push_allow_http: false,
            push_ports: Vec::new(),
            max_push_configs: 8,
            tenants: BTreeMap::new(),
            extensions: Vec::new(),
            cors: false,
        }
    }
}

impl Options {
    /// Allowed push destinations.
    pub(crate) fn push_policy(&self) -> Policy {
        Policy { allow_http: self.push_allow_http, ports: self.push_ports.clone(), allow: self.push_allow.clone() }
    }

    /// Retention of tasks.
    pub(crate) const fn retention(&self) -> RunRetention {
        RunRetention { ended_ttl: self.task_ttl.0, waiting_ttl: self.interrupted_ttl.0, max_runs: self.max_tasks }
    }

    /// Checks what the types cannot express.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.versions.is_empty() || self.bindings.is_empty() {
            return Err("\"versions\" and \"bindings\" of an \"a2a\" route must not be empty".into());
        }

        let duplicate = |name: &str| Err(format!("\"{name}\" of an \"a2a\" route lists a value twice"));
        if self.versions.iter().enumerate().any(|(index, version)| self.versions[..index].contains(version)) {
            return duplicate("versions");
        }
        if self.bindings.iter().enumerate().any(|(index, binding)| self.bindings[..index].contains(binding)) {
            return duplicate("bindings");
        }

        if self.tenants.contains_key("v1")
            || self.tenants.keys().any(|tenant| tenant.is_empty() || tenant.contains('/'))
        {
            return Err("\"tenants\" of an \"a2a\" route: names must not be empty, be \"v1\" or contain a slash".into());
        }
        if self.tenants.keys().any(|tenant| tenant.len() > MAX_TENANT_BYTES || tenant.chars().any(char::is_control)) {
            return Err(format!(
                "\"tenants\" of an \"a2a\" route: names must have at most {MAX_TENANT_BYTES} bytes, no control characters"
            ));
        }

        if self.task_ttl.0.is_zero() || self.interrupted_ttl.0.is_zero() || self.max_tasks == 0 {
            return Err(
                "\"task_ttl\", \"interrupted_ttl\" and \"max_tasks\" of an \"a2a\" route must not be zero".into()
            );
        }

        if self.max_push_configs == 0 {
            return Err("\"max_push_configs\" of an \"a2a\" route must be at least 1: use push = false to turn push notifications off".into());
        }
        if self.push_ports.contains(&0) {
            return Err("\"push_ports\" of an \"a2a\" route must be ports from 1 to 65535".into());
        }

        Ok(())
    }
}

/// Maximum length of a tenant name, in bytes.
const MAX_TENANT_BYTES: usize = 256;

/// A protocol extension declared in cards.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// URI that identifies the extension.
    pub uri: String,
    /// Shown in cards.
    #[serde(default)]
    pub description: Option<String>,
    /// True if clients must support it.
    #[serde(default)]
    pub required: bool,
    /// Extension-specific parameters.
    #[serde(default)]
    pub params: Option<serde_json::Value>,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $name_literal:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $name_literal)] $variant,)+
        }
    };
}

choice! {
    /// Base card of a route.
    CardFrom {
        /// The card published by the agent's own server.
        #[default] Upstream = "upstream",
    }
}
choice! {
    /// Card format for requests without a version.
    CardWithoutVersion {
        /// Both versions in one object.
        #[default] Hybrid = "hybrid",
        /// The 1.0 card.
        V1 = "1.0",
        /// The 0.3 card.
        V03 = "0.3",
    }
}
choice! {
    /// Handling of 1.0 calls without a version header.
    MissingVersion {
        /// Reject them, as the specification requires.
        #[default] Strict = "strict",
        /// Accept them: the method name identifies the version.
        ByMethod = "by_method",
    }
}
choice! {
    /// Handling of a message to a working task.
    WhileWorking {
        /// Queue it as the next turn.
        #[default] Queue = "queue",
        /// Reject it.
        Reject = "reject",
    }
}
choice! {
    /// Scope in which messages with the same id are duplicates.
    Deduplicate {
        /// None: some clients reuse ids.
        #[default] Off = "off",
        /// The context: a duplicate is answered with the task of the first message.
        Context = "context",
    }
}
choice! {
    /// Task state after a completed turn.
    TurnEnd {
        /// The task has ended.
        #[default] Completed = "completed",
        /// The task waits for more input.
        InputRequired = "input-required",
    }
}
choice! {
    /// Task state after a cut-off answer.
    Incomplete {
        /// The task waits and can be continued.
        #[default] InputRequired = "input-required",
        /// The task has ended.
        Completed = "completed",
        /// The task has failed.
        Failed = "failed",
    }
}
choice! {
    /// Reply with tasks or with messages.
    ReplyAs {
        /// Tasks; blocking calls follow the agent's hint.
        #[default] Task = "task",
        /// The agent's hint decides, in streams too.
        Auto = "auto",
        /// Messages, if the run completes in one turn.
        Message = "message",
    }
}
choice! {
    /// Scope of an artifact.
    ArtifactPer {
        /// One per agent message.
        #[default] Message = "message",
        /// One per turn.
        Turn = "turn",
    }
}
choice! {
    /// The closing statuses that repeat the last answer's text.
    StatusText {
        /// None.
        Never = "never",
        /// The statuses of waiting tasks.
        #[default] Interrupted = "interrupted",
        /// All.
        Always = "always",
    }
}
choice! {
    /// The form of reasoning.
    Reasoning {
        /// Complete, in one status.
        #[default] Status = "status",
        /// Each delta in its own status; makes the history long.
        Stream = "stream",
        /// A separate artifact.
        Artifact = "artifact",
        /// Not sent.
        Drop = "drop",
    }
}
choice! {
    /// The form of tool calls.
    Tools {
        /// Calls and outputs, as statuses.
        #[default] Status = "status",
        /// Tool lists as well.
        All = "all",
        /// Not sent.
        Drop = "drop",
    }
}
choice! {
    /// The events that are pushed.
    PushEvents {
        /// Every event.
        #[default] All = "all",
        /// Status changes only.
        Status = "status",
    }
}
choice! {
    /// Body of push notifications for 0.3 receivers.
    PushV03 {
        /// The complete task each time.
        #[default] Task = "task",
        /// The event.
        Event = "event",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_schema_names_every_option() {
        let schema = interlingua_core::options::schema::<Options>();
        let named = schema["properties"].as_object().expect("an object");
        for name in named.keys() {
            // serde reports an unknown name before an invalid value.
            let error =
                serde_json::from_value::<Options>(json!({ name: {"?": 1} })).err().map(|error| error.to_string());
            assert!(!error.unwrap_or_default().contains("unknown field `?`, there are no fields"), "{name}");
        }

        let unknown = serde_json::from_value::<Options>(json!({ "nonsense": 1 })).expect_err("unknown").to_string();
        let known: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
        let mut listed: Vec<&str> = named.keys().map(String::as_str).collect();
        let mut known = known;

        listed.sort_unstable();
        known.sort_unstable();

        assert_eq!(listed, known);
    }

    #[test]
    fn documented_options_are_parsed() {
        let options: Options = serde_json::from_value(json!({
            "versions": ["1.0"], "bindings": ["HTTP+JSON"], "incomplete": "failed", "push_interval": "2s",
            "push_allow": ["10.1.0.0/16", "hooks.internal"], "blocking_timeout": "5m", "reply": "auto",
        }))
        .expect("options");
        assert_eq!(options.versions, [Generation::V1]);
        assert_eq!(options.push_policy().allow.len(), 2);
        assert_eq!(options.blocking_timeout, Ttl::seconds(300));
        assert!(serde_json::from_value::<Options>(json!({ "push_allow": ["a b"] })).is_err());
        assert!(Options { versions: Vec::new(), ..Options::default() }.check().is_err());
    }

    #[test]
    fn max_body_takes_a_size_with_a_unit() {
        let read = |size: serde_json::Value| {
            serde_json::from_value::<Options>(json!({ "max_body": size })).map(|options| options.max_body.bytes()).ok()
        };
        assert_eq!(
            (read(json!("64KiB")), read(json!("1 MiB")), read(json!(512))),
            (Some(65_536), Some(1 << 20), Some(512))
        );
        assert_eq!((read(json!("64KB")), read(json!(-1)), read(json!(true))), (None, None, None));
    }

    #[test]
    fn task_retention_comes_from_the_options() {
        let hour = Duration::from_secs(3600);
        assert_eq!(
            Options::default().retention(),
            RunRetention { ended_ttl: hour, waiting_ttl: 24 * hour, max_runs: 10_000 }
        );
        let options: Options =
            serde_json::from_value(json!({ "task_ttl": "90s", "interrupted_ttl": 7200, "max_tasks": 5 }))
                .expect("options");
        assert_eq!(
            options.retention(),
            RunRetention { ended_ttl: Duration::from_secs(90), waiting_ttl: 2 * hour, max_runs: 5 }
        );
        options.check().expect("valid options");
        for name in ["task_ttl", "interrupted_ttl", "max_tasks"] {
            let options: Options = serde_json::from_value(json!({ name: 0 })).expect("options");
            assert!(options.check().expect_err("zero is rejected").contains(name));
        }
    }
}
