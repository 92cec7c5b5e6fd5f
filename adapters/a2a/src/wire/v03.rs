//! Encodes A2A 0.3 in its two dialects: the JSON-RPC binding with `kind` members, and the REST binding in ProtoJSON of
//! the 0.3 protobuf (docs/protocols/a2a.md#data-model).

use std::borrow::Cow;

use interlingua_core::{Extra, Json};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::v1::{non_empty_list, optional};
use super::{
    Artifact, ArtifactUpdate, Content, Item, Message, Part, Raw, Role, Status, StatusUpdate, Task, TaskState, to_raw,
};
use crate::dialect::WireFormat;
use crate::time::Timestamp;

/// Serializes a value in one of the two dialects.
pub(crate) struct V03<'a, T>(pub(crate) &'a T, pub(crate) WireFormat);

impl<T> V03<'_, T> {
    const fn is_rest(&self) -> bool {
        matches!(self.1, WireFormat::V03Rest)
    }
}

/// Serializes a list, each value in the dialect.
struct V03List<'a, T>(&'a [T], WireFormat);

impl<'a, T> Serialize for V03List<'a, T>
where
    V03<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|value| V03(value, self.1)))
    }
}

impl Serialize for V03<'_, TaskState> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name(self.1))
    }
}

impl Serialize for V03<'_, Role> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0, self.is_rest()) {
            (role, true) => role.serialize(serializer),
            (Role::User, false) => serializer.serialize_str("user"),
            (Role::Agent, false) => serializer.serialize_str("agent"),
        }
    }
}

/// A file of 0.3, by bytes or link.
struct File<'a> {
    bytes: Option<&'a str>,
    url: Option<&'a str>,
    part: &'a Part<'a>,
    is_rest: bool,
}

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (bytes, url) = if self.is_rest { ("fileWithBytes", "fileWithUri") } else { ("bytes", "uri") };

        optional(&mut map, bytes, self.bytes.as_ref())?;
        optional(&mut map, url, self.url.as_ref())?;
        optional(&mut map, "mimeType", self.part.media_type.as_ref())?;
        optional(&mut map, "name", self.part.filename.as_ref())?;
        map.end()
    }
}

/// Data of 0.3 must be an object; other values are wrapped in one and marked in metadata.
struct WrappedData<'a>(&'a RawValue);

impl Serialize for WrappedData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.get().starts_with('{') {
            return self.0.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("value", self.0)?;
        map.end()
    }
}

impl Serialize for V03<'_, Part<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part, format) = *self;
        let is_rest = format == WireFormat::V03Rest;
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            Content::Text(text) => {
                if !is_rest {
                    map.serialize_entry("kind", "text")?;
                }
                map.serialize_entry("text", text)?;
            }
            Content::Bytes(bytes) => {
                if !is_rest {
                    map.serialize_entry("kind", "file")?;
                }
                map.serialize_entry("file", &File { bytes: Some(bytes), url: None, part, is_rest })?;
            }
            Content::Url(url) => {
                if !is_rest {
                    map.serialize_entry("kind", "file")?;
                }
                map.serialize_entry("file", &File { bytes: None, url: Some(url), part, is_rest })?;
            }
            Content::Data(data) => {
                if is_rest {
                    #[derive(Serialize)]
                    struct Data<'a> {
                        data: WrappedData<'a>,
                    }
                    map.serialize_entry("data", &Data { data: WrappedData(data) })?;
                } else {
                    map.serialize_entry("kind", "data")?;
                    map.serialize_entry("data", &WrappedData(data))?;
                }
            }
        }

        optional(&mut map, "metadata", part_metadata(part).as_ref())?;
        map.end()
    }
}

/// Part metadata, plus the fields that only 1.0 has (docs/protocols/a2a.md#data-model).
fn part_metadata<'a>(part: &'a Part<'a>) -> Option<Raw<'a>> {
    let is_file = matches!(part.content, Content::Bytes(_) | Content::Url(_));
    let is_wrapped = matches!(&part.content, Content::Data(data) if !data.get().starts_with('{'));

    let media_type = part.media_type.as_ref().filter(|_| !is_file);
    let filename = part.filename.as_ref().filter(|_| !is_file);
    if media_type.is_none() && filename.is_none() && !is_wrapped {
        return part.metadata.as_ref().map(|metadata| Cow::Borrowed(metadata.as_ref()));
    }

    let mut fields: Extra = part.metadata.as_ref().and_then(|raw| Json::from_raw(raw).decode()).unwrap_or_default();
    if let Some(media_type) = media_type {
        fields.set("mediaType", Json::from_serialize(media_type));
        // A2UI renderers of 0.3 look for this name (docs/protocols/a2a.md#extensions).
        if media_type == crate::A2UI {
            fields.set("mimeType", Json::from_serialize(media_type));
        }
    }

    if let Some(filename) = filename {
        fields.set("filename", Json::from_serialize(filename));
    }
    if is_wrapped {
        fields.set("data_part_compat", Json::from_serialize(&true));
    }

    Some(to_raw(&fields))
}

