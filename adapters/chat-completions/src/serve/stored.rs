//! Stored completions: retrieve, update, delete, and list their input
//! (docs/protocols/chat-completions.md#stored-completions).
//!
//! A completion is a run that this protocol began with `store`. Any other run does not exist here, and neither does one
//! that is under way or has failed. Not here: the list of all completions ([`super::list`]).

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_adapter_kit::openai_list::{List, PageQuery};
use interlingua_core::call::{RunView, Target, attachment};
use interlingua_core::exchange::Exchange;
use interlingua_core::tree::Node;
use interlingua_core::tree::fields::metadata;
use interlingua_core::{Call, Extra, Fault, FaultKind, Json, Next, Out, Reply, Request, RunId};
use serde::Serialize;

use super::MountedRoute;
use crate::decode::MESSAGES;
use crate::encode::Encoder;
use crate::fault::{error, not_found};
use crate::{ids, tags};

/// The operation on a completion.
enum Operation {
    /// `GET /chat/completions/{id}`
    Retrieve,
    /// `POST /chat/completions/{id}`, with the new metadata.
    Update(Extra),
    /// `DELETE /chat/completions/{id}`
    Delete,
    /// `GET /chat/completions/{id}/messages`
    Messages(Option<PageQuery>),
}

/// A request about one completion.
pub(crate) struct StoredCompletion {
    shared: Arc<MountedRoute>,
    headers: ResponseHeaders,
    operation: Operation,
    /// The id as the client wrote it.
    id: String,
    /// The run, once it is found to be a completion.
    found: Option<RunId>,
}

impl StoredCompletion {
    pub(crate) fn retrieve(shared: Arc<MountedRoute>) -> Self {
        Self::new(shared, Operation::Retrieve)
    }

    pub(crate) fn update(shared: Arc<MountedRoute>) -> Self {
        Self::new(shared, Operation::Update(Extra::new()))
    }

    pub(crate) fn delete(shared: Arc<MountedRoute>) -> Self {
        Self::new(shared, Operation::Delete)
    }

    pub(crate) fn messages(shared: Arc<MountedRoute>) -> Self {
        Self::new(shared, Operation::Messages(None))
    }

    fn new(shared: Arc<MountedRoute>, operation: Operation) -> Self {
        Self { shared, headers: ResponseHeaders::default(), operation, id: String::new(), found: None }
    }

    /// Writes a completion, if the run has one.
    fn completion(&self, view: RunView<'_>) -> Result<Json, Fault> {
        Encoder::stored(Arc::clone(&self.shared), view).ok_or_else(|| not_found(&self.id))
    }

    /// The run is a completion: performs the operation.
    fn proceed(&mut self, view: RunView<'_>, out: &mut Out) -> Result<Next, Fault> {
        let completion = self.completion(view)?;
        let run = view.run().id;
        self.found = Some(run);
        Ok(Next::Call(match &self.operation {
            Operation::Retrieve => {
                self.write(&completion, out);
                return Ok(Next::Done);
            }
            Operation::Update(metadata) => Call::Tag(Target::Run(run), tags::replaced(&view.info.tags, metadata)),
            Operation::Delete => Call::Delete(Target::Run(run)),
            Operation::Messages(_) => attachment(run, MESSAGES),
        }))
    }

    fn write<T: Serialize + ?Sized>(&self, body: &T, out: &mut Out) {
        self.headers.apply(&mut out.head);
        out.json(body);
    }

    fn write_messages(&self, messages: &[(String, Json)], out: &mut Out) -> Result<(), Fault> {
        let Operation::Messages(Some(page)) = &self.operation else { return Err(Fault::unexpected_reply()) };
        let messages: Vec<Extra> = messages.first().and_then(|(_, list)| list.decode()).unwrap_or_default();
        let entries = messages.into_iter().enumerate().map(|(index, message)| stored_message(&self.id, index, message));
        let (entries, has_more) = page.cut(entries.collect(), |(id, _)| id)?;

        let (ids, data): (Vec<String>, Vec<Json>) = entries.into_iter().unzip();
        let [first, last] = [ids.first(), ids.last()].map(|id| id.map(String::as_str));
        self.write(&List::new(&data, first, last, has_more), out);
        Ok(())
    }
}

impl Exchange for StoredCompletion {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        request.param("id").clone_into(&mut self.id);
        let run = ids::parse_completion(&self.id).ok_or_else(|| not_found(&self.id))?;

        match &mut self.operation {
            Operation::Update(fields) => {
                let object = Node::parse_object(request.body)?;
                // Null is a value: it removes all metadata.
                if !object.iter().any(|(name, _)| name == "metadata") {
                    return Err(missing("metadata"));
                }
                *fields = metadata(&object)?;
            }
            Operation::Messages(page) => *page = Some(PageQuery::parse(request, true)?),
            Operation::Retrieve | Operation::Delete => {}
        }
        Ok(Call::Fetch(Target::Run(run)))
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match (reply, self.found) {
            (Reply::Run(view), None) => return self.proceed(view, out),
            (Reply::Run(view), Some(_)) => {
                let completion = self.completion(view)?;
                self.write(&completion, out);
            }
            (Reply::Done, Some(_)) => {
                self.write(&DeletionResponse { id: &self.id, object: "chat.completion.deleted", deleted: true }, out);
            }
            (Reply::Documents(messages), Some(_)) => self.write_messages(messages, out)?,
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let is_missing = fault.kind == FaultKind::NotFound && fault.field.is_none();
        let worded = if is_missing { not_found(&self.id) } else { fault.clone() };
        self.headers.write_error(&error(&worded), &worded, out);
    }
}

#[derive(Serialize)]
struct DeletionResponse<'a> {
    id: &'a str,
    object: &'static str,
    deleted: bool,
}

/// A message of the request with its id. Parts are in a field of their own, and `content` is always text.
fn stored_message(completion: &str, index: usize, message: Extra) -> (String, Json) {
    let id = format!("{completion}-{index}");
    let mut stored = Extra::new();
    stored.push("id", Json::from_serialize(&id));
    stored.merge(message);

    let parts = stored.get("content").filter(|content| content.text().starts_with('[')).cloned();
    if parts.is_some() || stored.get("content").is_none() {
        stored.set("content", Json::null());
    }
    stored.set("content_parts", parts.unwrap_or_else(Json::null));
    stored.set("id", Json::from_serialize(&id));
    (id, Json::from_serialize(&stored))
}
