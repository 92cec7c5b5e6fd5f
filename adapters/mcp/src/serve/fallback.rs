//! Requests that match no endpoint: other methods, and paths below the mount point.

use std::sync::Arc;

use interlingua_core::{Call, Exchange, Fault, FaultKind, Out, Request};

use super::challenge;
use super::route::Route;
use super::shared::SharedState;

/// Answers every request with an error.
pub(crate) struct Fallback {
    shared: SharedState,
    head: challenge::RequestHead,
}

impl Fallback {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self { shared: SharedState::new(route), head: challenge::RequestHead::default() }
    }
}

impl Exchange for Fallback {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        self.head.read(request);
        Err(Fault::new(FaultKind::NoSuchPath, "no endpoint at this path"))
    }

    fn read_head(&mut self, request: &Request<'_>) {
        self.head.refused(request);
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        challenge::fail(&self.shared, &self.head, fault, out);
    }
}
