//! Attachments of a call, which become contents of the user's message.

use interlingua_adapter_kit::data_url;
use interlingua_core::capability::Media;
use interlingua_core::model::{Body, Content, File};
use serde_json::{Map, Value};

use crate::media::{self, Source};
use crate::tools::tool_error::ToolError;

/// Maximum number of attachments of a call.
pub(super) const MAX_ATTACHMENTS: usize = 16;

/// Reads the argument `attachments`. `taken`: the media that the agent takes.
///
/// # Errors
/// The first attachment that is wrong, or that the agent does not take.
pub(super) fn read(attachments: &Value, taken: Media) -> Result<Vec<Content>, ToolError> {
    let Value::Array(attachments) = attachments else {
        return Err(ToolError::new("PARAMETER_VALIDATION", "attachments must be a list"));
    };
    if attachments.len() > MAX_ATTACHMENTS {
        let count = attachments.len();
        let message = format!("attachments has {count} entries: {MAX_ATTACHMENTS} are allowed");
        return Err(ToolError::new("INVALID_PARAMETER", message));
    }
    attachments
        .iter()
        .enumerate()
        .map(|(index, value)| attachment(&format!("attachments[{index}]"), value, taken))
        .collect()
}

/// The value of an attachment.
enum AttachmentValue<'a> {
    Link(&'a str),
    /// Base64 in the standard form.
    Bytes(String),
}

fn attachment(path: &str, value: &Value, taken: Media) -> Result<Content, ToolError> {
    let Value::Object(fields) = value else {
        return Err(ToolError::new("PARAMETER_VALIDATION", format!("{path} must be an object")));
    };
    let name = text(path, fields, "name")?;
    let named_type = text(path, fields, "mime_type")?.filter(|named| !named.trim().is_empty());
    let values = [text(path, fields, "url")?, text(path, fields, "data")?, text(path, fields, "text")?];

    let invalid = |problem: &str| ToolError::new("INVALID_PARAMETER", format!("{path} {problem}"));
    let (given, inner_type, fallback) = match values {
        [Some(url), None, None] => match Source::parse(url, false) {
            Source::Link(link) => (AttachmentValue::Link(link), None, None),
            Source::Bytes { media_type, base64 } => (AttachmentValue::Bytes(base64.into_owned()), media_type, None),
            Source::Other(_) => return Err(invalid("has a url that is no http or https URL")),
        },
        [None, Some(data), None] => match Source::parse(data, true) {
            Source::Bytes { media_type, base64 } => (AttachmentValue::Bytes(base64.into_owned()), media_type, None),
            Source::Link(_) | Source::Other(_) => return Err(invalid("has data that is not base64")),
        },
        [None, None, Some(text)] => (AttachmentValue::Bytes(media::encode(text.as_bytes())), None, Some("text/plain")),
        _ => return Err(invalid("must have exactly one of url, data and text")),
    };
    let is_text = fallback.is_some();

    let from_name = || {
        name.and_then(media::of_name).or_else(|| match given {
            AttachmentValue::Link(link) => media::of_name(link),
            AttachmentValue::Bytes(_) => None,
        })
    };
    let media_type = named_type
        .map(|named| data_url::media_type(named.trim()).into_owned())
        .or_else(|| inner_type.map(std::borrow::Cow::into_owned))
        .or_else(|| from_name().map(str::to_owned))
        .or_else(|| fallback.map(str::to_owned));

    // A text is a file, also one of an image, such as SVG.
    let family = media_type.as_deref().and_then(|full| full.split('/').next()).filter(|_| !is_text);
    let family = family.unwrap_or_default().to_owned();
    let (is_taken, kind) = match family.as_str() {
        "image" => (taken.image, "images"),
        "audio" => (taken.audio, "audio"),
        "video" => (taken.video, "video"),
        _ => (taken.file, "files"),
    };
    if !is_taken {
        return Err(ToolError::new("UNSUPPORTED", format!("{path}: the agent takes no {kind}")));
    }
    Ok(Content::new(body(&family, given, media_type, name)))
}

fn body(family: &str, given: AttachmentValue<'_>, media_type: Option<String>, name: Option<&str>) -> Body {
    let is_link = matches!(given, AttachmentValue::Link(_));
    let url = match given {
        AttachmentValue::Link(link) => link.to_owned(),
        AttachmentValue::Bytes(base64) => {
            format!("data:{};base64,{base64}", media_type.as_deref().unwrap_or(media::UNKNOWN))
        }
    };
    match family {
        "image" => Body::Image(Some(url)),
        "audio" => Body::Audio { data: Some(url), format: media_type },
        "video" => Body::Video(Some(url)),
        _ => {
            let (url, data) = if is_link { (Some(url), None) } else { (None, Some(url)) };
            Body::File(File { url, id: None, name: name.map(str::to_owned), data })
        }
    }
}

