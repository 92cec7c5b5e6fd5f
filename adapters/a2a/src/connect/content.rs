//! Parts as canonical contents, and what the metadata of a part says about them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use interlingua_core::Json;
use interlingua_core::agent_event::{CallPart, ContentValue};
use interlingua_core::lenient::Name;
use interlingua_core::model::{Body, MessageType};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::wire::{Content, Part, Raw};
use crate::{A2UI, parts};

/// The kind of a part, by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// Nothing in particular.
    Plain,
    /// The agent declines, in words.
    Refusal,
    Reasoning,
    /// A tool call of this type.
    Call(MessageType),
    /// The output of a tool, of this type.
    Output(MessageType),
    /// The content of a message of this type.
    Typed(MessageType),
}

/// Metadata of a part, an artifact or a message that frameworks have in common, and the gateway's own.
#[derive(Default)]
struct Annotations {
    is_thought: bool,
    is_refusal: bool,
    is_long_running: bool,
    kind: Option<String>,
    /// Prefix of the field that names the kind: frameworks made from ADK have prefixes of their own.
    prefix: String,
    agent_api: Option<Origin>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Origin {
    r#type: Option<String>,
    server_label: Option<String>,
}

/// The fields of an object, in order.
struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for Object<'a> {
            type Value = Fields<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

impl Annotations {
    /// Reads metadata. Fields of other types are somebody else's.
    fn read(metadata: Option<&RawValue>) -> Self {
        let Some(fields) = metadata.and_then(|raw| serde_json::from_str::<Fields<'_>>(raw.get()).ok()) else {
            return Self::default();
        };

        let mut found = Self::default();
        for (name, value) in &fields.0 {
            let is_true = value.get() == "true";
            let text = || serde_json::from_str::<String>(value.get()).ok();
            match name.as_ref() {
                "refusal" => found.is_refusal = is_true,
                "agent_api" => found.agent_api = serde_json::from_str(value.get()).ok(),
                "agno_content_category" => found.is_thought |= text().as_deref() == Some("reasoning"),
                name if is_named(name, "thought") => found.is_thought |= is_true,
                name if is_named(name, "is_long_running") => found.is_long_running |= is_true,
                name if is_named(name, "type") && found.kind.is_none() => {
                    let kind = text().filter(|kind| KINDS.contains(&kind.as_str()));
                    if kind.is_some() {
                        found.prefix = name.trim_end_matches("type").to_owned();
                        found.kind = kind;
                    }
                }
                _ => {}
            }
        }
        found.is_thought |= matches!(found.kind.as_deref(), Some("reasoning" | "thinking" | "thought"));
        found
    }

    fn from_part(part: &Part<'_>) -> Self {
        Self::read(part.metadata.as_deref())
    }
}

/// Kinds that metadata give to a part.
const KINDS: &[&str] = &["function_call", "function_response", "reasoning", "thinking", "thought"];

/// True for a name of metadata with or without the prefix of a framework, such as `adk_`.
fn is_named(name: &str, word: &str) -> bool {
    let prefix = name.strip_suffix(word);
    prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('_'))
}

/// Kind of plain text in an artifact or a message, by its own metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    #[default]
    Plain,
    Reasoning,
}

impl Scope {
    /// The scope that the metadata of an artifact or a message name.
    pub(super) fn read(metadata: Option<&RawValue>) -> Self {
        if metadata.is_some() && Annotations::read(metadata).is_thought { Self::Reasoning } else { Self::Plain }
    }
}

/// Whether a call continues while the task waits, so that its output is sent later.
pub(super) fn is_long_running(part: &Part<'_>) -> bool {
    Annotations::from_part(part).is_long_running
}

/// Prefix of the names in a part's metadata, such as `adk_`. Empty: the names have none, or the metadata name no kind.
pub(super) fn prefix(part: &Part<'_>) -> String {
    Annotations::from_part(part).prefix
}

pub(super) fn kind(part: &Part<'_>) -> PartKind {
    kind_in(part, Scope::Plain)
}

/// Kind of a part in an artifact or a message.
pub(super) fn kind_in(part: &Part<'_>, scope: Scope) -> PartKind {
    let kind = own_kind(part);
    let is_text = matches!(part.content, Content::Text(_));
    if kind == PartKind::Plain && scope == Scope::Reasoning && is_text { PartKind::Reasoning } else { kind }
}

