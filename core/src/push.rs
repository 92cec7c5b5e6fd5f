//! Delivery without a request: what happens in a run, as requests to places that clients have named (A2A page,
//! section 11).
//!
//! Pure, like an [`crate::Exchange`]: a notifier says what has to be sent. Sending, waiting, trying again and giving up
//! are the gateway's, and so is judging where it may send to ([`crate::public_address`]).
//!
//! How the gateway drives a [`PushNotifier`], one for each document of [`PushNotifiers::collection`] whose key begins with the
//! id of the run and a slash:
//!
//! ```text
//! open(document) ─► pass(step)*      steps that were told before the document was put there
//!                └► take(step)*      the others, in order; what it writes is sent before more is taken
//!                   flush            when nothing was taken for `pause` after `is_holding`, and before giving up
//! ```

use std::time::Duration;

use crate::event::Step;
use crate::json::Json;
use crate::public_address::Policy;

/// What a protocol delivers without being asked.
pub struct PushNotifiers {
    /// The collection of documents that name the places. A document's key is the run's id (hyphenated), a slash, and
    /// whatever the adapter likes.
    pub collection: &'static str,
    /// Which places may be named. Judged when a document is put there ([`crate::FaultKind::Invalid`], field `url`),
    /// and again before each connection.
    pub policy: Policy,
    /// For how long a notifier may hold small pieces back to send them together.
    pub pause: Duration,
    /// Makes the notifier of a document. None: the document names no place, or one that was given up.
    pub open: OpenNotifier,
    /// Gives a place up that failed too often.
    pub give_up: DisableReceiver,
}

/// Makes the notifier of a document.
pub type OpenNotifier = Box<dyn Fn(&Json) -> Option<Box<dyn PushNotifier>> + Send + Sync>;

/// What the document becomes of a place that is told nothing more: the same for its owner, nothing for
/// [`PushNotifiers::open`]. A document that is put in its place names a place again. None: it names none.
pub type DisableReceiver = Box<dyn Fn(&Json) -> Option<Json> + Send + Sync>;

/// Says what has to be sent to one place.
pub trait PushNotifier: Send + 'static {
    /// Where to, as the client wrote it.
    fn url(&self) -> &str;

    /// Learns of a step that is not to be sent: it was told before.
    fn skip(&mut self, step: Step<'_>);

    /// Takes a step; writes what has to be sent now, in order.
    fn take(&mut self, step: Step<'_>, parcels: &mut Vec<PushRequest>);

    /// True while it holds something back.
    fn has_held(&self) -> bool;

    /// Writes what it holds back. `step` is the last one it took.
    fn flush(&mut self, step: Step<'_>, parcels: &mut Vec<PushRequest>);
}

/// One request to be sent: a POST. Any 2xx says that it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest {
    /// Headers, names in lower case. They may hold secrets of the client: never logged.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}
