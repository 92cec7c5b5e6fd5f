//! The serialized form of a run's metadata, beside its record: a JSON object, so that fields can be added later.
//! Unknown fields of a newer version are ignored, and lost if this version continues the run.
//!
//! Not here: the record itself ([`super`]).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::message::{Message, SerializedValue};
use crate::call::{Delivery, RetentionOwner, RunInfo, RunState, Tags};
use crate::event::Millis;
use crate::id::RunId;
use crate::json::{Extra, Json};
use crate::model::{self, AgentRequest, Sampling, Stop};

/// The metadata to serialize.
#[derive(Serialize)]
struct InfoRef<'a> {
    protocol: &'a str,
    owner: &'a str,
    state: &'static str,
    changed_at: Millis,
    previous: Option<RunId>,
    delivery: &'static str,
    stored: bool,
    request: RequestRef<'a>,
    labels: &'a Json,
    #[serde(skip_serializing_if = "Tags::is_empty")]
    tags: &'a Tags,
    #[serde(skip_serializing_if = "Option::is_none")]
    keeper: Option<StoredRetention<&'a str>>,
}

/// The route whose retention settings apply.
#[derive(Serialize, Deserialize)]
struct StoredRetention<T> {
    route: T,
    #[serde(default)]
    remembered: bool,
}

#[derive(Serialize)]
struct RequestRef<'a> {
    input: Vec<Message<'a>>,
    id: &'a Option<String>,
    session_id: &'a Option<String>,
    user_id: &'a Option<String>,
    model: &'a Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    max_tokens: Option<i64>,
    stop: &'a Option<Stop>,
    n: Option<i64>,
    seed: Option<i64>,
    tools: &'a Option<Vec<Json>>,
    extra: &'a Extra,
}

impl Serialize for SerializedValue<&RunInfo> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let info = self.0;
        let request = &info.request;
        let sampling = &request.sampling;

        let stored = InfoRef {
            protocol: &info.protocol,
            owner: &info.owner,
            state: info.state.as_str(),
            changed_at: info.changed_at,
            previous: info.previous,
            delivery: match info.delivery {
                Delivery::Stream => "stream",
                Delivery::Collect => "collect",
                Delivery::Background => "background",
            },
            stored: info.stored,
            request: RequestRef {
                input: request.input.iter().map(Message).collect(),
                id: &request.id,
                session_id: &request.session_id,
                user_id: &request.user_id,
                model: &request.model,
                temperature: sampling.temperature,
                top_p: sampling.top_p,
                frequency_penalty: sampling.frequency_penalty,
                presence_penalty: sampling.presence_penalty,
                max_tokens: sampling.max_tokens,
                stop: &sampling.stop,
                n: sampling.n,
                seed: sampling.seed,
                tools: &request.tools,
                extra: &request.extra,
            },
            labels: &info.labels,
            tags: &info.tags,
            keeper: info
                .retention
                .as_ref()
                .map(|keeper| StoredRetention { route: keeper.route.as_str(), remembered: keeper.remembered }),
        };

        stored.serialize(serializer)
    }
}

#[derive(Deserialize)]
struct Info {
    protocol: String,
    owner: String,
    #[serde(deserialize_with = "state")]
    state: RunState,
    changed_at: Millis,
    previous: Option<RunId>,
    #[serde(deserialize_with = "delivery")]
    delivery: Delivery,
    stored: bool,
    request: Request,
    #[serde(default = "Json::null")]
    labels: Json,
    #[serde(default)]
    tags: Tags,
    #[serde(default)]
    keeper: Option<StoredRetention<String>>,
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    input: Vec<SerializedValue<model::Message>>,
    id: Option<String>,
    session_id: Option<String>,
    user_id: Option<String>,
    model: Option<String>,
    #[serde(default, deserialize_with = "exact")]
    temperature: Option<f64>,
    #[serde(default, deserialize_with = "exact")]
    top_p: Option<f64>,
    #[serde(default, deserialize_with = "exact")]
    frequency_penalty: Option<f64>,
    #[serde(default, deserialize_with = "exact")]
    presence_penalty: Option<f64>,
    max_tokens: Option<i64>,
    stop: Option<StopWords>,
    n: Option<i64>,
    seed: Option<i64>,
    tools: Option<Vec<Json>>,
    #[serde(default)]
    extra: Extra,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum StopWords {
    One(String),
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for SerializedValue<RunInfo> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Info { protocol, owner, state, changed_at, previous, delivery, stored, request, labels, tags, keeper } =
            Info::deserialize(deserializer)?;

        let request = AgentRequest {
            input: request.input.into_iter().map(|SerializedValue(message)| message).collect(),
            id: request.id,
            session_id: request.session_id,
            user_id: request.user_id,
            model: request.model,
            sampling: Sampling {
                temperature: request.temperature,
                top_p: request.top_p,
                frequency_penalty: request.frequency_penalty,
                presence_penalty: request.presence_penalty,
                max_tokens: request.max_tokens,
                stop: request.stop.map(|stop| match stop {
                    StopWords::One(word) => Stop::One(word),
                    StopWords::Many(words) => Stop::Many(words),
                }),
                n: request.n,
                seed: request.seed,
            },
            tools: request.tools,
            extra: request.extra,
        };
        let retention = keeper.map(|StoredRetention { route, remembered }| RetentionOwner { route, remembered });

        Ok(Self(RunInfo {
            protocol,
            owner,
            state,
            changed_at,
            previous,
            delivery,
            stored,
            request,
            labels,
            tags,
            retention,
        }))
    }
}

fn state<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RunState, D::Error> {
    let word = String::deserialize(deserializer)?;
    RunState::parse(&word).ok_or_else(|| serde::de::Error::custom(format!("unknown state '{word}'")))
}

fn delivery<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Delivery, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "stream" => Ok(Delivery::Stream),
        "collect" => Ok(Delivery::Collect),
        "background" => Ok(Delivery::Background),
        word => Err(serde::de::Error::custom(format!("unknown delivery '{word}'"))),
    }
}

/// An exact number: serde_json's own float parsing can be off by one bit.
fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    raw.get().parse().map(Some).map_err(serde::de::Error::custom)
}
