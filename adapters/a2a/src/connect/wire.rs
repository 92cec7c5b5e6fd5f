//! The agent's answers as read: borrowed from the frame, in either generation.
//!
//! Servers are read as leniently as clients: both spellings of names, states by name or number, parts of either
//! generation, missing fields. An unreadable item fails as a whole. Not here: the meaning of an item.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use interlingua_core::{Json, json_string};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::dialect::WireFormat;
use crate::wire::{Content, Part, Raw, TaskState, base64};

/// A string, borrowed where it has no escapes.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// A string as it is written: a piece of a text is not copied to read it.
#[derive(Debug)]
struct RawString<'a>(&'a RawValue);

impl<'de: 'a, 'a> Deserialize<'de> for RawString<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let is_string = json_string::quoted(raw.get()).is_some();
        if is_string { Ok(Self(raw)) } else { Err(D::Error::custom("a text is a string")) }
    }
}

/// A frame or a body: a JSON-RPC answer, or its result alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Envelope<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<Item<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// An item of a stream, or the result of a call. In 1.0 one member says what it is; in 0.3, and where a bare task is
/// the answer, the fields stand here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub(super) task: Option<Task<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow, alias = "status_update")]
    pub(super) status_update: Option<StatusUpdate<'a>>,
    #[serde(borrow, alias = "artifact_update")]
    pub(super) artifact_update: Option<ArtifactUpdate<'a>>,

    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow, alias = "task_id")]
    task_id: Option<Text<'a>>,
    #[serde(borrow, alias = "context_id")]
    context_id: Option<Text<'a>>,
    #[serde(borrow, alias = "message_id")]
    message_id: Option<Text<'a>>,
    #[serde(borrow)]
    status: Option<Status<'a>>,
    #[serde(borrow)]
    artifact: Option<Artifact<'a>>,
    #[serde(borrow)]
    artifacts: Option<Vec<Artifact<'a>>>,
    #[serde(borrow)]
    history: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    append: Option<bool>,
    #[serde(alias = "last_chunk")]
    last_chunk: Option<bool>,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow, alias = "content")]
    parts: Option<Vec<RawPart<'a>>>,
    #[serde(borrow)]
    extensions: Option<&'a RawValue>,
}

/// The kind of an item.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the largest is the most frequent, and must not allocate")]
pub(super) enum Kind<'a> {
    Task(Task<'a>),
    Message(Message<'a>),
    Status(StatusUpdate<'a>),
    Artifact(ArtifactUpdate<'a>),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Task<'a> {
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow, alias = "context_id")]
    pub(super) context_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) status: Option<Status<'a>>,
    #[serde(borrow)]
    pub(super) artifacts: Option<Vec<Artifact<'a>>>,
    #[serde(borrow)]
    pub(super) history: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    state: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StatusUpdate<'a> {
    #[serde(borrow, alias = "task_id")]
    pub(super) task_id: Option<Text<'a>>,
    #[serde(borrow, alias = "context_id")]
    pub(super) context_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) status: Option<Status<'a>>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ArtifactUpdate<'a> {
    #[serde(borrow, alias = "task_id")]
    pub(super) task_id: Option<Text<'a>>,
    #[serde(borrow, alias = "context_id")]
    pub(super) context_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) artifact: Option<Artifact<'a>>,
    pub(super) append: Option<bool>,
    #[serde(alias = "last_chunk")]
    pub(super) last_chunk: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Artifact<'a> {
    #[serde(borrow, alias = "artifact_id")]
    pub(super) artifact_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) description: Option<Text<'a>>,
    #[serde(borrow)]
    parts: Option<Parts<'a>>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) extensions: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Message<'a> {
    #[serde(borrow, alias = "message_id")]
    pub(super) message_id: Option<Text<'a>>,
    #[serde(borrow, alias = "task_id")]
    pub(super) task_id: Option<Text<'a>>,
    #[serde(borrow, alias = "context_id")]
    pub(super) context_id: Option<Text<'a>>,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    // The REST binding of 0.3 calls them so.
    #[serde(borrow, alias = "content")]
    parts: Option<Vec<RawPart<'a>>>,
    #[serde(borrow)]
    pub(super) metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) extensions: Option<&'a RawValue>,
}

