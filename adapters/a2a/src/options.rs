//! What an operator may choose for an A2A route (section 19). Nothing here is optional in use: every default is filled
//! in. Whose memory an agent uses is the agent's own setting.

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

/// What an operator may choose for an A2A route.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The URL of the mount as clients reach it, where the gateway's own is not right; `{agent}` is replaced.
    pub public_url: Option<String>,
    /// What the card says.
    pub card: CardOptions,
    /// What the card begins with, before `card` has its say. None: the agent's own settings.
    pub card_from: Option<CardFrom>,
    /// What the card says besides to those who have signed in. None: there is no extended card.
    pub extended_card: Option<CardOptions>,
    /// With what cards of 1.0 are signed. None: not at all.
    pub card_signing: Option<CardSigning>,
    /// Which card is given to those who name no version.
    pub card_without_version: CardWithoutVersion,
    /// The generations that are served.
    pub versions: Vec<Generation>,
    /// The bindings that are served.
    pub bindings: Vec<Binding>,
    /// What becomes of calls of 1.0 that do not say so.
    pub missing_version: MissingVersion,
    /// Whether the first route of this protocol also answers the well-known paths at the root of the host.
    pub well_known_at_root: bool,
    /// After how long a blocking call answers with the task as it is.
    #[serde(deserialize_with = "duration")]
    pub blocking_timeout: Duration,
    /// What becomes of a message to a task that works.
    pub while_working: WhileWorking,
    /// Where a message of the same id is the same message.
    pub deduplicate: Deduplicate,
    /// The state a task is in when a turn has ended well.
    pub turn_end: TurnEnd,
    /// The state a task is in when a turn was cut off.
    pub incomplete: Incomplete,
    /// Whether answers are tasks or direct messages.
    pub reply: ReplyAs,
    /// What makes an artifact.
    pub artifacts: ArtifactPer,
    /// Where the last answer's text is repeated in a closing status.
    pub status_text: StatusText,
    /// Whether the end of an artifact is told by an event of its own.
    pub last_chunk: bool,
    /// How reasoning is told.
    pub reasoning: Reasoning,
    /// How the agent's own tool calls are told.
    pub tools: Tools,
    /// Whether parts of a media type that the card does not name are refused.
    pub enforce_input_modes: bool,
    /// Whether the upstream's response id is shown.
    pub expose_ids: bool,
    /// How long a task is kept after its end.
    #[serde(deserialize_with = "duration")]
    pub task_ttl: Duration,
    /// How long a task waits for an answer before it is cancelled.
    #[serde(deserialize_with = "duration")]
    pub interrupted_ttl: Duration,
    /// How many tasks the route keeps; beyond, those that ended first are forgotten.
    pub max_tasks: u64,
    /// The largest body that is read, in bytes; written as `"20MiB"` or as a number. Files come inline.
    #[serde(deserialize_with = "size")]
    pub max_body: usize,
    /// Whether push notifications are served.
    pub push: bool,
    /// Which events are pushed.
    pub push_events: PushEvents,
    /// For how long pieces of text are joined before they are pushed.
    #[serde(deserialize_with = "duration")]
    pub push_interval: Duration,
    /// What receivers of 0.3 get.
    pub push_v03: PushOld,
    /// Exceptions: addresses, blocks and names that may be pushed to although they are not public.
    #[serde(deserialize_with = "allowed")]
    pub push_allow: Vec<Allowed>,
    /// Whether `http` will do for receivers.
    pub push_allow_http: bool,
    /// The ports receivers may have. Empty: any.
    pub push_ports: Vec<u16>,
    /// How many receivers a task may have.
    pub max_push_configs: usize,
    /// The agent of each tenant. Empty: any tenant is accepted, and only separates tasks.
    pub tenants: BTreeMap<String, String>,
    /// Extensions the agent understands.
    pub extensions: Vec<Extension>,
    /// Whether web pages of any origin may ask.
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
            push_v03: PushOld::default(),
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
    /// Where may be pushed to.
    pub(crate) fn push_policy(&self) -> Policy {
        Policy { allow_http: self.push_allow_http, ports: self.push_ports.clone(), allow: self.push_allow.clone() }
    }

    /// How long tasks are kept.
    pub(crate) const fn keep(&self) -> RunRetention {
        RunRetention { ended_ttl: self.task_ttl, waiting_ttl: self.interrupted_ttl, max_runs: self.max_tasks }
    }

    /// What is wrong with them that a type cannot say.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.versions.is_empty() || self.bindings.is_empty() {
            return Err("an \"a2a\" route serves at least one of versions and one of bindings".into());
        }
        let twice = |name: &str| Err(format!("\"{name}\" of an \"a2a\" route names something twice"));
        if self.versions.iter().enumerate().any(|(place, version)| self.versions[..place].contains(version)) {
            return twice("versions");
        }
        if self.bindings.iter().enumerate().any(|(place, binding)| self.bindings[..place].contains(binding)) {
            return twice("bindings");
        }
        if self.tenants.contains_key("v1")
            || self.tenants.keys().any(|tenant| tenant.is_empty() || tenant.contains('/'))
        {
            return Err("a tenant of an \"a2a\" route has a name other than \"v1\", without slashes".into());
        }
        if self.tenants.keys().any(|tenant| tenant.len() > MAX_TENANT || tenant.chars().any(char::is_control)) {
            return Err(format!(
                "a tenant of an \"a2a\" route has a name of at most {MAX_TENANT} bytes, without control characters"
            ));
        }
        if self.task_ttl.is_zero() || self.interrupted_ttl.is_zero() || self.max_tasks == 0 {
            return Err("task_ttl, interrupted_ttl and max_tasks of an \"a2a\" route cannot be zero".into());
        }
        if self.max_push_configs == 0 {
            return Err("\"max_push_configs\" of an \"a2a\" route is at least 1: push = false serves none".into());
        }
        if self.push_ports.contains(&0) {
            return Err("\"push_ports\" of an \"a2a\" route names ports from 1 to 65535".into());
        }
        crate::card::check(self)
    }
}

