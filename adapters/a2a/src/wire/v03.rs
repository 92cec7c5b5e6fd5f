//! A2A 0.3 in its two dialects: the JSON-RPC binding with its `kind`, and the REST binding, which speaks the ProtoJSON
//! of the older protobuf (section 5).

use std::borrow::Cow;

use interlingua_core::{Extra, Json};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::v1::{filled, some};
use super::{
    Artifact, ArtifactUpdate, Content, Item, Message, Part, Raw, Role, State, Status, StatusUpdate, Task, made,
};
use crate::dialect::Form;
use crate::time::Timestamp;

/// A value as one of the two dialects writes it.
pub(crate) struct Old<'a, T>(pub(crate) &'a T, pub(crate) Form);

impl<T> Old<'_, T> {
    const fn is_rest(&self) -> bool {
        matches!(self.1, Form::V03Rest)
    }
}

/// A list, each in the dialect.
struct Olds<'a, T>(&'a [T], Form);

impl<'a, T> Serialize for Olds<'a, T>
where
    Old<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|value| Old(value, self.1)))
    }
}

impl Serialize for Old<'_, State> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.word(self.1))
    }
}

impl Serialize for Old<'_, Role> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match (self.0, self.is_rest()) {
            (role, true) => role.serialize(serializer),
            (Role::User, false) => serializer.serialize_str("user"),
            (Role::Agent, false) => serializer.serialize_str("agent"),
        }
    }
}

/// A file of 0.3, by bytes or by link.
struct File<'a> {
    bytes: Option<&'a str>,
    url: Option<&'a str>,
    part: &'a Part<'a>,
    rest: bool,
}

impl Serialize for File<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let (bytes, url) = if self.rest { ("fileWithBytes", "fileWithUri") } else { ("bytes", "uri") };
        some(&mut map, bytes, self.bytes.as_ref())?;
        some(&mut map, url, self.url.as_ref())?;
        some(&mut map, "mimeType", self.part.media_type.as_ref())?;
        some(&mut map, "name", self.part.filename.as_ref())?;
        map.end()
    }
}

/// Data of 0.3 is an object; anything else is put into one, and marked.
struct Wrapped<'a>(&'a RawValue);

impl Serialize for Wrapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.get().starts_with('{') {
            return self.0.serialize(serializer);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("value", self.0)?;
        map.end()
    }
}

impl Serialize for Old<'_, Part<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(part, form) = *self;
        let rest = form == Form::V03Rest;
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            Content::Text(text) => {
                if !rest {
                    map.serialize_entry("kind", "text")?;
                }
                map.serialize_entry("text", text)?;
            }
            Content::Bytes(bytes) => {
                if !rest {
                    map.serialize_entry("kind", "file")?;
                }
                map.serialize_entry("file", &File { bytes: Some(bytes), url: None, part, rest })?;
            }
            Content::Url(url) => {
                if !rest {
                    map.serialize_entry("kind", "file")?;
                }
                map.serialize_entry("file", &File { bytes: None, url: Some(url), part, rest })?;
            }
            Content::Data(data) => {
                if rest {
                    #[derive(Serialize)]
                    struct Data<'a> {
                        data: Wrapped<'a>,
                    }
                    map.serialize_entry("data", &Data { data: Wrapped(data) })?;
                } else {
                    map.serialize_entry("kind", "data")?;
                    map.serialize_entry("data", &Wrapped(data))?;
                }
            }
        }
        some(&mut map, "metadata", part_metadata(part).as_ref())?;
        map.end()
    }
}

/// Part metadata, with what only 1.0 has a field for (section 5).
fn part_metadata<'a>(part: &'a Part<'a>) -> Option<Raw<'a>> {
    let is_file = matches!(part.content, Content::Bytes(_) | Content::Url(_));
    let wraps = matches!(&part.content, Content::Data(data) if !data.get().starts_with('{'));
    let media_type = part.media_type.as_ref().filter(|_| !is_file);
    let filename = part.filename.as_ref().filter(|_| !is_file);
    if media_type.is_none() && filename.is_none() && !wraps {
        return part.metadata.as_ref().map(|metadata| Cow::Borrowed(metadata.as_ref()));
    }
    let mut fields: Extra = part.metadata.as_ref().and_then(|raw| Json::from_raw(raw).decode()).unwrap_or_default();
    if let Some(media_type) = media_type {
        fields.set("mediaType", Json::from_serialize(media_type));
        // A2UI renderers of that time look for this name (section 13).
        if media_type == crate::A2UI {
            fields.set("mimeType", Json::from_serialize(media_type));
        }
    }
    if let Some(filename) = filename {
        fields.set("filename", Json::from_serialize(filename));
    }
    if wraps {
        fields.set("data_part_compat", Json::from_serialize(&true));
    }
    Some(made(&fields))
}

