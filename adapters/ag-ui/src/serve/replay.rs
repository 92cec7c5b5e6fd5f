//! `GET`: the stream of a run, from its beginning or from the point of a broken connection
//! (docs/protocols/ag-ui.md#resuming).
//!
//! Clients name a run by the id they chose when they started it, so the run is searched among the runs of its thread.
//! Runs that another protocol started have the gateway's id. If clients receive the whole conversation, the messages
//! before the run are loaded too.

use std::sync::Arc;

use interlingua_core::call::{Cursor, Filter, Page, RunView, SessionCall, SessionItem, SessionView, Target};
use interlingua_core::exchange::{Flow, Next};
use interlingua_core::loss::Loss;
use interlingua_core::model::Message;
use interlingua_core::out::Head;
use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Reply, Request, RunId, Step};

use super::encode::{Encoder, snapshot};
use super::thread::Labels;
use super::writer::Format;
use super::{Route, fault};

/// Maximum number of pages of a thread's runs that are searched: clients resume recent runs.
const MAX_PAGES: u32 = 10;
/// Runs on a page.
const PAGE: usize = 50;

/// The search for a run by the client's names, and for the messages before it.
#[derive(Debug)]
pub(super) struct Search {
    thread: String,
    run: String,
    pages: u32,
    cursor: Option<Cursor>,
    /// The run, once it is found.
    found: Option<RunId>,
}

impl Search {
    pub(super) const fn new(thread: String, run: String) -> Self {
        Self { thread, run, pages: 0, cursor: None, found: None }
    }

    /// The number of an event.
    pub(super) fn number(field: &str, text: &str) -> Result<u64, Fault> {
        text.trim().parse().map_err(|_| Fault::invalid(field, format!("'{text}' is no number of an event")))
    }

    /// Asks for a page of the thread's runs.
    pub(super) fn call(&self) -> Call {
        Call::List(Filter {
            session: Some(self.thread.clone()),
            limit: PAGE,
            cursor: self.cursor,
            heads: true,
            ..Filter::default()
        })
    }

    /// The call after a reply.
    ///
    /// # Errors
    /// The thread has no such run, or the reply does not belong to a call of the search.
    pub(super) fn next(&mut self, reply: &Reply<'_>, encoder: &mut Encoder) -> Result<Call, Fault> {
        match (reply, self.found) {
            (Reply::Runs(page), None) => self.look(page, encoder),
            (Reply::Session([session]), Some(run)) => {
                encoder.conversation = Some(messages_before(session, run));
                Ok(Call::Follow(Target::Run(run)))
            }
            _ => Err(fault::unexpected(reply)),
        }
    }

    /// The call after a call for something that does not exist: the run is followed if only its conversation is
    /// missing.
    pub(super) fn without_conversation(&self, encoder: &mut Encoder) -> Option<Call> {
        encoder.conversation = Some(Vec::new());
        self.found.map(|run| Call::Follow(Target::Run(run)))
    }

    /// Looks for the run on a page.
    fn look(&mut self, page: &Page<'_>, encoder: &Encoder) -> Result<Call, Fault> {
        let id = RunId::parse(&self.run);
        let is_it = |view: &&RunView<'_>| Labels::from_view(view).run == self.run || id == Some(view.run().id);
        if let Some(found) = page.runs.iter().find(is_it) {
            let run = found.run().id;
            if !encoder.shows_conversation() {
                return Ok(Call::Follow(Target::Run(run)));
            }
            self.found = Some(run);
            return Ok(Call::Session(SessionCall::Get { session: self.thread.clone() }));
        }
        self.pages += 1;
        self.cursor = page.next;
        if self.cursor.is_none() || self.pages >= MAX_PAGES {
            return Err(unknown_run(&self.run));
        }
        Ok(self.call())
    }
}

/// The messages of a conversation before those of a run.
fn messages_before(session: &SessionView, run: RunId) -> Vec<Message> {
    let items = &session.items;
    let first = items.iter().position(|item| item.run == Some(run));
    // A run that was cancelled has no items. Ids of runs are nearly ordered by time.
    let is_later = |item: &SessionItem| item.run.is_some_and(|of| of > run);
    let end = first.or_else(|| items.iter().position(is_later)).unwrap_or(items.len());
    snapshot::snapshot_messages(&session.items[..end])
}

/// A fault that a run of this name does not exist for this caller.
fn unknown_run(run: &str) -> Fault {
    Fault::new(FaultKind::NotFound, format!("the thread has no run '{run}'")).with_field("runId")
}

/// One request and its stream.
pub(super) struct Replay {
    encoder: Encoder,
    has_protobuf: bool,
    search: Option<Search>,
}

impl Replay {
    pub(super) fn new(route: &Arc<Route>) -> Self {
        Self { encoder: Encoder::new(route), has_protobuf: route.options.protobuf.0, search: None }
    }
}

impl Exchange for Replay {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let query =
            |names: [&str; 2]| names.into_iter().find_map(|name| request.query(name)).filter(|id| !id.is_empty());
        let (Some(thread), Some(run)) = (query(["threadId", "thread_id"]), query(["runId", "run_id"])) else {
            let mut fault = Fault::new(
                FaultKind::MethodNotAllowed,
                "runs are started by POST; GET takes the stream of ?threadId=…&runId=… up again",
            );
            fault.allow = vec!["POST"];
            return Err(fault);
        };

        self.encoder.writer.format = Format::choose(request.header("accept"), self.has_protobuf)?;
        // A browser that reconnects sends the header in addition to its original query: the header is newer.
        let header = request.header("last-event-id").filter(|id| !id.is_empty());
        let after = header.map(Into::into).or_else(|| request.query("after")).filter(|after| !after.is_empty());
        if let Some(after) = after {
            self.encoder.writer.skip_to(Search::number("?after", &after)?);
        }
        let search = Search::new(thread.into_owned(), run.into_owned());
        let call = search.call();
        self.search = Some(search);
        Ok(call)
    }

    fn reply(&mut self, reply: Reply<'_>, _: &mut Out) -> Result<Next, Fault> {
        let Some(search) = self.search.as_mut() else { return Err(fault::unexpected(&reply)) };
        search.next(&reply, &mut self.encoder).map(Next::Call)
    }

    fn on_not_found(&mut self, _: &Fault) -> Option<Call> {
        self.search.take()?.without_conversation(&mut self.encoder)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        fault::write(fault, out);
    }

    fn head(&mut self, head: &mut Head) {
        self.encoder.writer.head(head);
    }

    fn resumes(&self) -> bool {
        self.encoder.writer.skips()
    }

    fn begin(&mut self, run: RunView<'_>, _: &mut Out) {
        self.encoder.begin(&run);
    }

    fn encode(&mut self, step: Step<'_>, out: &mut Out) -> Flow {
        self.encoder.encode(step, out)
    }

    fn pause(&mut self, run: RunView<'_>, out: &mut Out) -> Flow {
        self.encoder.pause(run.run(), out)
    }

    // An interruption writes no event: the client reconnects for the rest, and the number belongs to another event.

    fn heartbeat(&mut self, out: &mut Out) {
        self.encoder.writer.heartbeat(out);
    }

    fn losses(&self) -> &[Loss] {
        self.encoder.losses()
    }
}
