//! Reading the bodies of requests: what is a JSON object, and what the gateway takes for one.

use interlingua_core::tree::{Node, Object};
use interlingua_core::{Fault, FaultKind, Request};

/// The body, which has to be a JSON object and say so.
///
/// A body without a media type is refused like one of another type, as the runtime does: web pages can send those
/// without being asked whether they may.
pub(crate) fn object<'a>(request: &Request<'a>) -> Result<Object<'a>, Fault> {
    let media = request.media_type();
    let is_json = media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"));
    if !is_json {
        let sent = if media.is_empty() { "nothing".to_owned() } else { format!("'{media}'") };
        let message = format!("content-type must be 'application/json', not {sent}");
        return Err(Fault::new(FaultKind::UnsupportedMedia, message));
    }
    Node::parse_object(request.body)
}
