//! What calls are answered with.

use std::sync::Arc;

use interlingua_core::Json;
use interlingua_core::call::{Cursor, SessionPage, SessionView};
use interlingua_core::well_known::FetchedDocument;

use super::follow::Follower;
use super::handle::RunHandle;
use super::listener::Listener;
use super::lists::ListedRun;

/// What a call is answered with.
pub enum Answer {
    /// Steps of a run.
    Steps {
        /// The position in the run.
        follower: Follower,
        /// True: begin with the run as it stands, and go on from there. False: begin with the first step.
        attach: bool,
    },
    /// A run.
    Run(RunHandle),
    /// A page of runs.
    Runs {
        /// The runs, each as it was at one moment.
        runs: Vec<ListedRun>,
        /// How many match on all pages.
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
    /// What an agent's own server publishes about it. `None`: nothing that is known.
    FetchedDocument(Option<Arc<FetchedDocument>>),
    /// The session waits for answers first, to what this run asked; and why it asks again, if the request says
    /// anything.
    Waiting(RunHandle, Option<String>),
    /// It is done.
    Done,
}