fn own_kind(part: &Part<'_>) -> PartKind {
    let is_data = matches!(part.content, Content::Data(_));
    if part.metadata.is_none() {
        return if is_interface(part) { PartKind::Typed(MessageType::A2uiResponse) } else { PartKind::Plain };
    }

    let found = Annotations::from_part(part);
    let origin = found.agent_api.and_then(|origin| origin.r#type).map(|word| MessageType::from(word.as_str()));
    match found.kind.as_deref() {
        Some("function_call") if is_data => {
            let known = origin.filter(MessageType::is_call);
            return PartKind::Call(known.unwrap_or(MessageType::PluginCall));
        }
        Some("function_response") if is_data => {
            let known = origin.filter(MessageType::is_output);
            return PartKind::Output(known.unwrap_or(MessageType::PluginCallOutput));
        }
        _ => {}
    }
    if found.is_thought {
        return PartKind::Reasoning;
    }
    if found.is_refusal && matches!(part.content, Content::Text(_)) {
        return PartKind::Refusal;
    }
    if is_interface(part) {
        return PartKind::Typed(MessageType::A2uiResponse);
    }
    match origin {
        // Only types that ask for nothing and answer nothing: an agent's metadata decides no approval.
        Some(kind @ (MessageType::Other(_) | MessageType::McpListTools)) if is_data => PartKind::Typed(kind),
        _ => PartKind::Plain,
    }
}

fn is_interface(part: &Part<'_>) -> bool {
    part.media_type.as_deref() == Some(A2UI) && matches!(part.content, Content::Data(_) | Content::Text(_))
}

/// A part as a content's value. Texts and data are borrowed.
pub(super) fn value<'p>(part: &'p Part<'_>, kind: &PartKind) -> ContentValue<'p> {
    match (&part.content, kind) {
        (Content::Text(text), PartKind::Refusal) => ContentValue::Refusal(Cow::Borrowed(text)),
        (Content::Text(text), _) => ContentValue::Text(Cow::Borrowed(text)),
        (Content::Data(data), PartKind::Call(_)) => call(part, data).map_or_else(|| plain(data), ContentValue::Call),
        (Content::Data(data), PartKind::Output(_)) => ContentValue::OwnedData(output(data)),
        (Content::Data(data), _) => plain(data),
        (Content::Bytes(_) | Content::Url(_), _) => media(part),
    }
}

fn plain<'p>(data: &'p Raw<'_>) -> ContentValue<'p> {
    ContentValue::Data(Some(data))
}

fn media<'p>(part: &Part<'_>) -> ContentValue<'p> {
    let own = |text: Option<String>| text.map(Cow::Owned);
    match parts::to_content(part).body {
        Body::Image(url) => ContentValue::Image(own(url)),
        Body::Video(url) => ContentValue::Video(own(url)),
        Body::Audio { data, format } => ContentValue::Audio { data: own(data), format: own(format) },
        Body::File(file) => ContentValue::File(file),
        Body::Text(text) => ContentValue::Text(Cow::Owned(text)),
        other => ContentValue::Other(Cow::Owned(other.kind().as_str().to_owned())),
    }
}

/// A call: `{"id","name","args"}`. None for data of another form.
pub(super) fn call<'p>(part: &'p Part<'_>, data: &'p RawValue) -> Option<CallPart<'p>> {
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(borrow)]
        id: Option<Cow<'a, str>>,
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        args: Option<&'a RawValue>,
    }
    let Call { id, name, args } = serde_json::from_str(data.get()).ok()?;
    let arguments = args.map_or(Cow::Borrowed("{}"), arguments);
    let server_label = Annotations::from_part(part).agent_api.and_then(|origin| origin.server_label).map(Cow::Owned);
    Some(CallPart { call_id: id.unwrap_or_default(), name, arguments, server_label })
}

/// Arguments as text. Those that are no object came in one: `{"arguments":"…"}`.
fn arguments(args: &RawValue) -> Cow<'_, str> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct WrappedData {
        arguments: String,
    }
    match serde_json::from_str::<WrappedData>(args.get()) {
        Ok(wrapped) => Cow::Owned(wrapped.arguments),
        Err(_) => Cow::Borrowed(args.get()),
    }
}

/// The output of a tool, `{"id","name","response"}`, as the body of an output.
fn output(data: &RawValue) -> Json {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Response {
        id: Option<String>,
        name: Option<String>,
        response: Option<Json>,
    }
    #[derive(Deserialize)]
    struct Output {
        output: String,
    }
    let fields: Response = serde_json::from_str(data.get()).unwrap_or_default();
    let response = fields.response.unwrap_or_else(|| Json::from_raw(data));
    // Verbatim where it is a text, and its JSON where it is anything else.
    let text = response.decode::<Output>().map(|inner| inner.output);
    let text = text.or_else(|| response.decode::<String>()).unwrap_or_else(|| response.text().to_owned());
    let output = interlingua_core::model::ToolOutput {
        call_id: fields.id.unwrap_or_default(),
        name: fields.name.filter(|name| !name.is_empty()),
        output: text,
    };
    Json::from_serialize(&output)
}
