//! The name of a session, and of a user, in a request (docs/protocols/anthropic-messages.md#conversations).

use interlingua_core::tree::Object;
use interlingua_core::{Extra, Fault, Json, Request};

use crate::options::Options;

/// Names a subagent of Claude Code, which runs under the session of its parent.
const AGENT_HEADER: &str = "x-claude-code-agent-id";
/// The longest name, in bytes.
const MAX_NAME: usize = 400;

/// The session that a request names.
///
/// # Errors
/// A name that is too long, or `metadata` of a wrong type.
pub(crate) fn name(request: &Request<'_>, object: &Object<'_>, options: &Options) -> Result<Option<String>, Fault> {
    for place in &options.session {
        let found = match place.strip_prefix("metadata.") {
            Some(field) => in_metadata(object, field)?,
            None => request.header(place).map(str::to_owned),
        };
        let Some(found) = found.filter(|name| !name.is_empty()) else { continue };
        let name = match request.header(AGENT_HEADER).filter(|agent| !agent.is_empty()) {
            Some(agent) => format!("{found}/{agent}"),
            None => found,
        };
        if name.len() > MAX_NAME {
            return Err(Fault::invalid(place, format!("must have at most {MAX_NAME} characters")));
        }
        return Ok(Some(name));
    }
    Ok(None)
}

/// A name in the application's metadata: `session_id` in JSON text; of other fields than the user's, the text itself.
fn in_metadata(object: &Object<'_>, field: &str) -> Result<Option<String>, Fault> {
    let Some(metadata) = object.get("metadata") else { return Ok(None) };
    let Some(text) = metadata.object()?.string(field)? else { return Ok(None) };
    match json(&text) {
        Some(fields) => Ok(word(&fields, "session_id")),
        None if field == "user_id" => Ok(None),
        None => Ok(Some(text.into_owned())),
    }
}

/// The user in `metadata.user_id`. Claude Code sends JSON text with the account, the device and the session in it.
pub(super) fn user(text: &str) -> String {
    let Some(fields) = json(text) else { return text.to_owned() };
    word(&fields, "account_uuid").or_else(|| word(&fields, "device_id")).unwrap_or_else(|| text.to_owned())
}

fn json(text: &str) -> Option<Extra> {
    Json::parse(text.trim()).filter(Json::is_object)?.decode()
}

fn word(fields: &Extra, name: &str) -> Option<String> {
    fields.get(name).and_then(Json::decode::<String>).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_a_coding_agent_is_the_account_or_the_device() {
        assert_eq!(user("ada"), "ada");
        assert_eq!(user(r#"{"device_id":"d","account_uuid":"","session_id":"s"}"#), "d");
        assert_eq!(user(r#"{"device_id":"d","account_uuid":"a","session_id":"s"}"#), "a");
        assert_eq!(user(r#"{"x":1}"#), r#"{"x":1}"#);
    }
}
