//! The parameters of an operation, wherever they stand: in the path, in an object, in the query (section 6).

use std::borrow::Cow;

use interlingua_core::tree::{Kind, Node, Object};
use interlingua_core::{Fault, FaultKind, Request, RunId};

use crate::dialect::Operation;
use crate::errors::{self, Problem};
use crate::wire::read;

/// Where an operation's parameters stand.
pub(super) struct Params<'a> {
    /// The request, where path and query count.
    request: Option<&'a Request<'a>>,
    /// `params`, or a body. Where there is none it is an empty object.
    pub(super) node: Node<'a>,
    /// Its fields.
    pub(super) object: Object<'a>,
}

impl<'a> Params<'a> {
    /// Those of a JSON-RPC request. What is no object is nothing at all, where no field is required.
    pub(super) fn rpc(node: Option<Node<'a>>, operation: Operation) -> Result<Self, Fault> {
        let needs_none = matches!(operation, Operation::List | Operation::ExtendedCard);
        let node = match node.filter(|node| !needs_none || node.kind() == Kind::Object) {
            Some(node) if node.kind() != Kind::Object => return Err(node.wrong("an object")),
            // Fields are named from here on, as in the objects of the specification.
            Some(node) => Node::with_path("", node.raw()),
            None => Node::parse(b"{}")?,
        };
        Ok(Self { request: None, object: node.object()?, node })
    }

    /// Those of a REST request. A body may be empty or `null`.
    pub(super) fn rest(request: &'a Request<'a>) -> Result<Self, Fault> {
        let blank = request.body.iter().all(u8::is_ascii_whitespace);
        let none = blank || matches!(request.method, "GET" | "HEAD" | "DELETE");
        let mut node = Node::parse(if none { b"{}" } else { request.body })?;
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
        request.query(name).or_else(|| request.query(&read::snake(name)))
    }

    /// A text, if it is there and not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Fault> {
        if let Some(text) = read::filled(&self.object, name)? {
            return Ok(Some(text));
        }
        Ok(self.query(name).map(Cow::into_owned).filter(|text| !text.is_empty()))
    }

    /// A text that has to be there: under this name in the path, else under that name.
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

    /// A length of a history: None is all of it.
    pub(super) fn history_length(&self) -> Result<Option<usize>, Fault> {
        history_length(self.integer("historyLength")?, "historyLength")
    }
}

/// A number of messages, judged.
pub(super) fn history_length(number: Option<i64>, field: &str) -> Result<Option<usize>, Fault> {
    number.map(|number| usize::try_from(number).map_err(|_| Fault::invalid(field, "must not be negative"))).transpose()
}

/// A task's id as a run's, in any spelling that a protocol gives it. What is no id of ours names no task.
pub(super) fn task_id(text: &str) -> Result<RunId, Fault> {
    RunId::parse(text).ok_or_else(|| errors::fault(Problem::TaskNotFound, "no such task"))
}
