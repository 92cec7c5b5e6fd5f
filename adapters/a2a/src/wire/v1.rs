//! Encodes A2A 1.0 for both of its bindings: ProtoJSON of `lf.a2a.v1`, without unset or empty fields
//! (docs/protocols/a2a.md#data-model).

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{Artifact, ArtifactUpdate, Content, Item, Message, Part, Role, Status, StatusUpdate, Task, TaskState};
use crate::dialect::WireFormat;
use crate::time::Timestamp;

/// Writes a field if it is set.
pub(super) fn optional<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &str,
    value: Option<&T>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, value))
}

/// Writes a list unless it is empty.
pub(super) fn non_empty_list<M: SerializeMap, T: Serialize>(
    map: &mut M,
    name: &str,
    values: &[T],
) -> Result<(), M::Error> {
    if values.is_empty() { Ok(()) } else { map.serialize_entry(name, values) }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name(WireFormat::V1))
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::User => "ROLE_USER",
            Self::Agent => "ROLE_AGENT",
        })
    }
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Bytes(bytes) => map.serialize_entry("raw", bytes)?,
            Content::Url(url) => map.serialize_entry("url", url)?,
            Content::Data(data) => map.serialize_entry("data", data)?,
        }
        optional(&mut map, "filename", self.filename.as_ref())?;
        optional(&mut map, "mediaType", self.media_type.as_ref())?;
        optional(&mut map, "metadata", self.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for Message<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("messageId", &self.id)?;
        optional(&mut map, "contextId", self.context.as_ref())?;
        optional(&mut map, "taskId", self.task.as_ref())?;
        map.serialize_entry("role", &self.role)?;
        map.serialize_entry("parts", &self.parts)?;
        optional(&mut map, "metadata", self.metadata.as_ref())?;
        non_empty_list(&mut map, "extensions", &self.extensions)?;
        non_empty_list(&mut map, "referenceTaskIds", &self.references)?;
        map.end()
    }
}

impl Serialize for Status<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", &self.state)?;
        optional(&mut map, "message", self.message.as_ref())?;
        map.serialize_entry("timestamp", &Timestamp(self.at))?;
        map.end()
    }
}

impl Serialize for Artifact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &self.id)?;
        optional(&mut map, "name", self.name.as_ref())?;
        map.serialize_entry("parts", &self.parts)?;
        optional(&mut map, "metadata", self.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for Task<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        map.serialize_entry("contextId", &self.context)?;
        map.serialize_entry("status", &self.status)?;
        optional(&mut map, "artifacts", self.artifacts.as_ref())?;
        optional(&mut map, "history", self.history.as_ref())?;
        optional(&mut map, "metadata", self.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for StatusUpdate<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &self.task)?;
        map.serialize_entry("contextId", &self.context)?;
        map.serialize_entry("status", &self.status)?;
        optional(&mut map, "metadata", self.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for ArtifactUpdate<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", &self.task)?;
        map.serialize_entry("contextId", &self.context)?;
        map.serialize_entry("artifact", &self.artifact)?;
        if self.append {
            map.serialize_entry("append", &true)?;
        }
        if self.last_chunk {
            map.serialize_entry("lastChunk", &true)?;
        }
        map.end()
    }
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match self {
            Self::Task(task) => map.serialize_entry("task", task)?,
            Self::Message(message) => map.serialize_entry("message", message)?,
            Self::Status(update) => map.serialize_entry("statusUpdate", update)?,
            Self::Artifact(update) => map.serialize_entry("artifactUpdate", update)?,
        }
        map.end()
    }
}
