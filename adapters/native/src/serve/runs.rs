//! Runs as resources: reading, canceling, deleting and listing them. All are extensions of the Agent API.

use std::sync::Arc;

use interlingua_core::call::{Call, Cursor, Filter, Page, Reply, Target};
use interlingua_core::exchange::{Exchange, Next};
use interlingua_core::run::RunError;
use interlingua_core::{Fault, Out, Request, RunId};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::decode::run_id::run_id;
use crate::encode::frames;
use crate::serve::fault;
use crate::{ResponseForm, Route, wire};

/// The operation on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Fetch,
    Cancel,
    Delete,
}

/// `GET /runs/{id}`, `POST /runs/{id}/cancel`, `DELETE /runs/{id}`
pub(crate) struct OneRun {
    route: Arc<Route>,
    operation: Operation,
    id: Option<RunId>,
    form: ResponseForm,
}

impl OneRun {
    pub(crate) fn new(route: &Arc<Route>, operation: Operation) -> Self {
        Self { operation, id: None, form: route.form(), route: Arc::clone(route) }
    }
}

impl Exchange for OneRun {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let id = run_id(request)?;
        self.id = Some(id);
        self.form = self.route.form_of(request)?;

        let target = Target::Run(id);
        Ok(match self.operation {
            Operation::Fetch => Call::Fetch(target),
            Operation::Cancel => Call::Cancel(target),
            Operation::Delete => Call::Delete(target),
        })
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match (reply, self.id) {
            (Reply::Run(view), _) => frames::write_response(self.form, view, out),
            (Reply::Done, Some(id)) => {
                out.json(&DeletionResponse { id: wire::response_id(id), object: "response", deleted: true });
            }
            (reply, _) => return Err(fault::unexpected(&reply)),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}

#[derive(Serialize)]
struct DeletionResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// `GET /runs?session_id=…&limit=…&cursor=…`
pub(crate) struct AllRuns {
    route: Arc<Route>,
}

impl AllRuns {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { route: Arc::clone(route) }
    }
}

impl Exchange for AllRuns {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let limit = request.query("limit").map(|text| match text.parse() {
            Ok(limit @ 1..=100) => Ok(limit),
            _ => Err(Fault::invalid("?limit", "must be a number between 1 and 100")),
        });
        let cursor = request
            .query("cursor")
            .map(|text| parse_cursor(&text).ok_or_else(|| Fault::invalid("?cursor", "is not a cursor of this list")));

        Ok(Call::List(Filter {
            session: request.query("session_id").map(Into::into),
            limit: limit.transpose()?.unwrap_or(0),
            cursor: cursor.transpose()?,
            heads: true,
            ..Filter::default()
        }))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let Reply::Runs(page) = reply else { return Err(fault::unexpected(&reply)) };
        out.json(&RunList {
            object: "list",
            total: page.total,
            next: page.next.map(|next| format!("{}.{}", next.at, next.id)),
            data: Entries { page: &page, form: self.route.form() },
        });
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}

fn parse_cursor(text: &str) -> Option<Cursor> {
    let (changed_at, id) = text.split_once('.')?;
    Some(Cursor { at: changed_at.parse().ok()?, id: RunId::parse(id)? })
}

#[derive(Serialize)]
struct RunList<'a> {
    object: &'static str,
    total: usize,
    /// The `cursor` of the next page.
    next: Option<String>,
    data: Entries<'a>,
}

/// The responses of a page, without their output.
struct Entries<'a> {
    page: &'a Page<'a>,
    form: ResponseForm,
}

impl Serialize for Entries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.page.runs.len()))?;
        for view in &self.page.runs {
            let mut error = RunError { code: String::new(), message: String::new() };
            list.serialize_element(&frames::listed_response(self.form, *view, &mut error))?;
        }
        list.end()
    }
}

/// `GET /health`: the state of the gateway, not of the agent.
pub(crate) struct Health;

impl Exchange for Health {
    fn decode(&mut self, _: &Request<'_>) -> Result<Call, Fault> {
        Ok(Call::Nothing)
    }

    fn reply(&mut self, _: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        #[derive(Serialize)]
        struct Healthy {
            status: &'static str,
            mode: &'static str,
            runner: &'static str,
        }
        out.json(&Healthy { status: "healthy", mode: "gateway", runner: "ready" });
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }
}
