//! Conversations and their items (sections 1 and 12): sessions of the engine, with this protocol's metadata as a label.
//!
//! Only sessions that were made here are conversations: a session of another protocol has no such label and is not
//! there. What is said in a run of a conversation, the engine appends.

use std::sync::Arc;

use interlingua_core::call::{SessionCall, SessionView};
use interlingua_core::exchange::{Exchange, Flow};
use interlingua_core::model::Message;
use interlingua_core::tree::Node;
use interlingua_core::{Call, Extra, Fault, Json, Next, Out, Reply, Request, Step};
use serde::{Deserialize, Serialize};

use super::context::label;
use super::items::{Showing, Shown};
use super::page::Page;
use super::{Address, Shared, astray, told_of};
use crate::decode::{Entry, metadata, read_items};
use crate::echo::Echo;
use crate::fault::{missing, not_found};
use crate::ids;
use crate::wire::{self, Deleted};

/// The most items one request may add.
const MAX_ITEMS: usize = 20;

/// What is asked of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
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

/// One request about a conversation.
pub(crate) struct Conversations {
    shared: Arc<Shared>,
    asked: Asked,
    address: Address,
    id: String,
    item: String,
    page: Page,
    /// What is put there once the conversation was found.
    label: Option<Label>,
    items: Vec<Message>,
    /// How many items this request adds.
    added: usize,
    /// How many stored messages are looked at.
    least: usize,
    /// Items that are still to be taken out: an `mcp_call` is two.
    removing: Vec<String>,
    /// Whether the conversation was found, and what was asked is under way.
    acting: bool,
}

impl Conversations {
    pub(crate) fn new(shared: Arc<Shared>, asked: Asked) -> Self {
        Self {
            shared,
            asked,
            address: Address::default(),
            id: String::new(),
            item: String::new(),
            page: Page::default(),
            label: None,
            items: Vec::new(),
            added: 0,
            least: 0,
            removing: Vec::new(),
            acting: false,
        }
    }

