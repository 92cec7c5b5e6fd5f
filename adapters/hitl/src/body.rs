//! Reading a body: all that is wrong with it is told at once, in the form of the original's framework (section 7).

use interlingua_core::json::Json;
use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, FaultKind, Request};

use crate::wire::BadField;

/// The longest user and session ids. A session's id is made of its user's.
const MAX_ID_BYTES: usize = 256;

/// A body being read.
pub(crate) struct Body<'a> {
    object: Option<Object<'a>>,
    whole: Json,
    bad: Vec<BadField>,
}

impl<'a> Body<'a> {
    pub(crate) fn new(request: &Request<'a>) -> Self {
        let mut body = Self { object: None, whole: Json::null(), bad: Vec::new() };
        if request.body.is_empty() {
            body.complain("missing", None, "Field required", Json::null());
            return body;
        }
        let media = request.media_type();
        let is_json = media.is_empty() || media == "application/json" || media.ends_with("+json");
        match Node::parse(request.body) {
            Ok(node) if is_json && node.kind() == Kind::Object => {
                body.whole = node.to_json();
                body.object = node.object().ok();
            }
            // A body of another type is a text to the original, and a text is no object.
            Ok(node) => {
                let expected = "Input should be a valid dictionary or object to extract fields from";
                let input = if is_json { node.to_json() } else { Json::from_serialize(node.text()) };
                body.complain("model_attributes_type", None, expected, input);
            }
            Err(_) => body.complain("json_invalid", None, "JSON decode error", Json::null()),
        }
        body
    }

    fn complain(&mut self, kind: &'static str, field: Option<&str>, msg: &'static str, input: Json) {
        let loc = std::iter::once("body").chain(field).map(str::to_owned).collect();
        self.bad.push(BadField { r#type: kind, loc, msg, input });
    }

    fn get(&self, name: &str) -> Option<Node<'a>> {
        self.object.as_ref()?.get(name)
    }

    /// A text that has to be there.
    pub(crate) fn text(&mut self, name: &str) -> String {
        if self.object.is_some() && self.get(name).is_none() {
            let is_null = self.object.as_ref().is_some_and(|object| object.has(name));
            let input = if is_null { Json::null() } else { self.whole.clone() };
            let (kind, msg) =
                if is_null { ("string_type", "Input should be a valid string") } else { ("missing", "Field required") };
            self.complain(kind, Some(name), msg, input);
        }
        self.optional_text(name).unwrap_or_default()
    }

    /// A text that may be there.
    pub(crate) fn optional_text(&mut self, name: &str) -> Option<String> {
        let node = self.get(name)?;
        if let Ok(text) = node.string() {
            return Some(text.into_owned());
        }
        self.complain("string_type", Some(name), "Input should be a valid string", node.to_json());
        None
    }

    /// An id that has to be there.
    pub(crate) fn id(&mut self, name: &str) -> String {
        let id = self.text(name);
        if self.get(name).is_some_and(|node| node.kind() == Kind::String) {
            self.check_id(name, &id);
        }
        id
    }

    /// An id that may be there.
    pub(crate) fn optional_id(&mut self, name: &str) -> Option<String> {
        let id = self.optional_text(name)?;
        self.check_id(name, &id);
        Some(id)
    }

    fn check_id(&mut self, name: &str, id: &str) {
        if id.is_empty() {
            self.complain(
                "string_too_short",
                Some(name),
                "String should have at least 1 character",
                Json::from_serialize(id),
            );
        } else if id.len() > MAX_ID_BYTES {
            self.complain("string_too_long", Some(name), "String should have at most 256 characters", Json::null());
        }
    }

    /// Any JSON.
    pub(crate) fn json(&self, name: &str) -> Option<Json> {
        self.get(name).map(|node| node.to_json())
    }

    /// Everything that is wrong.
    pub(crate) fn finish(self) -> Result<(), BadBody> {
        if self.bad.is_empty() { Ok(()) } else { Err(BadBody(self.bad)) }
    }
}

/// What is wrong with a body.
#[derive(Debug)]
pub(crate) struct BadBody(pub(crate) Vec<BadField>);

impl BadBody {
    /// Whether a fault is about these fields. It is not where the body was never read.
    pub(crate) fn is(&self, fault: &Fault) -> bool {
        fault.kind == FaultKind::Invalid && !fault.violations.is_empty()
    }

    /// The fault, for the log and for those who know no fields.
    pub(crate) fn fault(&self) -> Fault {
        let field = |bad: &BadField| bad.loc.join(".");
        let mut fault = Fault::new(FaultKind::Invalid, "the body is not what it should be");
        fault.violations = self.0.iter().map(|bad| (field(bad), bad.msg.to_owned())).collect();
        fault.field = self.0.first().map(field);
        fault
    }
}