/// The parts of an artifact. Nearly every piece of a text has one, which needs no allocation.
#[derive(Debug, Default)]
struct Parts<'a> {
    first: Option<RawPart<'a>>,
    rest: Vec<RawPart<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Parts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<'a>(PhantomData<&'a ()>);
        impl<'de: 'a, 'a> Visitor<'de> for List<'a> {
            type Value = Parts<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of parts")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parts<'a>, A::Error> {
                let mut parts = Parts { first: list.next_element()?, rest: Vec::new() };
                while let Some(part) = list.next_element()? {
                    parts.rest.push(part);
                }
                Ok(parts)
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPart<'a> {
    #[serde(borrow)]
    text: Option<RawString<'a>>,
    #[serde(borrow)]
    raw: Option<Text<'a>>,
    #[serde(borrow)]
    url: Option<Text<'a>>,
    #[serde(borrow, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    file: Option<RawFile<'a>>,
    #[serde(borrow)]
    filename: Option<Text<'a>>,
    #[serde(borrow, alias = "media_type")]
    media_type: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawFile<'a> {
    #[serde(borrow, alias = "fileWithBytes", alias = "file_with_bytes")]
    bytes: Option<Text<'a>>,
    #[serde(borrow, alias = "fileWithUri", alias = "file_with_uri")]
    uri: Option<Text<'a>>,
    #[serde(borrow, alias = "filename")]
    name: Option<Text<'a>>,
    #[serde(borrow, alias = "mime_type", alias = "mediaType")]
    mime_type: Option<Text<'a>>,
}

/// A present value, `null` or not: `{"data":null}` is data.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The text of an optional string, if there is anything in it.
pub(super) fn filled<'t>(text: &'t Option<Text<'_>>) -> Option<&'t str> {
    text.as_ref().map(|text| text.0.as_ref()).filter(|text| !text.is_empty())
}

/// Reads a message that is kept as its text.
pub(super) fn message(raw: &RawValue) -> Option<Message<'_>> {
    serde_json::from_str(raw.get()).ok()
}

impl<'a> Item<'a> {
    /// The kind, by the item's member or fields; `kind` adds no information. `None`: the kind is unknown.
    pub(super) fn into_kind(self) -> Option<Kind<'a>> {
        if let Some(task) = self.task {
            return Some(Kind::Task(task));
        }
        if let Some(update) = self.artifact_update {
            return Some(Kind::Artifact(update));
        }
        if let Some(update) = self.status_update {
            return Some(Kind::Status(update));
        }
        if let Some(message) = self.message.and_then(message) {
            return Some(Kind::Message(message));
        }

        let Self { id, task_id, context_id, message_id, status, artifact, artifacts, history, metadata, .. } = self;
        let Self { append, last_chunk, role, parts, extensions, .. } = self;
        if parts.is_some() {
            return Some(Kind::Message(Message { message_id, task_id, context_id, role, parts, metadata, extensions }));
        }
        if artifact.is_some() {
            return Some(Kind::Artifact(ArtifactUpdate { task_id, context_id, artifact, append, last_chunk }));
        }
        match status {
            Some(status) if id.is_some() || task_id.is_none() => {
                let status = Some(status);
                Some(Kind::Task(Task { id, context_id, status, artifacts, history, metadata }))
            }
            Some(status) => Some(Kind::Status(StatusUpdate { task_id, context_id, status: Some(status), metadata })),
            None => None,
        }
    }
}

impl Status<'_> {
    /// None for states that say nothing.
    pub(super) fn state(&self) -> Option<TaskState> {
        TaskState::parse(self.state?.get().trim_matches('"'))
    }
}

impl<'a> Message<'a> {
    pub(super) fn is_from_user(&self) -> bool {
        self.role.is_some_and(|role| matches!(role.get().trim_matches('"'), "ROLE_USER" | "user" | "1"))
    }

    /// Its parts, in a form's way of writing data.
    pub(super) fn take_parts(&mut self, form: WireFormat) -> Vec<Part<'a>> {
        parts(self.parts.take().unwrap_or_default(), form)
    }
}

impl<'a> Artifact<'a> {
    /// The text, if it is all that its parts say. `unescaped` is where one with escapes is written.
    pub(super) fn only_text<'t>(&'t self, unescaped: &'t mut String) -> Option<&'t str> {
        let parts = self.parts.as_ref().filter(|parts| parts.rest.is_empty())?;
        let part = parts.first.as_ref()?;
        let is_plain = part.metadata.is_none() && part.media_type.is_none() && part.filename.is_none();
        part.text.as_ref().filter(|_| is_plain).and_then(|text| json_string::lent(text.0, unescaped))
    }

    /// Its parts, in a form's way of writing data.
    pub(super) fn take_parts(&mut self, form: WireFormat) -> Vec<Part<'a>> {
        let Parts { first, rest } = self.parts.take().unwrap_or_default();
        parts(first.into_iter().chain(rest), form)
    }
}

fn parts<'a>(parts: impl IntoIterator<Item = RawPart<'a>>, form: WireFormat) -> Vec<Part<'a>> {
    parts.into_iter().filter_map(|part| part.into_part(form)).collect()
}

impl<'a> RawPart<'a> {
    /// None for kinds of parts that no version has.
    fn into_part(self, form: WireFormat) -> Option<Part<'a>> {
        let filled = |text: Option<Text<'a>>| text.map(|text| text.0).filter(|text| !text.is_empty());
        let mut part = Part::text("");
        part.filename = filled(self.filename);
        part.media_type = filled(self.media_type);
        part.metadata = self.metadata.filter(|raw| raw.get().starts_with('{')).map(Cow::Borrowed);

