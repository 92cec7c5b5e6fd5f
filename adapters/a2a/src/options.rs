//! Options of an A2A route (section 19), with all defaults filled in. Not here: whose conversation history an agent
//! uses, which is a setting of the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use interlingua_core::answer::Ttl;
use interlingua_core::exchange::RunRetention;
use interlingua_core::public_address::{Allowed, Policy};
use interlingua_core::size::Size;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::card::{CardOptions, CardSigning};
use crate::dialect::{Binding, Generation};

/// Options of an A2A route, set by the operator.
#[derive(Clone, Debug, Deserialize)]
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
    pub versions: Vec<Generation>,
    /// Bindings that are served.
    pub bindings: Vec<Binding>,
    /// How to treat 1.0 calls without a version header.
    pub missing_version: MissingVersion,
    /// True if the first A2A route also serves the well-known paths at the root of the host.
    pub well_known_at_root: bool,
    /// Time after which a blocking call returns the task in its current state.
    #[serde(deserialize_with = "duration")]
    pub blocking_timeout: Duration,
    /// How to treat a message to a working task.
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
    /// Which closing statuses repeat the last answer's text.
    pub status_text: StatusText,
    /// True to send an event for the end of each artifact.
    pub last_chunk: bool,
    /// How reasoning is sent.
    pub reasoning: Reasoning,
    /// How the agent's own tool calls are sent.
    pub tools: Tools,
    /// True to reject parts whose media type is not in the card.
    pub enforce_input_modes: bool,
    /// True to expose the upstream's response id.
    pub expose_ids: bool,
    /// How long a task is kept after its end.
    #[serde(deserialize_with = "duration")]
    pub task_ttl: Duration,
    /// How long a task waits for an answer before it is canceled.
    #[serde(deserialize_with = "duration")]
    pub interrupted_ttl: Duration,
    /// Maximum number of tasks per owner on the route; beyond it, tasks that ended first are deleted.
    pub max_tasks: u64,
    /// Maximum request body in bytes, written as `"20MiB"` or as a number. Files are sent inline.
    #[serde(deserialize_with = "size")]
    pub max_body: usize,
    /// True if push notifications are supported.
    pub push: bool,
    /// Which events are pushed.
    pub push_events: PushEvents,
    /// How long text deltas are collected before they are pushed.
    #[serde(deserialize_with = "duration")]
    pub push_interval: Duration,
    /// Body of push notifications for 0.3 receivers.
    pub push_v03: PushV03,
    /// Addresses, networks and host names that may receive pushes although they are not public.
    #[serde(deserialize_with = "allowed")]
    pub push_allow: Vec<Allowed>,
    /// True to allow `http` receivers.
    pub push_allow_http: bool,
    /// Allowed receiver ports. Empty: any.
    pub push_ports: Vec<u16>,
    /// Maximum number of push configs per task.
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
            blocking_timeout: Duration::from_secs(600),
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
            task_ttl: Duration::from_secs(3600),
            interrupted_ttl: Duration::from_secs(24 * 3600),
            max_tasks: 10_000,
            max_body: 20 << 20,
            push: true,
            push_events: PushEvents::default(),
            push_interval: Duration::from_secs(1),
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
        RunRetention { ended_ttl: self.task_ttl, waiting_ttl: self.interrupted_ttl, max_runs: self.max_tasks }
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

        if self.task_ttl.is_zero() || self.interrupted_ttl.is_zero() || self.max_tasks == 0 {
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

        crate::card::check(self)
    }
}

/// Maximum length of a tenant name, in bytes.
const MAX_TENANT_BYTES: usize = 256;

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Ttl::deserialize(deserializer).map(|written| written.0)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Size::deserialize(deserializer).map(Size::bytes)
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Allowed>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| Allowed::parse(text)).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// A protocol extension declared in cards.
#[derive(Clone, Debug, Deserialize)]
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
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $name_literal)] $variant,)+
        }
        impl $name {
            /// All configuration values, for the schema.
            const NAMES: &'static [&'static str] = &[$($name_literal),+];
        }
    };
}