impl Serialize for V03<'_, Message<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(message, format) = *self;
        let is_rest = self.is_rest();
        let mut map = serializer.serialize_map(None)?;
        if !is_rest {
            map.serialize_entry("kind", "message")?;
        }
        map.serialize_entry("messageId", &message.id)?;
        optional(&mut map, "contextId", message.context.as_ref())?;
        optional(&mut map, "taskId", message.task.as_ref())?;
        map.serialize_entry("role", &V03(&message.role, format))?;
        map.serialize_entry(if is_rest { "content" } else { "parts" }, &V03List(&message.parts, format))?;
        optional(&mut map, "metadata", message.metadata.as_ref())?;
        non_empty_list(&mut map, "extensions", &message.extensions)?;
        if !is_rest {
            non_empty_list(&mut map, "referenceTaskIds", &message.references)?;
        }
        map.end()
    }
}

impl Serialize for V03<'_, Status<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, format) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", &V03(&status.state, format))?;
        optional(&mut map, "message", status.message.as_ref().map(|message| V03(message, format)).as_ref())?;
        map.serialize_entry("timestamp", &Timestamp(status.at))?;
        map.end()
    }
}

impl Serialize for V03<'_, Artifact<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(artifact, format) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &artifact.id)?;
        optional(&mut map, "name", artifact.name.as_ref())?;
        // `parts` in both dialects, unlike in a message.
        map.serialize_entry("parts", &V03List(&artifact.parts, format))?;
        optional(&mut map, "metadata", artifact.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for V03<'_, Task<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, format) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "task")?;
        }
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("contextId", &task.context)?;
        map.serialize_entry("status", &V03(&task.status, format))?;
        optional(
            &mut map,
            "artifacts",
            task.artifacts.as_deref().map(|artifacts| V03List(artifacts, format)).as_ref(),
        )?;
        optional(&mut map, "history", task.history.as_deref().map(|history| V03List(history, format)).as_ref())?;
        optional(&mut map, "metadata", task.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for V03<'_, StatusUpdate<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(update, format) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "status-update")?;
        }
        map.serialize_entry("taskId", &update.task)?;
        map.serialize_entry("contextId", &update.context)?;
        map.serialize_entry("status", &V03(&update.status, format))?;
        optional(&mut map, "metadata", update.metadata.as_ref())?;
        map.serialize_entry("final", &update.closes)?;
        map.end()
    }
}

impl Serialize for V03<'_, ArtifactUpdate<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(update, format) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "artifact-update")?;
        }
        map.serialize_entry("taskId", &update.task)?;
        map.serialize_entry("contextId", &update.context)?;
        map.serialize_entry("artifact", &V03(&update.artifact, format))?;
        map.serialize_entry("append", &update.append)?;
        map.serialize_entry("lastChunk", &update.last_chunk)?;
        map.end()
    }
}

impl Serialize for V03<'_, Item<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(item, format) = *self;
        if !self.is_rest() {
            // The bare object: `kind` identifies it.
            return match item {
                Item::Task(task) => V03(task, format).serialize(serializer),
                Item::Message(message) => V03(message, format).serialize(serializer),
                Item::Status(update) => V03(update, format).serialize(serializer),
                Item::Artifact(update) => V03(update, format).serialize(serializer),
            };
        }

        let mut map = serializer.serialize_map(Some(1))?;
        match item {
            Item::Task(task) => map.serialize_entry("task", &V03(task, format))?,
            Item::Message(message) => map.serialize_entry("message", &V03(message, format))?,
            Item::Status(update) => map.serialize_entry("statusUpdate", &V03(update, format))?,
            Item::Artifact(update) => map.serialize_entry("artifactUpdate", &V03(update, format))?,
        }
        map.end()
    }
}