    /// Items as they are kept: each with an id.
    fn read_items(&self, node: &Node<'_>, request: &Request<'_>) -> Result<Vec<Message>, Fault> {
        let entries = read_items(node, &self.shared.options, &Echo::default())?;
        if entries.len() > MAX_ITEMS {
            return Err(node.invalid(format!("must have at most {MAX_ITEMS} items")));
        }
        let mut messages = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let mut message = match entry {
                Entry::Said(message) | Entry::Returned { message, .. } => message,
                Entry::Reference { path, .. } => {
                    return Err(Fault::invalid(path, "a reference cannot be put into a conversation"));
                }
            };
            if message.id.is_none() {
                message.id = Some(ids::output(ids::prefix(&message.kind), request.fresh, index, 0));
            }
            messages.push(message);
        }
        Ok(messages)
    }

    fn body(&mut self, request: &Request<'_>) -> Result<(), Fault> {
        // All fields are optional, and some clients send no body at all.
        if request.body.is_empty() && self.asked == Asked::Create {
            self.label = Some(Label::default());
            return Ok(());
        }
        let object = Node::parse_object(request.body)?;
        match self.asked {
            Asked::Create => {
                self.label = Some(Label { metadata: metadata(&object)? });
                if let Some(node) = object.get("items") {
                    self.items = self.read_items(&node, request)?;
                }
            }
            Asked::Update => {
                if !object.has("metadata") {
                    return Err(missing("metadata"));
                }
                self.label = Some(Label { metadata: metadata(&object)? });
            }
            Asked::Append => {
                let node = object.get("items").ok_or_else(|| missing("items"))?;
                self.items = self.read_items(&node, request)?;
                self.added = self.items.len();
            }
            _ => {}
        }
        Ok(())
    }

    /// The end of the conversation that the page begins at.
    fn part(&self) -> Call {
        let newest = !self.page.is_ascending();
        Call::Session(SessionCall::Part { session: self.id.clone(), newest, least: self.least })
    }

    fn labels(&self) -> Extra {
        let mut labels = Extra::new();
        labels.push(crate::NAME, Json::from_serialize(&self.label.clone().unwrap_or_default()));
        labels
    }

    fn shown(&self, view: &SessionView) -> Vec<Shown> {
        let messages: Vec<_> = view.items.iter().map(|item| (ids::of_session(item), item.message.clone())).collect();
        let showing = Showing {
            request_input: &self.shared.options.request_input,
            server_label: self.shared.server_label(&view.agent),
        };
        showing.items(&messages)
    }

    fn conversation(&self, view: &SessionView, label: &Label, out: &mut Out) {
        self.address.on(&mut out.head);
        out.json(&wire::Conversation {
            id: &view.id,
            object: "conversation",
            created_at: view.created_at / 1000,
            metadata: &Json::from_serialize(&label.metadata),
        });
    }

    /// What to do with a conversation that was found.
    fn act(&mut self, view: &SessionView, out: &mut Out) -> Result<Next, Fault> {
        let label: Label = label(view).and_then(Json::decode).ok_or_else(|| not_found("Conversation", &self.id))?;
        let session = self.id.clone();
        self.acting = true;
        Ok(Next::Call(Call::Session(match self.asked {
            Asked::Create | Asked::Read => {
                self.conversation(view, &label, out);
                return Ok(Next::Done);
            }
            Asked::List => {
                let shown = self.shown(view);
                if view.items.len() >= self.least && !self.page.is_served_by(&shown) {
                    self.acting = false;
                    self.least = self.least.saturating_mul(4);
                    return Ok(Next::Call(self.part()));
                }
                self.address.on(&mut out.head);
                self.page.write(shown, out)?;
                return Ok(Next::Done);
            }
            Asked::Item => {
                let found = self.shown(view).into_iter().find(|item| item.id == self.item);
                let found = found.ok_or_else(|| not_found("Item", &self.item))?;
                self.address.on(&mut out.head);
                out.json(&found.json);
                return Ok(Next::Done);
            }
            Asked::Update => SessionCall::Label { session, labels: self.labels() },
            Asked::Delete => SessionCall::Delete { session },
            Asked::Append => SessionCall::Append { session, items: std::mem::take(&mut self.items) },
            Asked::Remove => {
                let found = self.shown(view).into_iter().find(|item| item.id == self.item);
                let found = found.ok_or_else(|| not_found("Item", &self.item))?;
                let stored = |place: usize| view.items.get(place).map(|item| item.id.clone());
                self.removing.extend(found.also.and_then(stored));
                SessionCall::Remove { session, item: stored(found.place).unwrap_or(found.id) }
            }
        })))
    }

    /// What was asked is done.
    fn done(&mut self, view: Option<&SessionView>, out: &mut Out) -> Result<Next, Fault> {
        if let Some(item) = self.removing.pop() {
            return Ok(Next::Call(Call::Session(SessionCall::Remove { session: self.id.clone(), item })));
        }
        match (self.asked, view) {
            (Asked::Delete, _) => {
                self.address.on(&mut out.head);
                out.json(&Deleted { id: &self.id, object: "conversation.deleted", deleted: true });
            }
            (Asked::Update | Asked::Remove | Asked::Create, Some(view)) => {
                let label = self.label.clone().or_else(|| label(view)?.decode()).unwrap_or_default();
                self.conversation(view, &label, out);
            }
            (Asked::Append, Some(view)) => {
                let added = view.items.len().saturating_sub(self.added);
                let added = SessionView { items: view.items[added..].to_vec(), ..view.clone() };
                self.address.on(&mut out.head);
                Page::whole().write(self.shown(&added), out)?;
            }
            // Done, and nothing to show: it is looked at once more.
            (_, None) => return Ok(Next::Call(Call::Session(SessionCall::Look { session: self.id.clone() }))),
            _ => return Err(astray()),
        }
        Ok(Next::Done)
    }
}

impl Exchange for Conversations {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.address = Address::of(request);
        request.param("item").clone_into(&mut self.item);
        request.param("id").clone_into(&mut self.id);
        if matches!(self.asked, Asked::Create | Asked::Update | Asked::Append) {
            self.body(request)?;
        }
        if self.asked == Asked::Create {
            self.id = request.fresh.to_prefixed(ids::CONVERSATION);
            self.acting = true;
            let agent = self.shared.agents.first().map(|agent| agent.name.clone()).unwrap_or_default();
            let items = std::mem::take(&mut self.items);
            let (session, labels) = (self.id.clone(), self.labels());
            return Ok(Call::Session(SessionCall::Create { agent, session, items, labels }));
        }
        if !ids::is_conversation(&self.id) {
            return Err(not_found("Conversation", &self.id));
        }
        if self.asked == Asked::List {
            self.page = Page::read(request)?;
            self.least = self.page.messages();
        }
        Ok(match self.asked {
            // Any of them may be the one.
            Asked::Item | Asked::Remove => Call::Session(SessionCall::Look { session: self.id.clone() }),
            _ => self.part(),
        })
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        match reply {
            Reply::Session([view, ..]) if self.acting => self.done(Some(view), out),
            Reply::Done if self.acting => self.done(None, out),
            Reply::Session([view, ..]) => self.act(view, out),
            Reply::Session([]) => Err(not_found("Conversation", &self.id)),
            _ => Err(astray()),
        }
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        self.address.refuse(&told_of(fault, "Conversation", &self.id), out);
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}
