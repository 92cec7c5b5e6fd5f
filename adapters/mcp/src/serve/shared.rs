//! The parts of a request that all operations of its exchange need.

use std::sync::Arc;

use interlingua_core::event::Millis;
use interlingua_core::{Request, RunId};

use super::route::Route;
use super::writer::Writer;
use crate::envelope::{ClientAbilities, RpcError};
use crate::result::ResultContext;
use crate::tokens::{Seals, SessionToken};

/// One request: its route, its client, and the writer of its response.
pub(super) struct SharedState {
    pub(super) route: Arc<Route>,
    pub(super) writer: Writer,
    pub(super) client: ClientAbilities,
    /// The session of the client. `None`: the request belongs to none.
    pub(super) session: Option<SessionToken>,
    /// True if this request began the session.
    pub(super) is_new_session: bool,
    /// The time of the request, then of the latest call of the exchange with a time.
    pub(super) now: Millis,
    /// The new id that the request came with.
    pub(super) new_id: Option<RunId>,
    seals: Option<Seals>,
    /// The error that the response shows, if the exchange has refused the request itself.
    pub(super) refusal: Option<RpcError>,
}

impl SharedState {
    pub(super) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            writer: Writer::new(),
            client: ClientAbilities::default(),
            session: None,
            is_new_session: false,
            now: 0,
            new_id: None,
            seals: None,
            refusal: None,
        }
    }

    /// Notes what the operations need of a request.
    pub(super) fn read(&mut self, request: &Request<'_>) {
        self.now = request.now;
        self.new_id = Some(request.new_id);
        self.seals = Some(Seals::from(request));
    }

    /// Seals tokens for the caller.
    ///
    /// # Panics
    /// The request was not read.
    pub(super) fn seals(&self) -> &Seals {
        self.seals.as_ref().expect("requests are read before they are answered")
    }

    /// The route and the client of a result.
    pub(super) fn result_context(&self) -> ResultContext<'_> {
        ResultContext {
            options: &self.route.options,
            revision: self.writer.revision,
            resources: self.route.options.resources,
        }
    }

    /// True if the client can be asked on the stream of its call.
    pub(super) fn asks_on_stream(&self) -> bool {
        !self.writer.revision.is_modern()
            && self.session.is_some()
            && self.writer.has_events()
            && (self.client.modes.form || self.client.modes.url)
    }

    /// True if a result can ask the client, which then makes the same call again.
    pub(super) fn asks_by_result(&self) -> bool {
        self.writer.revision.is_modern() && (self.client.modes.form || self.client.modes.url)
    }
}
