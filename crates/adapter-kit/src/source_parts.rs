//! Parts of a user's message with media in a `source`, as the protocols of several front ends write them.
//!
//! The other forms of their front ends are parsed too: the chat completions form of images, and the older form
//! `binary`.

use interlingua_core::fault::Fault;
use interlingua_core::model::{Body, Content, File};
use interlingua_core::tree::{Kind, Node, Object};

/// Parses a part: a text, an image, audio, a video or a document.
///
/// # Errors
/// The part has another form; the field is named.
pub fn parse(node: &Node<'_>) -> Result<Content, Fault> {
    if node.kind() == Kind::String {
        return Ok(Content::text(node.string()?));
    }
    let part = node.object()?;
    let kind = part.required("type")?;
    let name = kind.string()?;
    let body = match name.as_ref() {
        "text" => Body::Text(part.required("text")?.string()?.into_owned()),
        "image" | "audio" | "video" | "document" | "file" => {
            Source::parse(&part.required("source")?.object()?)?.body(&name, file_name(&part)?)
        }
        // The chat completions form, which front ends reuse.
        "image_url" => {
            let image = part.required("image_url")?;
            let url = if image.kind() == Kind::Object { image.object()?.required("url")? } else { image };
            Body::Image(Some(url.string()?.into_owned()))
        }
        "binary" => {
            let media = part.required("mimeType")?.string()?.into_owned();
            let location = match (text(&part, "url")?, text(&part, "data")?, text(&part, "id")?) {
                (Some(url), ..) => Location::Url(url),
                (_, Some(data), _) => Location::Data(data),
                (.., Some(id)) => Location::Handle(id),
                _ => return Err(node.invalid("a binary part needs 'url', 'data' or 'id'")),
            };
            let kind = media.split('/').next().unwrap_or("").to_owned();
            Source { location, media: Some(media) }.body(&kind, text(&part, "filename")?)
        }
        other => {
            let known = "text, image, audio, video, document, binary";
            return Err(kind.invalid(format!("unknown part type '{other}': must be one of {known}")));
        }
    };

    Ok(Content::new(body))
}

/// Location of a part's bytes.
enum Location {
    Url(String),
    /// Base64.
    Data(String),
    Handle(String),
}

struct Source {
    location: Location,
    media: Option<String>,
}

impl Source {
    fn parse(source: &Object<'_>) -> Result<Self, Fault> {
        let kind = source.required("type")?;
        let value = source.required("value")?.string()?.into_owned();
        let location = match kind.string()?.as_ref() {
            "url" => Location::Url(value),
            "data" => Location::Data(value),
            "file" => Location::Handle(value),
            other => return Err(kind.invalid(format!("unknown source type '{other}': must be one of url, data, file"))),
        };
        Ok(Self { location, media: text(source, "mimeType")? })
    }

    fn body(self, kind: &str, name: Option<String>) -> Body {
        let media = self.media.as_deref().unwrap_or("application/octet-stream");
        let data_url = |data: String| format!("data:{media};base64,{data}");
        match (kind, self.location) {
            ("image", Location::Url(url)) => Body::Image(Some(url)),
            ("image", Location::Data(data)) => Body::Image(Some(data_url(data))),
            ("video", Location::Url(url)) => Body::Video(Some(url)),
            ("video", Location::Data(data)) => Body::Video(Some(data_url(data))),
            ("audio", Location::Url(data) | Location::Data(data)) => {
                Body::Audio { data: Some(data), format: self.media }
            }
            (_, Location::Url(url)) => Body::File(File { url: Some(url), name, ..File::default() }),
            (_, Location::Data(data)) => {
                let data = Some(data_url(data));
                Body::File(File { data, name, ..File::default() })
            }
            (_, Location::Handle(id)) => Body::File(File { id: Some(id), name, ..File::default() }),
        }
    }
}

/// The name of a file, which some keep in the metadata of its part.
fn file_name(part: &Object<'_>) -> Result<Option<String>, Fault> {
    if let Some(name) = text(part, "filename")? {
        return Ok(Some(name));
    }
    match part.get("metadata").filter(|metadata| metadata.kind() == Kind::Object) {
        Some(metadata) => text(&metadata.object()?, "filename"),
        None => Ok(None),
    }
}

fn text(object: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(object.string(name)?.map(|text| text.into_owned()))
}
