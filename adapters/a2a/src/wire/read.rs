//! Reading requests of any dialect, as leniently as ProtoJSON and half-migrated clients need it (sections 5 and 7):
//! both spellings of names, enums by name or number, numbers as strings, base64 in any form, parts of either
//! generation. What is wrong is collected, so that one answer names every field.

use std::borrow::Cow;

use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Extra, Fault, FaultKind, Json};

use super::{Content, Message, Part, Raw, Role, State, base64};
use crate::dialect::Form;

/// Nobody reads a longer list of faults, and a request of empty parts would make an answer larger than itself.
const MAX_NAMED: usize = 100;
/// So many levels the readers of ProtoJSON follow.
const MAX_DEPTH: usize = 100;

/// Fields at fault, in the order they were found; of very many only the first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    named: Vec<Fault>,
    more: usize,
}

impl Faults {
    /// Keeps what went wrong, and goes on.
    pub(crate) fn take<T>(&mut self, read: Result<T, Fault>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(fault) => {
                self.add(fault);
                None
            }
        }
    }

    pub(crate) fn add(&mut self, fault: Fault) {
        if self.named.len() < MAX_NAMED {
            self.named.push(fault);
        } else {
            self.more += 1;
        }
    }

    /// One fault that names all the fields.
    pub(crate) fn check(self) -> Result<(), Fault> {
        let mut faults = self.named.into_iter();
        let Some(mut first) = faults.next() else { return Ok(()) };
        first.unnamed = self.more;
        first.violations.extend(faults.map(|fault| (fault.field.unwrap_or_default(), fault.message)));
        Err(first)
    }
}

/// A field by its JSON name, or its name in snake case.
pub(crate) fn field<'a>(object: &Object<'a>, name: &str) -> Option<Node<'a>> {
    object.get(name).or_else(|| {
        let snake = snake(name);
        if snake == name { None } else { object.get(&snake) }
    })
}

/// A name in snake case.
pub(crate) fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

/// An optional string.
pub(crate) fn string(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    field(object, name).map(|node| node.string().map(Cow::into_owned)).transpose()
}

/// An optional string that counts as absent when it is empty, as in ProtoJSON.
pub(crate) fn filled(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(string(object, name)?.filter(|text| !text.is_empty()))
}

/// A string that has to be there and not empty.
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

/// An optional whole number, also as a string.
pub(crate) fn integer(object: &Object<'_>, name: &str) -> Result<Option<i64>, Fault> {
    field(object, name)
        .map(|node| match node.kind() {
            Kind::String => node.string()?.trim().parse().map_err(|_| node.wrong("an integer")),
            _ => node.integer(),
        })
        .transpose()
}

/// An optional boolean.
pub(crate) fn boolean(object: &Object<'_>, name: &str) -> Result<Option<bool>, Fault> {
    field(object, name).map(|node| node.boolean()).transpose()
}

/// An optional object, kept.
pub(crate) fn json_object(object: &Object<'_>, name: &str) -> Result<Option<Json>, Fault> {
    let Some(node) = field(object, name) else { return Ok(None) };
    shallow(&node)?;
    node.json_object().map(Some)
}

/// Judges how deeply a value is nested that will be passed on.
fn shallow(node: &Node<'_>) -> Result<(), Fault> {
    if node.is_deeper_than(MAX_DEPTH) {
        return Err(node.invalid(format!("is nested deeper than {MAX_DEPTH} levels")));
    }
    Ok(())
}

/// A list of strings, empty where there is none.
pub(crate) fn strings(object: &Object<'_>, name: &str) -> Result<Vec<String>, Fault> {
    let Some(node) = field(object, name) else { return Ok(Vec::new()) };
    node.array()?.map(|node| node.string().map(Cow::into_owned)).collect()
}

/// A state by name, in any dialect, or by number.
pub(crate) fn state(node: &Node<'_>) -> Result<Option<State>, Fault> {
    let word = match node.kind() {
        Kind::Number => node.integer()?.to_string(),
        _ => node.string()?.into_owned(),
    };
    if matches!(word.as_str(), "0" | "TASK_STATE_UNSPECIFIED" | "") {
        return Ok(None);
    }
    State::read(&word).map(Some).ok_or_else(|| node.invalid(format!("unknown state '{word}'")))
}

