//! What calls are answered with.

use std::sync::Arc;

use interlingua_core::Json;
use interlingua_core::call::{Cursor, SessionPage, SessionView};
use interlingua_core::well_known::FetchedDocument;

use super::follow::Follower;
use super::handle::RunHandle;
use super::listener::Listener;
use super::lists::ListedRun;

/// The answer to a call.
pub enum Answer {
    /// Steps of a run.
    Steps {
        /// The position in the run.
        follower: Follower,
        /// True: begin with the present state of the run, and continue with new steps. False: begin with the first one.
        attach: bool,
    },
    /// A run.
    Run(RunHandle),
    /// A page of runs.
    Runs {
        /// The runs, each as it was at one moment.
        runs: Vec<ListedRun>,
        /// The number of matches on all pages.
        total: usize,
        /// Where the next page begins. `None`: this is the last one.
        next: Option<Cursor>,
    },
    /// The agents of the route.
    Agents,
    /// One session.
    Session(Vec<SessionView>),
    /// A page of sessions.
    Sessions(SessionPage),
    /// Notices that belong to no run.
    Notices(Listener),
    /// Documents of an adapter: key and value.
    Documents(Vec<(String, Json)>),
    /// A document that the agent's own server publishes about it. `None`: no such document is known.
    FetchedDocument(Option<Arc<FetchedDocument>>),
    /// The session waits for answers to the pending items of this run. The text is the reason why an answer in the
    /// request was not understood, if it has any.
    Waiting(RunHandle, Option<String>),
    /// It is done.
    Done,
}
