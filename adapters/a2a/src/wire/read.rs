//! Parses requests of any dialect, as leniently as ProtoJSON and partly migrated clients need
//! (docs/protocols/a2a.md#reading-requests): names in camel or snake case, enums by name or number, numbers as strings,
//! base64 in any form, parts of either version. One response names up to 100 invalid fields,
//! and of each part the first one.

use std::borrow::Cow;

use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json};

use super::{Content, Message, Part, Raw, Role, TaskState, base64};
use crate::dialect::WireFormat;

/// Maximum number of invalid fields in a response. Without it a request of empty parts would get a response larger than
/// itself.
const MAX_NAMED_FIELDS: usize = 100;
/// Maximum nesting that ProtoJSON parsers accept.
const MAX_DEPTH: usize = 100;

/// Invalid fields in the order they were found, limited to [`MAX_NAMED_FIELDS`].
#[derive(Debug, Default)]
pub(crate) struct Faults {
    faults: Vec<Fault>,
    omitted: usize,
}

impl Faults {
    /// Records the error of a result and returns its value.
    pub(crate) fn record<T>(&mut self, result: Result<T, Fault>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(fault) => {
                self.add(fault);
                None
            }
        }
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        if self.faults.len() < MAX_NAMED_FIELDS {
            self.faults.push(fault);
        } else {
            self.omitted += 1;
        }
    }

    /// Returns one fault that names all recorded fields.
    pub(crate) fn check(self) -> Result<(), Fault> {
        let mut faults = self.faults.into_iter();
        let Some(mut first) = faults.next() else { return Ok(()) };

        first.omitted_violations = self.omitted;
        first.violations.extend(faults.map(|fault| (fault.field.unwrap_or_default(), fault.message)));
        Err(first)
    }
}

/// A field by its JSON name or its snake-case name.
pub(crate) fn field<'a>(object: &Object<'a>, name: &str) -> Option<Node<'a>> {
    object.get(name).or_else(|| {
        let snake = to_snake_case(name);
        if snake == name { None } else { object.get(&snake) }
    })
}

/// Converts a camel-case name to snake case.
pub(crate) fn to_snake_case(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, character| {
        if character.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(character.to_ascii_lowercase());
        snake
    })
}

/// An optional string.
pub(crate) fn string(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    field(object, name).map(|node| node.string().map(Cow::into_owned)).transpose()
}

/// An optional string; empty counts as absent, as in ProtoJSON.
pub(crate) fn non_empty(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(string(object, name)?.filter(|text| !text.is_empty()))
}

/// A required non-empty string.
pub(crate) fn required(object: &Object<'_>, name: &str) -> Result<String, Fault> {
    match string(object, name)? {
        Some(text) if !text.is_empty() => Ok(text),
        Some(_) => Err(Fault::invalid(object.path_of(name), "must not be empty")),
        None => Err(missing(object, name)),
    }
}

pub(crate) fn missing(object: &Object<'_>, name: &str) -> Fault {
    Fault::new(FaultKind::Missing, "is required").with_field(object.path_of(name))
}

/// An optional integer, also as a string.
pub(crate) fn integer(object: &Object<'_>, name: &str) -> Result<Option<i64>, Fault> {
    field(object, name)
        .map(|node| match node.kind() {
            Kind::String => node.string()?.trim().parse().map_err(|_| node.wrong_type("an integer")),
            _ => node.integer(),
        })
        .transpose()
}

/// An optional boolean.
pub(crate) fn boolean(object: &Object<'_>, name: &str) -> Result<Option<bool>, Fault> {
    field(object, name).map(|node| node.boolean()).transpose()
}

/// An optional object as raw JSON.
pub(crate) fn json_object(object: &Object<'_>, name: &str) -> Result<Option<Json>, Fault> {
    let Some(node) = field(object, name) else { return Ok(None) };
    check_depth(&node)?;
    node.json_object().map(Some)
}