impl Serialize for Old<'_, Message<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(message, form) = *self;
        let rest = self.is_rest();
        let mut map = serializer.serialize_map(None)?;
        if !rest {
            map.serialize_entry("kind", "message")?;
        }
        map.serialize_entry("messageId", &message.id)?;
        some(&mut map, "contextId", message.context.as_ref())?;
        some(&mut map, "taskId", message.task.as_ref())?;
        map.serialize_entry("role", &Old(&message.role, form))?;
        map.serialize_entry(if rest { "content" } else { "parts" }, &Olds(&message.parts, form))?;
        some(&mut map, "metadata", message.metadata.as_ref())?;
        filled(&mut map, "extensions", &message.extensions)?;
        if !rest {
            filled(&mut map, "referenceTaskIds", &message.references)?;
        }
        map.end()
    }
}

impl Serialize for Old<'_, Status<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", &Old(&status.state, form))?;
        some(&mut map, "message", status.message.as_ref().map(|message| Old(message, form)).as_ref())?;
        map.serialize_entry("timestamp", &Timestamp(status.at))?;
        map.end()
    }
}

impl Serialize for Old<'_, Artifact<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(artifact, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &artifact.id)?;
        some(&mut map, "name", artifact.name.as_ref())?;
        // `parts` in both dialects, unlike a message's.
        map.serialize_entry("parts", &Olds(&artifact.parts, form))?;
        some(&mut map, "metadata", artifact.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for Old<'_, Task<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "task")?;
        }
        map.serialize_entry("id", &task.id)?;
        map.serialize_entry("contextId", &task.context)?;
        map.serialize_entry("status", &Old(&task.status, form))?;
        some(&mut map, "artifacts", task.artifacts.as_deref().map(|artifacts| Olds(artifacts, form)).as_ref())?;
        some(&mut map, "history", task.history.as_deref().map(|history| Olds(history, form)).as_ref())?;
        some(&mut map, "metadata", task.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for Old<'_, StatusUpdate<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(update, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "status-update")?;
        }
        map.serialize_entry("taskId", &update.task)?;
        map.serialize_entry("contextId", &update.context)?;
        map.serialize_entry("status", &Old(&update.status, form))?;
        some(&mut map, "metadata", update.metadata.as_ref())?;
        map.serialize_entry("final", &update.closes)?;
        map.end()
    }
}

impl Serialize for Old<'_, ArtifactUpdate<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(update, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        if !self.is_rest() {
            map.serialize_entry("kind", "artifact-update")?;
        }
        map.serialize_entry("taskId", &update.task)?;
        map.serialize_entry("contextId", &update.context)?;
        map.serialize_entry("artifact", &Old(&update.artifact, form))?;
        map.serialize_entry("append", &update.append)?;
        map.serialize_entry("lastChunk", &update.last_chunk)?;
        map.end()
    }
}

impl Serialize for Old<'_, Item<'_>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(item, form) = *self;
        if !self.is_rest() {
            // The bare object: its `kind` says what it is.
            return match item {
                Item::Task(task) => Old(task, form).serialize(serializer),
                Item::Message(message) => Old(message, form).serialize(serializer),
                Item::Status(update) => Old(update, form).serialize(serializer),
                Item::Artifact(update) => Old(update, form).serialize(serializer),
            };
        }
        let mut map = serializer.serialize_map(Some(1))?;
        match item {
            Item::Task(task) => map.serialize_entry("task", &Old(task, form))?,
            Item::Message(message) => map.serialize_entry("message", &Old(message, form))?,
            Item::Status(update) => map.serialize_entry("statusUpdate", &Old(update, form))?,
            Item::Artifact(update) => map.serialize_entry("artifactUpdate", &Old(update, form))?,
        }
        map.end()
    }
}
