//! Conversations and their items (docs/protocols/responses.md#state): sessions of the engine, with this protocol's
//! metadata as a label.
//!
//! Only sessions created here are conversations. A session of another protocol has no such label and is not found. The
//! engine appends the messages of the runs in a conversation.

use std::sync::Arc;

use interlingua_adapter_kit::openai_api::ResponseHeaders;
use interlingua_adapter_kit::openai_error::missing;
use interlingua_core::call::{SessionCall, SessionView};
use interlingua_core::exchange::Exchange;
use interlingua_core::model::Message;
use interlingua_core::tree::Node;
use interlingua_core::{Call, Extra, Fault, Json, Next, Out, Reply, Request};
use serde::{Deserialize, Serialize};

use super::context::conversation_label;
use super::items::{ItemRenderer, RenderedItem};
use super::page::Page;
use super::{MountedRoute, with_openai_wording};
use crate::decode::{InputEntry, metadata, parse_items};
use crate::echo::Echo;
use crate::fault::{self, not_found};
use crate::ids;
use crate::wire::{self, DeletionResponse};

/// Maximum number of items one request may add.
const MAX_ITEMS: usize = 20;

/// The operation of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `POST /conversations`
    Create,
    /// `GET /conversations/{id}`
    Read,
    /// `POST /conversations/{id}`
    Update,
    /// `DELETE /conversations/{id}`
    Delete,
    /// `GET /conversations/{id}/items`
    List,
    /// `POST /conversations/{id}/items`
    Append,
    /// `GET /conversations/{id}/items/{item}`
    Item,
    /// `DELETE /conversations/{id}/items/{item}`
    Remove,
}

/// The label on the session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Label {
    metadata: Extra,
}

/// A request about a conversation.
pub(crate) struct Conversations {
    shared: Arc<MountedRoute>,
    operation: Operation,
    headers: ResponseHeaders,
    id: String,
    item: String,
    page: Page,
    /// The new label of the conversation, if the request has one.
    label: Option<Label>,
    /// Items to add.
    items: Vec<Message>,
    /// Number of items this request adds.
    added_count: usize,
    /// Minimum number of stored messages to read for a page.
    min_messages: usize,
    /// Stored messages still to be removed. An `mcp_call` consists of two.
    removing: Vec<String>,
    /// True once the conversation was found and the operation was sent to the engine.
    in_progress: bool,
}

impl Conversations {
    pub(crate) fn new(shared: Arc<MountedRoute>, operation: Operation) -> Self {
        Self {
            shared,
            operation,
            headers: ResponseHeaders::default(),
            id: String::new(),
            item: String::new(),
            page: Page::default(),
            label: None,
            items: Vec::new(),
            added_count: 0,
            min_messages: 0,
            removing: Vec::new(),
            in_progress: false,
        }
    }