/// So many bytes the name of a tenant has at most.
const MAX_TENANT: usize = 256;

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Ttl::deserialize(deserializer).map(|written| written.0)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    Size::deserialize(deserializer).map(Size::bytes)
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Allowed>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| Allowed::read(text)).collect::<Result<_, _>>().map_err(serde::de::Error::custom)
}

/// An extension, as cards declare it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// Its name.
    pub uri: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether clients must understand it.
    #[serde(default)]
    pub required: bool,
    /// Its own parameters.
    #[serde(default)]
    pub params: Option<serde_json::Value>,
}

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }
        impl $name {
            /// Every word, for the schema.
            const WORDS: &'static [&'static str] = &[$($word),+];
        }
    };
}

choice! {
    /// What a card begins with (section 4).
    CardFrom {
        /// The card that the agent's own server shows.
        #[default] Upstream = "upstream",
    }
}
choice! {
    /// Which card is given to those who name no version (section 4).
    CardWithoutVersion {
        /// Both generations in one object.
        #[default] Hybrid = "hybrid",
        /// That of 1.0.
        V1 = "1.0",
        /// That of 0.3.
        V03 = "0.3",
    }
}
choice! {
    /// What becomes of calls of 1.0 that do not say so (section 3).
    MissingVersion {
        /// They are refused, as the specification wants.
        #[default] Strict = "strict",
        /// They are served.
        ByMethod = "by_method",
    }
}
choice! {
    /// What becomes of a message to a task that works (section 8).
    WhileWorking {
        /// It is the next turn.
        #[default] Queue = "queue",
        /// It is refused.
        Reject = "reject",
    }
}
choice! {
    /// Where a message of the same id is the same message (section 7).
    Deduplicate {
        /// Nowhere: clients reuse ids.
        #[default] Off = "off",
        /// In its context: it is answered by the task it came to.
        Context = "context",
    }
}
choice! {
    /// The state of a task after a good turn (section 13).
    TurnEnd {
        /// It is over.
        #[default] Completed = "completed",
        /// It waits for more.
        InputRequired = "input-required",
    }
}
choice! {
    /// The state of a task whose answer was cut off (section 13).
    Incomplete {
        /// It can be continued.
        #[default] InputRequired = "input-required",
        /// It is over.
        Completed = "completed",
        /// It has failed.
        Failed = "failed",
    }
}
choice! {
    /// Whether answers are tasks or direct messages (section 13, rule 6).
    ReplyAs {
        /// Tasks; a blocking call obeys the agent's hint.
        #[default] Task = "task",
        /// As the agent hints, in streams too.
        Auto = "auto",
        /// Messages, where a turn ends plainly.
        Message = "message",
    }
}
choice! {
    /// What makes an artifact (section 13, rule 5).
    ArtifactPer {
        /// Each message of the agent.
        #[default] Message = "message",
        /// Each turn.
        Turn = "turn",
    }
}
choice! {
    /// Where the last answer's text is repeated (section 13, rule 3).
    StatusText {
        /// Nowhere.
        Never = "never",
        /// Where a task waits.
        #[default] Interrupted = "interrupted",
        /// In every closing status.
        Always = "always",
    }
}
choice! {
    /// How reasoning is told (section 13).
    Reasoning {
        /// Whole, in a status.
        #[default] Status = "status",
        /// Piece by piece, each in a status: long histories.
        Stream = "stream",
        /// As an artifact beside the answer.
        Artifact = "artifact",
        /// Not at all.
        Drop = "drop",
    }
}
choice! {
    /// How tool calls are told (section 13).
    Tools {
        /// Calls and outputs, in a status.
        #[default] Status = "status",
        /// The lists of tools too.
        All = "all",
        /// Not at all.
        Drop = "drop",
    }
}
choice! {
    /// Which events are pushed (section 11).
    PushEvents {
        /// Every event.
        #[default] All = "all",
        /// Changes of the status.
        Status = "status",
    }
}
choice! {
    /// What receivers of 0.3 get (section 11).
    PushOld {
        /// The whole task each time.
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
                "description": "A private key, PKCS #8 in PEM: by { env } or { file }.",
                "type": ["string", "object"]
            }
        }
    });
    let properties = [
        ("public_url", json!({ "type": "string", "description": "The URL of the mount as clients reach it." })),
        ("card", crate::card::schema()),
        ("card_from", words(CardFrom::WORDS)),
        ("extended_card", crate::card::schema()),
        ("card_signing", signing),
        ("card_without_version", words(CardWithoutVersion::WORDS)),
        ("versions", one_of(&["1.0", "0.3"])),
        ("bindings", one_of(&["JSONRPC", "HTTP+JSON"])),
        ("missing_version", words(MissingVersion::WORDS)),
        ("well_known_at_root", flag(true)),
        ("blocking_timeout", duration.clone()),
        ("while_working", words(WhileWorking::WORDS)),
        ("deduplicate", words(Deduplicate::WORDS)),
        ("turn_end", words(TurnEnd::WORDS)),
        ("incomplete", words(Incomplete::WORDS)),
        ("reply", words(ReplyAs::WORDS)),
        ("artifacts", words(ArtifactPer::WORDS)),
        ("status_text", words(StatusText::WORDS)),
        ("last_chunk", flag(true)),
        ("reasoning", words(Reasoning::WORDS)),
        ("tools", words(Tools::WORDS)),
        ("enforce_input_modes", flag(false)),
        ("expose_ids", flag(false)),
        ("task_ttl", duration.clone()),
        ("interrupted_ttl", duration.clone()),
        ("max_tasks", count.clone()),
        (
            "max_body",
            json!({ "type": ["string", "integer"], "minimum": 0, "description": "The largest body, with a unit or in bytes." }),
        ),
        ("push", flag(true)),
        ("push_events", words(PushEvents::WORDS)),
        ("push_interval", duration),
        ("push_v03", words(PushOld::WORDS)),
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
            // An unknown name is told before a wrong value is.
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
    fn options_are_read_as_the_page_writes_them() {
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
    fn the_largest_body_is_written_like_every_other_size() {
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
    fn how_long_tasks_are_kept_is_an_option() {
        let hour = Duration::from_secs(3600);
        assert_eq!(
            Options::default().keep(),
            RunRetention { ended_ttl: hour, waiting_ttl: 24 * hour, max_runs: 10_000 }
        );
        let options: Options =
            serde_json::from_value(json!({ "task_ttl": "90s", "interrupted_ttl": 7200, "max_tasks": 5 }))
                .expect("options");
        assert_eq!(
            options.keep(),
            RunRetention { ended_ttl: Duration::from_secs(90), waiting_ttl: 2 * hour, max_runs: 5 }
        );
        options.check().expect("they are in order");
        for name in ["task_ttl", "interrupted_ttl", "max_tasks"] {
            let options: Options = serde_json::from_value(json!({ name: 0 })).expect("options");
            assert!(options.check().expect_err("none is kept").contains(name));
        }
    }
}
