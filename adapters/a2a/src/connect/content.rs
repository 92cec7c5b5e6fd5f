//! Parts as canonical contents, and what the metadata of a part says about them.

use std::borrow::Cow;

use interlingua_core::Json;
use interlingua_core::agent_event::{CallPart, ContentValue};
use interlingua_core::model::{Body, MessageType};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::wire::{Content, Part, Raw};
use crate::{A2UI, parts};

/// What a part is, by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// Nothing in particular.
    Plain,
    /// The agent declines, in words.
    Refusal,
    Reasoning,
    /// A tool call of this type.
    Call(MessageType),
    /// What a tool returned, of this type.
    Output(MessageType),
    /// The content of a message of this type.
    Typed(MessageType),
}

/// Metadata of a part that frameworks have in common, and the gateway's own.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    thought: Option<bool>,
    adk_thought: Option<bool>,
    refusal: Option<bool>,
    r#type: Option<String>,
    adk_type: Option<String>,
    is_long_running: Option<bool>,
    adk_is_long_running: Option<bool>,
    agent_api: Option<Origin>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Origin {
    r#type: Option<String>,
    server_label: Option<String>,
}

/// Metadata that do not have these types are somebody else's.
fn annotations(part: &Part<'_>) -> Annotations {
    let metadata = part.metadata.as_ref();
    metadata.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// True for a call that goes on when the task waits: its output is to be sent.
pub(super) fn is_long_running(part: &Part<'_>) -> bool {
    let found = annotations(part);
    found.is_long_running == Some(true) || found.adk_is_long_running == Some(true)
}

/// What a part is.
pub(super) fn kind(part: &Part<'_>) -> PartKind {
    let is_data = matches!(part.content, Content::Data(_));
    if part.metadata.is_none() {
        return if is_interface(part) { PartKind::Typed(MessageType::A2uiResponse) } else { PartKind::Plain };
    }

    let found = annotations(part);
    let origin = found.agent_api.and_then(|origin| origin.r#type).map(|word| MessageType::from(word.as_str()));
    match found.r#type.or(found.adk_type).as_deref() {
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
    if found.thought == Some(true) || found.adk_thought == Some(true) {
        return PartKind::Reasoning;
    }
    if found.refusal == Some(true) && matches!(part.content, Content::Text(_)) {
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
    let server_label = annotations(part).agent_api.and_then(|origin| origin.server_label).map(Cow::Owned);
    Some(CallPart { call_id: id.unwrap_or_default(), name, arguments, server_label })
}

/// Arguments as text. Those that are no object came in one: `{"arguments":"…"}`.
fn arguments(args: &RawValue) -> Cow<'_, str> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wrapped {
        arguments: String,
    }
    match serde_json::from_str::<Wrapped>(args.get()) {
        Ok(wrapped) => Cow::Owned(wrapped.arguments),
        Err(_) => Cow::Borrowed(args.get()),
    }
}

/// What a tool returned, `{"id","name","response"}`, as the body of an output.
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