fn text<'a>(path: &str, fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, ToolError> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(ToolError::new("PARAMETER_VALIDATION", format!("{path}.{name} must be a string"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(attachment: Value, taken: Media) -> Result<String, String> {
        let contents =
            read(&json!([attachment]), taken).map_err(|error| format!("{}: {}", error.code, error.message))?;
        Ok(serde_json::to_string(&contents[0]).expect("JSON"))
    }

    #[test]
    fn attachments_become_contents_by_their_media_type() {
        let file = |url: &str, name: &str, data: &str| {
            format!(r#"{{"type":"file","file_url":{url},"file_id":null,"filename":{name},"file_data":{data}}}"#)
        };
        for (attachment, content) in [
            (
                json!({ "mime_type": "image/jpg", "data": "AQID" }),
                r#"{"type":"image","image_url":"data:image/jpeg;base64,AQID"}"#.to_owned(),
            ),
            (json!({ "url": "https://x/a.png" }), r#"{"type":"image","image_url":"https://x/a.png"}"#.to_owned()),
            (
                json!({ "url": "data:image/png;base64,AQID" }),
                r#"{"type":"image","image_url":"data:image/png;base64,AQID"}"#.to_owned(),
            ),
            (
                json!({ "name": "a.mp3", "data": "AQID" }),
                r#"{"type":"audio","data":"data:audio/mpeg;base64,AQID","format":"audio/mpeg"}"#.to_owned(),
            ),
            (
                json!({ "mime_type": "video/mp4", "url": "https://x/a" }),
                r#"{"type":"video","video_url":"https://x/a"}"#.to_owned(),
            ),
            (
                json!({ "name": "a.pdf", "data": "AQ" }),
                file("null", "\"a.pdf\"", "\"data:application/pdf;base64,AQ==\""),
            ),
            (json!({ "data": "AQID" }), file("null", "null", "\"data:application/octet-stream;base64,AQID\"")),
            (json!({ "url": "https://x/a" }), file("\"https://x/a\"", "null", "null")),
            (json!({ "text": "hi" }), file("null", "null", "\"data:text/plain;base64,aGk=\"")),
            (
                json!({ "text": "<svg/>", "name": "a.svg", "other": 1 }),
                file("null", "\"a.svg\"", "\"data:image/svg+xml;base64,PHN2Zy8+\""),
            ),
        ] {
            assert_eq!(written(attachment.clone(), Media::ALL), Ok(content), "{attachment}");
        }
    }

    #[test]
    fn wrong_attachments_are_refused() {
        for (attachment, problem) in [
            (json!("a"), "PARAMETER_VALIDATION: attachments[0] must be an object"),
            (json!({ "name": 1, "text": "a" }), "PARAMETER_VALIDATION: attachments[0].name must be a string"),
            (json!({}), "INVALID_PARAMETER: attachments[0] must have exactly one of url, data and text"),
            (
                json!({ "url": "https://x", "text": "a" }),
                "INVALID_PARAMETER: attachments[0] must have exactly one of url, data and text",
            ),
            (json!({ "data": "no base64!" }), "INVALID_PARAMETER: attachments[0] has data that is not base64"),
            (json!({ "data": "" }), "INVALID_PARAMETER: attachments[0] has data that is not base64"),
            (
                json!({ "url": "file:///etc" }),
                "INVALID_PARAMETER: attachments[0] has a url that is no http or https URL",
            ),
        ] {
            assert_eq!(written(attachment.clone(), Media::ALL), Err(problem.to_owned()), "{attachment}");
        }
        assert_eq!(read(&json!({}), Media::ALL).map_err(|error| error.code), Err("PARAMETER_VALIDATION"));
        let many = vec![json!({ "text": "a" }); MAX_ATTACHMENTS + 1];
        assert_eq!(read(&json!(many[1..]), Media::ALL).map(|contents| contents.len()), Ok(MAX_ATTACHMENTS));
        assert_eq!(read(&json!(many), Media::ALL).map_err(|error| error.code), Err("INVALID_PARAMETER"));
    }

    #[test]
    fn media_that_the_agent_does_not_take_are_refused() {
        let only_images = Media { image: true, ..Media::NONE };
        assert!(written(json!({ "url": "https://x/a.png" }), only_images).is_ok());
        for (attachment, kind) in [
            (json!({ "name": "a.wav", "data": "AQID" }), "audio"),
            (json!({ "url": "https://x/a.mp4" }), "video"),
            (json!({ "text": "a" }), "files"),
        ] {
            let problem = format!("UNSUPPORTED: attachments[0]: the agent takes no {kind}");
            assert_eq!(written(attachment, only_images), Err(problem));
        }
    }
}