choice! {
    /// Base card of a route (section 4).
    CardFrom {
        /// The card published by the agent's own server.
        #[default] Upstream = "upstream",
    }
}
choice! {
    /// Card format for requests without a version (section 4).
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
    /// How to treat 1.0 calls without a version header (section 3).
    MissingVersion {
        /// Reject them, as the specification requires.
        #[default] Strict = "strict",
        /// Accept them: the method name identifies the version.
        ByMethod = "by_method",
    }
}
choice! {
    /// How to treat a message to a working task (section 8).
    WhileWorking {
        /// Queue it as the next turn.
        #[default] Queue = "queue",
        /// Reject it.
        Reject = "reject",
    }
}
choice! {
    /// Scope in which messages with the same id are duplicates (section 7).
    Deduplicate {
        /// None: some clients reuse ids.
        #[default] Off = "off",
        /// The context: a duplicate is answered with the task of the first message.
        Context = "context",
    }
}
choice! {
    /// Task state after a completed turn (section 13).
    TurnEnd {
        /// The task has ended.
        #[default] Completed = "completed",
        /// The task waits for more input.
        InputRequired = "input-required",
    }
}
choice! {
    /// Task state after a cut-off answer (section 13).
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
    /// Reply with tasks or with messages (section 13, rule 6).
    ReplyAs {
        /// Tasks; blocking calls follow the agent's hint.
        #[default] Task = "task",
        /// As the agent's hint says, in streams too.
        Auto = "auto",
        /// Messages, if the run completes in one turn.
        Message = "message",
    }
}
choice! {
    /// Scope of an artifact (section 13, rule 5).
    ArtifactPer {
        /// One per agent message.
        #[default] Message = "message",
        /// One per turn.
        Turn = "turn",
    }
}
choice! {
    /// Which closing statuses repeat the last answer's text (section 13, rule 3).
    StatusText {
        /// None.
        Never = "never",
        /// Those of waiting tasks.
        #[default] Interrupted = "interrupted",
        /// All.
        Always = "always",
    }
}
choice! {
    /// How reasoning is sent (section 13).
    Reasoning {
        /// Complete, in one status.
        #[default] Status = "status",
        /// Each delta in its own status; makes the history long.
        Stream = "stream",
        /// As a separate artifact.
        Artifact = "artifact",
        /// Not sent.
        Drop = "drop",
    }
}
choice! {
    /// How tool calls are sent (section 13).
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
    /// Which events are pushed (section 11).
    PushEvents {
        /// Every event.
        #[default] All = "all",
        /// Status changes only.
        Status = "status",
    }
}
choice! {
    /// Body of push notifications for 0.3 receivers (section 11).
    PushV03 {
        /// The complete task each time.
        #[default] Task = "task",
        /// The event.
        Event = "event",
    }
}

/// JSON Schema of the options.
pub(crate) fn schema() -> serde_json::Value {
    let words = |words: &[&str]| json!({ "enum": words });
    let flag = |default: bool| json!({ "type": "boolean", "default": default });
    let duration = json!({ "type": ["string", "integer"], "examples": ["90s", "15m", "24h"] });
    let count = json!({ "type": "integer", "minimum": 1 });
    let texts = json!({ "type": "array", "items": { "type": "string" } });
    let one_of = |words: &[&str]| json!({ "type": "array", "items": { "enum": words }, "minItems": 1 });

    let extension = json!({
        "type": "object",
        "required": ["uri"],
        "additionalProperties": false,
        "properties": {
            "uri": { "type": "string" },
            "description": { "type": "string" },
            "required": { "type": "boolean" },
            "params": {}
        }
    });

    let signing = json!({
        "type": "object",
        "required": ["algorithm", "key_id", "key"],
        "additionalProperties": false,
        "properties": {
            "algorithm": { "enum": ["ES256", "EdDSA"] },
            "key_id": { "type": "string" },
            "jku": { "type": "string" },
            "key": {
                "description": "Private key, PKCS #8 in PEM: by { env } or { file }.",
                "type": ["string", "object"]
            }
        }
    });

    let properties = [
        ("public_url", json!({ "type": "string", "description": "The URL of the mount as clients reach it." })),
        ("card", crate::card::schema()),
        ("card_from", words(CardFrom::NAMES)),
        ("extended_card", crate::card::schema()),
        ("card_signing", signing),
        ("card_without_version", words(CardWithoutVersion::NAMES)),
        ("versions", one_of(&["1.0", "0.3"])),
        ("bindings", one_of(&["JSONRPC", "HTTP+JSON"])),
        ("missing_version", words(MissingVersion::NAMES)),
        ("well_known_at_root", flag(true)),
        ("blocking_timeout", duration.clone()),
        ("while_working", words(WhileWorking::NAMES)),
        ("deduplicate", words(Deduplicate::NAMES)),
        ("turn_end", words(TurnEnd::NAMES)),
        ("incomplete", words(Incomplete::NAMES)),
        ("reply", words(ReplyAs::NAMES)),
        ("artifacts", words(ArtifactPer::NAMES)),
        ("status_text", words(StatusText::NAMES)),
        ("last_chunk", flag(true)),
        ("reasoning", words(Reasoning::NAMES)),
        ("tools", words(Tools::NAMES)),
        ("enforce_input_modes", flag(false)),
        ("expose_ids", flag(false)),
        ("task_ttl", duration.clone()),
        ("interrupted_ttl", duration.clone()),
        ("max_tasks", count.clone()),
        (
            "max_body",
            json!({ "type": ["string", "integer"], "minimum": 0, "description": "Maximum request body, with a unit or in bytes." }),
        ),
        ("push", flag(true)),
        ("push_events", words(PushEvents::NAMES)),
        ("push_interval", duration),
        ("push_v03", words(PushV03::NAMES)),
        ("push_allow", texts),
        ("push_allow_http", flag(false)),
        ("push_ports", json!({ "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 65535 } })),
        ("max_push_configs", count),
        ("tenants", json!({ "type": "object", "additionalProperties": { "type": "string" } })),
        ("extensions", json!({ "type": "array", "items": extension })),
        ("cors", flag(false)),
    ];

    let properties: serde_json::Map<_, _> =
        properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_names_every_option() {
        let schema = schema();
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
        assert_eq!(options.blocking_timeout, Duration::from_secs(300));
        assert!(serde_json::from_value::<Options>(json!({ "push_allow": ["a b"] })).is_err());
        assert!(Options { versions: Vec::new(), ..Options::default() }.check().is_err());
    }

    #[test]
    fn max_body_takes_a_size_with_a_unit() {
        let read = |size: serde_json::Value| {
            serde_json::from_value::<Options>(json!({ "max_body": size })).map(|options| options.max_body).ok()
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