        if let Some(text) = self.text {
            part.content = Content::Text(json_string::text(text.0).unwrap_or_default());
        } else if let Some(raw) = self.raw {
            part.content = bytes(raw.0);
        } else if let Some(url) = filled(self.url) {
            part.content = Content::Url(url);
        } else if let Some(file) = self.file {
            part.filename = part.filename.or(filled(file.name));
            part.media_type = part.media_type.or(filled(file.mime_type));
            part.content = match (file.bytes, filled(file.uri)) {
                (Some(text), _) => bytes(text.0),
                (None, Some(url)) => Content::Url(url),
                (None, None) => return None,
            };
        } else {
            let data = self.data?;
            // Only the REST binding of 0.3 has an object in between.
            let data = if form == WireFormat::V03Rest { unwrapped(data) } else { data };
            part.content = Content::Data(Cow::Borrowed(data));
            restore_value(&mut part);
        }
        if form != WireFormat::V1 && matches!(part.content, Content::Text(_) | Content::Data(_)) {
            restore_fields(&mut part);
        }
        if form == WireFormat::V03Rest {
            undouble(&mut part);
        }
        Some(part)
    }
}

/// Bytes in standard base64. Other text is kept as a link, so that nothing is lost.
fn bytes(text: Cow<'_, str>) -> Content<'_> {
    let standard = match base64::to_standard(&text) {
        Some(Cow::Owned(standard)) => Some(standard),
        Some(Cow::Borrowed(_)) => None,
        None => return Content::Url(text),
    };
    Content::Bytes(standard.map_or(text, Cow::Owned))
}

/// a2a-sdk 0.3 encodes bytes twice over REST. They are decoded once where the bytes are base64 of a file of the type
/// that the part names.
fn undouble(part: &mut Part<'_>) {
    let Content::Bytes(text) = &part.content else { return };
    let Some(inner) = base64::decode(text).and_then(|bytes| String::from_utf8(bytes).ok()) else { return };
    let Some(file) = base64::decode(&inner) else { return };
    let begins: &[&[u8]] = match part.media_type.as_deref().unwrap_or_default() {
        "image/png" => &[b"\x89PNG"],
        "image/jpeg" => &[b"\xff\xd8\xff"],
        "image/gif" => &[b"GIF8"],
        "image/webp" | "audio/wav" | "audio/x-wav" => &[b"RIFF"],
        "application/pdf" => &[b"%PDF"],
        "application/zip" => &[b"PK"],
        "audio/mpeg" => &[b"ID3", b"\xff\xfb", b"\xff\xf3"],
        "audio/ogg" | "video/ogg" => &[b"OggS"],
        // Whether a text or an unknown type is meant to be base64, only its reader knows.
        _ => return,
    };
    if begins.iter().any(|begin| file.starts_with(begin)) {
        part.content = Content::Bytes(Cow::Owned(inner));
    }
}

/// Data of 0.3 over REST are wrapped in an object: `{"data":{…}}`.
fn unwrapped(data: &RawValue) -> &RawValue {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
    }
    // Nearly no other data have just this field, and those that do are seen one level deeper.
    let outer = data.get().starts_with('{').then(|| serde_json::from_str::<Outer<'_>>(data.get()).ok()).flatten();
    outer.map_or(data, |outer| outer.data)
}

/// The fields that 0.3 keeps in the metadata of a part (see `v03` for the way there).
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct MetadataFields<'a> {
    #[serde(borrow)]
    filename: Option<Text<'a>>,
    #[serde(borrow)]
    media_type: Option<Text<'a>>,
    #[serde(rename = "data_part_compat")]
    wrapped: Option<bool>,
}

fn kept<'p>(part: &'p Part<'_>, mark: &str) -> Option<MetadataFields<'p>> {
    let metadata = part.metadata.as_ref().filter(|raw| raw.get().contains(mark))?;
    serde_json::from_str(metadata.get()).ok()
}

/// Restores data that 0.3 wrapped because they are no object.
fn restore_value(part: &mut Part<'_>) {
    #[derive(Deserialize)]
    struct Value {
        value: Json,
    }
    let is_wrapped = kept(part, "data_part_compat").is_some_and(|kept| kept.wrapped == Some(true));
    if let Content::Data(data) = &mut part.content
        && is_wrapped
        && let Ok(inner) = serde_json::from_str::<Value>(data.get())
    {
        *data = Raw::Owned(inner.value.raw().to_owned());
    }
}

fn restore_fields(part: &mut Part<'_>) {
    let Some(found) = kept(part, "mediaType").or_else(|| kept(part, "filename")) else { return };
    let own = |text: Option<Text<'_>>| text.map(|text| Cow::Owned(text.0.into_owned()));
    let (filename, media_type) = (own(found.filename), own(found.media_type));
    part.filename = part.filename.take().or(filename);
    part.media_type = part.media_type.take().or(media_type);
}
