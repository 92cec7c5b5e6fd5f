//! The cached documents of one agent: those that clients see, and those that its connector looks up.
//!
//! Not here: fetching them ([`super::card`], [`super::lookup`]).

use std::sync::Arc;
use std::time::Duration;

use interlingua_core::well_known::FetchedDocument;

use crate::documents::{Documents, Times};
use crate::send_error::{RefusalDetails, SendError};

/// The most documents that are kept for an agent.
const MAX_DOCUMENTS: usize = 64;
/// The documents of an agent's server, by the paths where they may be found.
pub(super) type Cards = Documents<&'static [&'static str], Arc<FetchedDocument>, String>;

/// The number of protocols that publish documents.
const MAX_CARDS: usize = 16;

/// No documents yet. One that says the same as before keeps its date.
pub(super) fn no_cards() -> Cards {
    Documents::new(Times::DEFAULT, MAX_CARDS, |known, new| known.document == new.document)
}

/// A document, or its absence.
#[derive(Clone, Debug)]
pub(super) enum PublishedDocument {
    Document(Arc<[u8]>),
    Missing(RefusalDetails),
}

/// The documents of an agent that connectors look up, by endpoint and URL.
pub(super) type Lookups = Documents<(usize, String), PublishedDocument, SendError>;

/// No documents yet. `total`: how long a turn may take, which waits for the first fetch.
pub(super) fn no_lookups(total: Duration) -> Lookups {
    // Without a document a turn fails, so the next one asks again.
    let times = Times { first: total, fetch: total, pause_without: Duration::ZERO, ..Times::DEFAULT };
    Documents::new(times, MAX_DOCUMENTS, |_, _| false)
}