/// A message of a request. `form` decides the one thing that looks alike and is not: what `data` holds.
pub(crate) fn message(node: &Node<'_>, form: Form, faults: &mut Faults) -> Option<Message<'static>> {
    let object = faults.take(node.object())?;
    let id = faults.take(required(&object, "messageId"));
    let role = faults.take(role(&object));
    let parts = parts(&object, form, faults);
    let context = faults.take(filled(&object, "contextId"));
    let task = faults.take(filled(&object, "taskId"));
    let metadata = faults.take(json_object(&object, "metadata"));
    let extensions = faults.take(strings(&object, "extensions"));
    let references = faults.take(strings(&object, "referenceTaskIds"));
    Some(Message {
        id: Cow::Owned(id?),
        context: context?.map(Cow::Owned),
        task: task?.map(Cow::Owned),
        role: role?,
        parts: parts?,
        metadata: metadata?.map(keep),
        extensions: extensions?.into_iter().map(Cow::Owned).collect(),
        references: references?.into_iter().map(Cow::Owned).collect(),
    })
}

fn keep(json: Json) -> Raw<'static> {
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

fn parts(object: &Object<'_>, form: Form, faults: &mut Faults) -> Option<Vec<Part<'static>>> {
    let Some(node) = object.any(&["parts", "content"]) else {
        faults.add(missing(object, "parts"));
        return None;
    };
    let mut nodes = faults.take(node.array())?.peekable();
    if nodes.peek().is_none() {
        faults.add(node.invalid("must have at least one element"));
        return None;
    }
    let mut parts = Some(Vec::new());
    for node in nodes {
        // All faults are told, but parts beside one are of no use.
        match (faults.take(part(&node, form)), &mut parts) {
            (Some(part), Some(parts)) => parts.push(part),
            (Some(_), None) => {}
            (None, _) => parts = None,
        }
    }
    parts
}

/// One part, of either generation.
fn part(node: &Node<'_>, form: Form) -> Result<Part<'static>, Fault> {
    const CHOICES: [&str; 5] = ["text", "raw", "url", "data", "file"];
    let object = node.object()?;
    let there: Vec<&str> = CHOICES.into_iter().filter(|name| object.get(name).is_some()).collect();
    // The generations before 0.3 called it `type`. In 1.0 that is a field nobody knows.
    let kind = match object.string("kind")? {
        None if form == Form::V03 => object.string("type")?,
        kind => kind,
    };
    let choice = match kind.as_deref() {
        None => there.first().copied(),
        Some(kind @ ("text" | "file" | "data")) => there.iter().copied().find(|name| *name == kind),
        Some(kind) => return Err(node.invalid(format!("unknown kind of part '{kind}'"))),
    };
    // `"data": null` is data all the same: the only value ProtoJSON cannot leave out.
    let is_null = matches!(kind.as_deref(), None | Some("data")) && object.has("data");
    let Some(choice) = choice.or(is_null.then_some("data")) else {
        return Err(node.invalid("must hold one of 'text', 'raw', 'url' and 'data'"));
    };
    // In 0.3 the kind says which of them counts.
    if (form == Form::V1 || kind.is_none())
        && let Some(other) = there.iter().find(|name| **name != choice)
    {
        return Err(node.invalid(format!("holds both '{choice}' and '{other}'")));
    }
    let mut metadata = json_object(&object, "metadata")?;
    let mut filename = filled(&object, "filename")?;
    let mut media_type = filled(&object, "mediaType")?;
    let content = match choice {
        "text" => Content::Text(Cow::Owned(string(&object, "text")?.unwrap_or_default())),
        "raw" => Content::Bytes(bytes(&object, "raw")?),
        "url" => Content::Url(Cow::Owned(required(&object, "url")?)),
        "file" => {
            let file = object.required("file")?.object()?;
            let first = |names: &[&str]| names.iter().find_map(|name| filled(&file, name).transpose()).transpose();
            filename = filename.or(first(&["name", "filename"])?);
            media_type = media_type.or(first(&["mimeType", "mediaType"])?);
            let by_bytes = ["bytes", "fileWithBytes"].into_iter().find(|name| field(&file, name).is_some());
            match (by_bytes, first(&["uri", "fileWithUri"])?) {
                (Some(_), Some(_)) => return Err(node.invalid("holds both bytes and a link")),
                (Some(name), None) => Content::Bytes(bytes(&file, name)?),
                (None, Some(url)) => Content::Url(Cow::Owned(url)),
                (None, None) => return Err(node.invalid("holds neither bytes nor a link")),
            }
        }
        _ => {
            let data = object.get("data");
            let wrapped = match &data {
                Some(data) if form == Form::V03Rest && data.kind() == Kind::Object && kind.is_none() => {
                    // `{"data":{"data":{…}}}`: the older protobuf has a message in between.
                    let inner = data.object()?;
                    let only = inner.iter().count() == 1;
                    inner.get("data").filter(|_| only)
                }
                _ => None,
            };
            let data = wrapped.or(data);
            data.as_ref().map_or(Ok(()), shallow)?;
            let data = data.map_or_else(Json::null, |node| node.to_json());
            Content::Data(keep(data))
        }
    };
    let is_file = matches!(content, Content::Bytes(_) | Content::Url(_));
    let mut content = content;
    if form != Form::V1
        && !is_file
        && let Some(kept) = metadata.take()
    {
        metadata = unpack(kept, &mut content, &mut filename, &mut media_type);
    }
    Ok(Part {
        content,
        filename: filename.map(Cow::Owned),
        media_type: media_type.map(Cow::Owned),
        metadata: metadata.map(keep),
    })
}

fn bytes(object: &Object<'_>, name: &str) -> Result<Cow<'static, str>, Fault> {
    let text = string(object, name)?.unwrap_or_default();
    match base64::standard(&text) {
        Some(Cow::Owned(standard)) => Ok(Cow::Owned(standard)),
        Some(Cow::Borrowed(_)) => Ok(Cow::Owned(text)),
        None => Err(Fault::invalid(object.path_of(name), "is no base64")),
    }
}

/// Takes out of a 0.3 part's metadata what 1.0 has fields for: the way back of `v03`.
fn unpack(
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
        *data = keep(value);
        fields.remove("data_part_compat");
        changed = true;
    }
    for (name, place) in [("filename", filename), ("mediaType", media_type)] {
        if place.is_none()
            && let Some(text) = fields.get(name).and_then(Json::decode::<String>)
        {
            // A2UI renderers were told it twice.
            if name == "mediaType"
                && text == crate::A2UI
                && fields.get("mimeType") == Some(&Json::from_serialize(crate::A2UI))
            {
                fields.remove("mimeType");
            }
            *place = Some(text);
            fields.remove(name);
            changed = true;
        }
    }
    if !changed {
        return Some(metadata);
    }
    (!fields.is_empty()).then(|| Json::from_serialize(&fields))
}
