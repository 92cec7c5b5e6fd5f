//! Parses the bodies of requests as JSON objects.

use interlingua_core::tree::{Node, Object};
use interlingua_core::{Fault, FaultKind, Request};

/// The body, which must be a JSON object with a JSON content type.
///
/// A body without a content type is refused like one of another type, as the runtime does: browsers send those across
/// origins without a preflight request.
pub(crate) fn object<'a>(request: &Request<'a>) -> Result<Object<'a>, Fault> {
    let media = request.media_type();
    let is_json = media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"));
    if !is_json {
        let actual = if media.is_empty() { "nothing".to_owned() } else { format!("'{media}'") };
        let message = format!("content-type must be 'application/json', not {actual}");
        return Err(Fault::new(FaultKind::UnsupportedMedia, message));
    }

    Node::parse_object(request.body)
}