/// Checks the nesting of a value that will be passed through.
fn check_depth(node: &Node<'_>) -> Result<(), Fault> {
    if node.is_deeper_than(MAX_DEPTH) {
        return Err(node.invalid(format!("is nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(())
}

/// A list of strings; empty if absent.
pub(crate) fn strings(object: &Object<'_>, name: &str) -> Result<Vec<String>, Fault> {
    let Some(node) = field(object, name) else { return Ok(Vec::new()) };
    node.array()?.map(|node| node.string().map(Cow::into_owned)).collect()
}

/// A task state by name, in any dialect, or by number. `None` if unspecified.
pub(crate) fn state(node: &Node<'_>) -> Result<Option<TaskState>, Fault> {
    let word = match node.kind() {
        Kind::Number => node.integer()?.to_string(),
        _ => node.string()?.into_owned(),
    };
    if matches!(word.as_str(), "0" | "TASK_STATE_UNSPECIFIED" | "") {
        return Ok(None);
    }
    TaskState::parse(&word).map(Some).ok_or_else(|| node.invalid(format!("unknown state '{word}'")))
}

/// Parses a message of a request. `form` matters only for `data`, which looks alike in the dialects but differs.
pub(crate) fn message(node: &Node<'_>, form: WireFormat, faults: &mut Faults) -> Option<Message<'static>> {
    let object = faults.record(node.object())?;
    let id = faults.record(required(&object, "messageId"));
    let role = faults.record(role(&object));
    let parts = parts(&object, form, faults);
    let context = faults.record(non_empty(&object, "contextId"));
    let task = faults.record(non_empty(&object, "taskId"));
    let metadata = faults.record(json_object(&object, "metadata"));
    let extensions = faults.record(strings(&object, "extensions"));
    let references = faults.record(strings(&object, "referenceTaskIds"));

    Some(Message {
        id: Cow::Owned(id?),
        context: context?.map(Cow::Owned),
        task: task?.map(Cow::Owned),
        role: role?,
        parts: parts?,
        metadata: metadata?.map(into_raw),
        extensions: extensions?.into_iter().map(Cow::Owned).collect(),
        references: references?.into_iter().map(Cow::Owned).collect(),
    })
}

fn into_raw(json: Json) -> Raw<'static> {
    Cow::Owned(json.raw().to_owned())
}

fn role(object: &Object<'_>) -> Result<Role, Fault> {
    let node = object.get("role").ok_or_else(|| missing(object, "role"))?;
    let word = match node.kind() {
        Kind::Number => node.integer()?.to_string(),
        _ => node.string()?.into_owned(),
    };
    match word.as_str() {
        "ROLE_USER" | "user" | "1" => Ok(Role::User),
        "ROLE_AGENT" | "agent" | "2" => Ok(Role::Agent),
        _ => Err(node.invalid(format!("unknown role '{word}'"))),
    }
}

fn parts(object: &Object<'_>, form: WireFormat, faults: &mut Faults) -> Option<Vec<Part<'static>>> {
    let Some(node) = object.get_any(&["parts", "content"]) else {
        faults.add(missing(object, "parts"));
        return None;
    };

    let mut nodes = faults.record(node.array())?.peekable();
    if nodes.peek().is_none() {
        faults.add(node.invalid("must have at least one element"));
        return None;
    }

    let mut parts = Some(Vec::new());
    for node in nodes {
        // The first error of each part is collected; the valid parts are not needed then.
        match (faults.record(part(&node, form)), &mut parts) {
            (Some(part), Some(parts)) => parts.push(part),
            (Some(_), None) => {}
            (None, _) => parts = None,
        }
    }
    parts
}

/// Parses a part of either version.
fn part(node: &Node<'_>, form: WireFormat) -> Result<Part<'static>, Fault> {
    const CHOICES: [&str; 5] = ["text", "raw", "url", "data", "file"];
    let object = node.object()?;
    let present: Vec<&str> = CHOICES.into_iter().filter(|name| object.get(name).is_some()).collect();

    // Versions before 0.3 called it `type`. In 1.0 `type` is an unknown field.
    let kind = match object.string("kind")? {
        None if form == WireFormat::V03 => object.string("type")?,
        kind => kind,
    };
    let choice = match kind.as_deref() {
        None => present.first().copied(),
        Some(kind @ ("text" | "file" | "data")) => present.iter().copied().find(|name| *name == kind),
        Some(kind) => return Err(node.invalid(format!("unknown part kind '{kind}'"))),
    };

    // `"data": null` is a data part: null is the one value that ProtoJSON cannot omit there.
    let is_null_data = matches!(kind.as_deref(), None | Some("data")) && object.has("data");
    let Some(choice) = choice.or(is_null_data.then_some("data")) else {
        return Err(node.invalid("must have one of 'text', 'raw', 'url' and 'data'"));
    };
    // In 0.3 `kind` selects the member, so others are ignored.
    if (form == WireFormat::V1 || kind.is_none())
        && let Some(other) = present.iter().find(|name| **name != choice)
    {
        return Err(node.invalid(format!("has both '{choice}' and '{other}'")));
    }

    let mut metadata = json_object(&object, "metadata")?;
    let mut filename = non_empty(&object, "filename")?;
    let mut media_type = non_empty(&object, "mediaType")?;
    let content = match choice {
        "text" => Content::Text(Cow::Owned(string(&object, "text")?.unwrap_or_default())),
        "raw" => Content::Bytes(bytes(&object, "raw")?),
        "url" => Content::Url(Cow::Owned(required(&object, "url")?)),
        "file" => {
            let file = object.required("file")?.object()?;
            let first = |names: &[&str]| names.iter().find_map(|name| non_empty(&file, name).transpose()).transpose();
            filename = filename.or(first(&["name", "filename"])?);
            media_type = media_type.or(first(&["mimeType", "mediaType"])?);
            let by_bytes = ["bytes", "fileWithBytes"].into_iter().find(|name| field(&file, name).is_some());
            match (by_bytes, first(&["uri", "fileWithUri"])?) {
                (Some(_), Some(_)) => return Err(node.invalid("has both bytes and a link")),
                (Some(name), None) => Content::Bytes(bytes(&file, name)?),
                (None, Some(url)) => Content::Url(Cow::Owned(url)),
                (None, None) => return Err(node.invalid("has neither bytes nor a link")),
            }
        }
        _ => {
            let data = object.get("data");
            let wrapped = match &data {
                Some(data) if form == WireFormat::V03Rest && data.kind() == Kind::Object && kind.is_none() => {
                    // `{"data":{"data":{…}}}`: the 0.3 protobuf has a message in between.
                    let inner = data.object()?;
                    let only = inner.iter().count() == 1;
                    inner.get("data").filter(|_| only)
                }
                _ => None,
            };
            let data = wrapped.or(data);
            data.as_ref().map_or(Ok(()), check_depth)?;
            let data = data.map_or_else(Json::null, |node| node.to_json());
            Content::Data(into_raw(data))
        }
    };

    let is_file = matches!(content, Content::Bytes(_) | Content::Url(_));
    let mut content = content;
    if form != WireFormat::V1
        && !is_file
        && let Some(packed) = metadata.take()
    {
        metadata = restore_v1_fields(packed, &mut content, &mut filename, &mut media_type);
    }

    Ok(Part {
        content,
        filename: filename.map(Cow::Owned),
        media_type: media_type.map(Cow::Owned),
        metadata: metadata.map(into_raw),
    })
}

fn bytes(object: &Object<'_>, name: &str) -> Result<Cow<'static, str>, Fault> {
    let text = string(object, name)?.unwrap_or_default();
    match base64::to_standard(&text) {
        Some(Cow::Owned(standard)) => Ok(Cow::Owned(standard)),
        Some(Cow::Borrowed(_)) => Ok(Cow::Owned(text)),
        None => Err(Fault::invalid(object.path_of(name), "is not base64")),
    }
}

/// Moves 1.0 fields from a 0.3 part's metadata back to their fields: the inverse of `v03`.
fn restore_v1_fields(
    metadata: Json,
    content: &mut Content<'static>,
    filename: &mut Option<String>,
    media_type: &mut Option<String>,
) -> Option<Json> {
    let Some(mut fields) = metadata.decode::<Extra>() else { return Some(metadata) };
    let mut changed = false;
    if let Content::Data(data) = content
        && fields.get("data_part_compat").is_some_and(|mark| mark.text() == "true")
        && let Some(value) = Json::from_raw(data).decode::<Extra>().and_then(|mut inner| inner.remove("value"))
    {
        *data = into_raw(value);
        fields.remove("data_part_compat");
        changed = true;
    }

    for (name, target) in [("filename", filename), ("mediaType", media_type)] {
        if target.is_none()
            && let Some(text) = fields.get(name).and_then(Json::decode::<String>)
        {
            // `v03` writes this media type under both names.
            if name == "mediaType"
                && text == crate::A2UI
                && fields.get("mimeType") == Some(&Json::from_serialize(crate::A2UI))
            {
                fields.remove("mimeType");
            }
            *target = Some(text);
            fields.remove(name);
            changed = true;
        }
    }

    if !changed {
        return Some(metadata);
    }
    (!fields.is_empty()).then(|| Json::from_serialize(&fields))
}
