//! Parses a body: all errors are reported at once, in the format of the original's framework
//! (docs/human-in-the-loop.md#reading-bodies).

use interlingua_core::json::Json;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, FaultKind, Request};

use crate::wire::BadField;

/// Maximum length of user and session ids in bytes. A session id contains the user id.
const MAX_ID_BYTES: usize = 256;

/// A body with the errors found so far.
pub(crate) struct Body<'a> {
    object: Option<Object<'a>>,
    json: Json,
    errors: Vec<BadField>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(request: &Request<'a>) -> Self {
        let mut body = Self { object: None, json: Json::null(), errors: Vec::new() };
        if request.body.is_empty() {
            body.add_error("missing", None, "Field required", Json::null());
            return body;
        }

        let media = request.media_type();
        let is_json = media.is_empty() || media == "application/json" || media.ends_with("+json");
        match Node::parse(request.body) {
            Ok(node) if is_json && node.kind() == Kind::Object => {
                body.json = node.to_json();
                body.object = node.object().ok();
            }
            // The original treats a body of another media type as a string, which is no object.
            Ok(node) => {
                let expected = "Input should be a valid dictionary or object to extract fields from";
                let input = if is_json { node.to_json() } else { Json::from_serialize(node.text()) };
                body.add_error("model_attributes_type", None, expected, input);
            }
            Err(_) => body.add_error("json_invalid", None, "JSON decode error", Json::null()),
        }
        body
    }

    fn add_error(&mut self, kind: &'static str, field: Option<&str>, msg: &'static str, input: Json) {
        let loc = std::iter::once("body").chain(field).map(str::to_owned).collect();
        self.errors.push(BadField { r#type: kind, loc, msg, input });
    }

    fn get(&self, name: &str) -> Option<Node<'a>> {
        self.object.as_ref()?.get(name)
    }

    /// A required string.
    pub(crate) fn text(&mut self, name: &str) -> String {
        if self.object.is_some() && self.get(name).is_none() {
            let is_null = self.object.as_ref().is_some_and(|object| object.has(name));
            let input = if is_null { Json::null() } else { self.json.clone() };
            let (kind, msg) =
                if is_null { ("string_type", "Input should be a valid string") } else { ("missing", "Field required") };
            self.add_error(kind, Some(name), msg, input);
        }

        self.optional_text(name).unwrap_or_default()
    }

    pub(crate) fn optional_text(&mut self, name: &str) -> Option<String> {
        let node = self.get(name)?;
        if let Ok(text) = node.string() {
            return Some(text.into_owned());
        }

        self.add_error("string_type", Some(name), "Input should be a valid string", node.to_json());
        None
    }

    /// A required id.
    pub(crate) fn id(&mut self, name: &str) -> String {
        let id = self.text(name);
        if self.get(name).is_some_and(|node| node.kind() == Kind::String) {
            self.check_id(name, &id);
        }
        id
    }

    pub(crate) fn optional_id(&mut self, name: &str) -> Option<String> {
        let id = self.optional_text(name)?;
        self.check_id(name, &id);
        Some(id)
    }

    fn check_id(&mut self, name: &str, id: &str) {
        if id.is_empty() {
            self.add_error(
                "string_too_short",
                Some(name),
                "String should have at least 1 character",
                Json::from_serialize(id),
            );
        } else if id.len() > MAX_ID_BYTES {
            self.add_error("string_too_long", Some(name), "String should have at most 256 characters", Json::null());
        }
    }

    /// An optional field with any JSON value.
    pub(crate) fn json(&self, name: &str) -> Option<Json> {
        self.get(name).map(|node| node.to_json())
    }

    /// Fails if there were errors. `bad` gets all of them.
    pub(crate) fn finish(self, bad: &mut Option<BadBody>) -> Result<(), Fault> {
        if self.errors.is_empty() {
            return Ok(());
        }
        Err(bad.insert(BadBody(self.errors)).to_fault())
    }
}

/// The errors of a body.
#[derive(Debug)]
pub(crate) struct BadBody(pub(crate) Vec<BadField>);

impl BadBody {
    /// True if a fault is about these fields, not about a body that was never parsed.
    pub(crate) fn matches(&self, fault: &Fault) -> bool {
        fault.kind == FaultKind::Invalid && !fault.violations.is_empty()
    }

    /// Converts the errors to a fault, for the log and for callers without field errors.
    pub(crate) fn to_fault(&self) -> Fault {
        let field = |bad: &BadField| bad.loc.join(".");
        let mut fault = Fault::new(FaultKind::Invalid, "the request body is invalid");
        fault.violations = self.0.iter().map(|bad| (field(bad), bad.msg.to_owned())).collect();
        fault.field = self.0.first().map(field);
        fault
    }
}
