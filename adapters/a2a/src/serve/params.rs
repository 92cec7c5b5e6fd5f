//! The parameters of an operation, from path, JSON object or query (section 6).

use std::borrow::Cow;

use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, FaultKind, Request, RunId};

use crate::dialect::Operation;
use crate::errors::{self, Problem};
use crate::wire::read;

/// Parameters of one request.
pub(super) struct Params<'a> {
    /// The REST request, for path and query. `None` over JSON-RPC.
    request: Option<&'a Request<'a>>,
    /// `params` or the body; an empty object if absent.
    pub(super) node: Node<'a>,
    /// The fields of `node`.
    pub(super) object: Object<'a>,
}

impl<'a> Params<'a> {
    /// Parameters of a JSON-RPC request. Operations without required fields ignore `params` that is not an object.
    pub(super) fn from_rpc(node: Option<Node<'a>>, operation: Operation) -> Result<Self, Fault> {
        let requires_no_field = matches!(operation, Operation::List | Operation::ExtendedCard);
        let node = match node.filter(|node| !requires_no_field || node.kind() == Kind::Object) {
            Some(node) if node.kind() != Kind::Object => return Err(node.wrong_type("an object")),
            // Field paths in errors start here, as in the specification's objects.
            Some(node) => Node::with_path("", node.raw()),
            None => Node::parse(b"{}")?,
        };
        Ok(Self { request: None, object: node.object()?, node })
    }

    /// Parameters of a REST request. The body may be empty or `null`.
    pub(super) fn from_rest(request: &'a Request<'a>) -> Result<Self, Fault> {
        let blank = request.body.iter().all(u8::is_ascii_whitespace);
        let has_no_body = blank || matches!(request.method, "GET" | "HEAD" | "DELETE");

        let mut node = Node::parse(if has_no_body { b"{}" } else { request.body })?;
        if node.kind() == Kind::Null {
            node = Node::parse(b"{}")?;
        }

        let object = node.object();
        let object = object.map_err(|_| errors::fault(Problem::InvalidRequest, "the body must be a JSON object"))?;
        Ok(Self { request: Some(request), object, node })
    }

    pub(super) fn path(&self, name: &str) -> Option<&'a str> {
        self.request.map(|request| request.param(name)).filter(|value| !value.is_empty())
    }

    fn query(&self, name: &str) -> Option<Cow<'a, str>> {
        let request = self.request?;
        request.query(name).or_else(|| request.query(&read::to_snake_case(name)))
    }

    /// A string from object or query. `None` if absent or empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        if let Some(text) = read::non_empty(&self.object, name)? {
            return Ok(Some(text));
        }
        Ok(self.query(name).map(Cow::into_owned).filter(|text| !text.is_empty()))
    }

    /// A required string: `in_path` in the path, else `name` in object or query.
    pub(super) fn required(&self, in_path: &str, name: &str) -> Result<String, Fault> {
        if let Some(text) = self.path(in_path) {
            return Ok(text.to_owned());
        }

        let missing = || Fault::new(FaultKind::Missing, "is required").with_field(name);
        self.text(name)?.ok_or_else(missing)
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Fault> {
        if let Some(number) = read::integer(&self.object, name)? {
            return Ok(Some(number));
        }

        let Some(text) = self.query(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Fault::invalid(name, "must be an integer"))
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, Fault> {
        if let Some(flag) = read::boolean(&self.object, name)? {
            return Ok(Some(flag));
        }
        match self.query(name).as_deref() {
            None | Some("") => Ok(None),
            Some("true" | "1") => Ok(Some(true)),
            Some("false" | "0") => Ok(Some(false)),
            Some(_) => Err(Fault::invalid(name, "must be 'true' or 'false'")),
        }
    }

    /// `historyLength`. `None`: the complete history.
    pub(super) fn history_length(&self) -> Result<Option<usize>, Fault> {
        history_length(self.integer("historyLength")?, "historyLength")
    }
}

/// Validates a history length.
pub(super) fn history_length(number: Option<i64>, field: &str) -> Result<Option<usize>, Fault> {
    number.map(|number| usize::try_from(number).map_err(|_| Fault::invalid(field, "must not be negative"))).transpose()
}

/// Parses a task id to a run id, in the format of any protocol. An id of another format is an unknown task.
pub(super) fn task_id(text: &str) -> Result<RunId, Fault> {
    RunId::parse(text).ok_or_else(|| errors::fault(Problem::TaskNotFound, "no such task"))
}