    /// Parses items. Each gets an id if it has none.
    fn parse_items(&self, node: &Node<'_>, request: &Request<'_>) -> Result<Vec<Message>, Fault> {
        let entries = parse_items(node, &self.shared.options, &Echo::default())?;
        if entries.len() > MAX_ITEMS {
            return Err(node.invalid(format!("must have at most {MAX_ITEMS} items")));
        }

        let mut messages = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let mut message = match entry {
                InputEntry::Message(message) | InputEntry::ToolOutput { message, .. } => message,
                InputEntry::Reference { path, .. } => {
                    return Err(Fault::invalid(path, "item references cannot be added to a conversation"));
                }
            };
            if message.id.is_none() {
                message.id = Some(ids::output_item_id(ids::item_prefix(&message.kind), request.new_id, index, 0));
            }
            messages.push(message);
        }
        Ok(messages)
    }

    fn parse_body(&mut self, request: &Request<'_>) -> Result<(), Fault> {
        // All fields are optional, and some clients send no body.
        if request.body.is_empty() && self.operation == Operation::Create {
            self.label = Some(Label::default());
            return Ok(());
        }

        let object = Node::parse_object(request.body)?;
        match self.operation {
            Operation::Create => {
                self.label = Some(Label { metadata: metadata(&object)? });
                if let Some(node) = object.get("items") {
                    self.items = self.parse_items(&node, request)?;
                }
            }
            Operation::Update => {
                if !object.has("metadata") {
                    return Err(missing("metadata"));
                }
                self.label = Some(Label { metadata: metadata(&object)? });
            }
            Operation::Append => {
                let node = object.get("items").ok_or_else(|| missing("items"))?;
                self.items = self.parse_items(&node, request)?;
                self.added_count = self.items.len();
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the end of the conversation at which the page begins.
    fn read_part(&self) -> Call {
        let newest = !self.page.is_ascending();
        Call::Session(SessionCall::GetPart { session: self.id.clone(), newest, least: self.min_messages })
    }

    fn labels(&self) -> Extra {
        let mut labels = Extra::new();
        labels.push(ids::NAME, Json::from_serialize(&self.label.clone().unwrap_or_default()));
        labels
    }

    fn render(&self, view: &SessionView) -> Vec<RenderedItem> {
        let messages: Vec<_> =
            view.items.iter().map(|item| (ids::session_item_id(item), item.message.clone())).collect();

        let renderer = ItemRenderer {
            request_input: &self.shared.options.request_input,
            server_label: self.shared.names.server_label(&view.agent),
        };
        renderer.render(&messages)
    }

    fn conversation(&self, view: &SessionView, label: &Label, out: &mut Out) {
        self.headers.apply(&mut out.head);
        out.json(&wire::Conversation {
            id: &view.id,
            object: "conversation",
            created_at: view.created_at / 1000,
            metadata: &Json::from_serialize(&label.metadata),
        });
    }

    /// Starts the operation on the conversation that was found.
    fn start(&mut self, view: &SessionView, out: &mut Out) -> Result<Next, Fault> {
        let label: Label =
            conversation_label(view).and_then(Json::decode).ok_or_else(|| not_found("Conversation", &self.id))?;

        let session = self.id.clone();
        self.in_progress = true;
        Ok(Next::Call(Call::Session(match self.operation {
            Operation::Create | Operation::Read => {
                self.conversation(view, &label, out);
                return Ok(Next::Done);
            }
            Operation::List => {
                let items = self.render(view);
                if view.items.len() >= self.min_messages && !self.page.is_covered_by(&items) {
                    // The page needs more messages than were read.
                    self.in_progress = false;
                    self.min_messages = self.min_messages.saturating_mul(4);
                    return Ok(Next::Call(self.read_part()));
                }
                self.headers.apply(&mut out.head);
                self.page.write(items, out)?;
                return Ok(Next::Done);
            }
            Operation::Item => {
                let found = self.render(view).into_iter().find(|item| item.id == self.item);
                let found = found.ok_or_else(|| not_found("Item", &self.item))?;
                self.headers.apply(&mut out.head);
                out.json(&found.json);
                return Ok(Next::Done);
            }
            Operation::Update => SessionCall::Label { session, labels: self.labels() },
            Operation::Delete => SessionCall::Delete { session },
            Operation::Append => SessionCall::Append { session, items: std::mem::take(&mut self.items) },
            Operation::Remove => {
                let found = self.render(view).into_iter().find(|item| item.id == self.item);
                let found = found.ok_or_else(|| not_found("Item", &self.item))?;
                let stored = |index: usize| view.items.get(index).map(|item| item.id.clone());
                self.removing.extend(found.output_index.and_then(stored));
                SessionCall::Remove { session, item: stored(found.index).unwrap_or(found.id) }
            }
        })))
    }

    /// The engine has finished the operation.
    fn finish(&mut self, view: Option<&SessionView>, out: &mut Out) -> Result<Next, Fault> {
        if let Some(item) = self.removing.pop() {
            return Ok(Next::Call(Call::Session(SessionCall::Remove { session: self.id.clone(), item })));
        }
        match (self.operation, view) {
            (Operation::Delete, _) => {
                self.headers.apply(&mut out.head);
                out.json(&DeletionResponse { id: &self.id, object: "conversation.deleted", deleted: true });
            }
            (Operation::Update | Operation::Remove | Operation::Create, Some(view)) => {
                let label = self.label.clone().or_else(|| conversation_label(view)?.decode()).unwrap_or_default();
                self.conversation(view, &label, out);
            }
            (Operation::Append, Some(view)) => {
                let start = view.items.len().saturating_sub(self.added_count);
                let added = SessionView { items: view.items[start..].to_vec(), ..view.clone() };
                self.headers.apply(&mut out.head);
                Page::all().write(self.render(&added), out)?;
            }
            // The engine returned no conversation: it is read again for the reply.
            (_, None) => return Ok(Next::Call(Call::Session(SessionCall::Get { session: self.id.clone() }))),
            _ => return Err(Fault::unexpected_reply()),
        }
        Ok(Next::Done)
    }
}

impl Exchange for Conversations {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.headers = ResponseHeaders::for_request(request);
        request.param("item").clone_into(&mut self.item);
        request.param("id").clone_into(&mut self.id);
        if matches!(self.operation, Operation::Create | Operation::Update | Operation::Append) {
            self.parse_body(request)?;
        }
        if self.operation == Operation::Create {
            self.id = request.new_id.to_prefixed(ids::CONVERSATION_PREFIX);
            self.in_progress = true;
            let agent = self.shared.names.agents().first().map(|agent| agent.name.clone()).unwrap_or_default();

            let items = std::mem::take(&mut self.items);
            let (session, labels) = (self.id.clone(), self.labels());
            return Ok(Call::Session(SessionCall::Create { agent, session, items, labels }));
        }

        if !ids::is_conversation(&self.id) {
            return Err(not_found("Conversation", &self.id));
        }
        if self.operation == Operation::List {
            self.page = Page::parse(request)?;
            self.min_messages = self.page.initial_message_count();
        }
        Ok(match self.operation {
            // The item may be any of them.
            Operation::Item | Operation::Remove => Call::Session(SessionCall::Get { session: self.id.clone() }),
            _ => self.read_part(),
        })
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Session([view, ..]) if self.in_progress => self.finish(Some(view), out),
            Reply::Done if self.in_progress => self.finish(None, out),
            Reply::Session([view, ..]) => self.start(view, out),
            Reply::Session([]) => Err(not_found("Conversation", &self.id)),
            _ => Err(Fault::unexpected_reply()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let fault = with_openai_wording(fault, "Conversation", &self.id);
        self.headers.write_error(&fault::error(&fault), &fault, out);
    }
}
