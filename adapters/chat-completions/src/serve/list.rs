//! `GET /chat/completions`: the caller's stored completions, in the order of their creation
//! (docs/protocols/chat-completions.md#stored-completions).
//!
//! Not here: single completions ([`super::stored`]).

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_adapter_kit::openai_list::{List as ListPage, PageQuery};
use interlingua_core::call::{Cursor, Filter, Order, Page, Tags, Target};
use interlingua_core::exchange::Exchange;
use interlingua_core::{Call, Fault, FaultKind, Json, Next, Out, Reply, Request};

use super::MountedRoute;
use crate::encode::Encoder;
use crate::fault::error;
use crate::{ids, tags};

/// The most pairs of metadata in a query: as many as a completion has.
const MAX_PAIRS: usize = 16;

/// Lists completions.
pub(crate) struct List {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    /// The filter of the request, without the position.
    filter: Filter,
    /// The completion before the page.
    after: Option<String>,
}

impl List {
    pub(crate) fn new(shared: Arc<MountedRoute>) -> Self {
        Self { shared, headers: ResponseHeaders::default(), filter: Filter::default(), after: None }
    }

    fn page(&self, cursor: Option<Cursor>) -> Call {
        Call::List(Filter { cursor, ..self.filter.clone() })
    }

    fn write(&self, page: &Page<'_>, out: &mut Out) -> Next {
        let stored = |view| Encoder::stored(Arc::clone(&self.shared), view);
        let found = page.runs.iter().filter_map(|view| Some((ids::completion(view.run().id), stored(*view)?)));
        let (ids, data): (Vec<String>, Vec<Json>) = found.unzip();
        // Clients take an empty page for the last one.
        if let (true, Some(next)) = (data.is_empty(), page.next) {
            return Next::Call(self.page(Some(next)));
        }

        let [first, last] = [ids.first(), ids.last()].map(|id| id.map(String::as_str));
        self.headers.apply(&mut out.head);
        out.json(&ListPage::new(&data, first, last, page.next.is_some()));
        Next::Done
    }
}

impl Exchange for List {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        let PageQuery { limit, ascending, after } = PageQuery::parse(request, true)?;
        self.filter = Filter {
            protocol: Some(ids::NAME.to_owned()),
            states: tags::ANSWERED.to_vec(),
            tags: wanted(request)?,
            order: if ascending { Order::OldestFirst } else { Order::NewestFirst },
            limit,
            ..Filter::default()
        };

        self.after = after;
        let Some(after) = &self.after else { return Ok(self.page(None)) };
        let run = ids::parse_completion(after).ok_or_else(|| PageQuery::unknown(after))?;
        Ok(Call::Fetch(Target::Run(run)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Run(view) if tags::is_completion(view.info) => {
                let run = view.run();
                Ok(Next::Call(self.page(Some(Cursor { at: run.created_at, id: run.id }))))
            }
            Reply::Run(_) => Err(PageQuery::unknown(self.after.as_deref().unwrap_or_default())),
            Reply::Runs(page) => Ok(self.write(&page, out)),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = match &self.after {
            Some(after) if fault.kind == FaultKind::NotFound => PageQuery::unknown(after),
            _ => fault.clone(),
        };
        self.headers.write_error(&error(&fault), &fault, out);
    }
}

/// The tags that a query asks for: those of `model` and `metadata[key]`, and the one that all completions have.
fn wanted(request: &Request<'_>) -> Result<Tags, Fault> {
    let mut wanted = Tags::from([tags::store()]);
    for (name, value) in request.queries() {
        let (name, value) = (&*name, &*value);
        if name == "model" {
            wanted.extend([tags::with_model(value)]);
        } else if let Some(key) = name.strip_prefix("metadata[").and_then(|key| key.strip_suffix(']')) {
            wanted.extend([tags::with_metadata(key, value)]);
        } else if name.starts_with("metadata") {
            return Err(Fault::invalid("metadata", "must be pairs: 'metadata[key]=value'"));
        }
    }
    if wanted.len() > MAX_PAIRS + 2 {
        return Err(Fault::invalid("metadata", "must have at most 16 pairs"));
    }
    Ok(wanted)
}
