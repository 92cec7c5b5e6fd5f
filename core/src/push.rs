//! Push delivery: the events of a run, sent as HTTP requests to receivers that clients have registered
//! (docs/protocols/a2a.md#push-notifications).
//!
//! Pure, like an [`crate::Exchange`]: a notifier produces the requests to send. The gateway sends them, retries, gives
//! up, and decides which addresses are allowed ([`crate::public_address`]).
//!
//! The gateway creates one [`PushNotifier`] for each document of [`PushNotifiers::collection`] whose key starts with
//! the run's id and a slash, and drives it like this:
//!
//! ```text
//! open(document) ─► skip(step)*      steps from before the document was created
//!                └► take(step)*      later steps, in order; its requests are sent before the next step is taken
//!                   flush            after `pause` without a step while `has_held`, and before giving up
//! ```

use std::time::Duration;

use crate::json::Json;
use crate::public_address::Policy;
use crate::step::Step;

/// The push delivery of a protocol.
pub struct PushNotifiers {
    /// The collection of documents that describe receivers. A document's key is the run's id (hyphenated), a slash, and
    /// a suffix that the adapter chooses.
    pub collection: &'static str,
    /// The allowed addresses. Checked when a document is created ([`crate::FaultKind::Invalid`], field `url`), and
    /// again before each connection.
    pub policy: Policy,
    /// Time for which a notifier may hold back small deltas, to send them together.
    pub pause: Duration,
    /// Creates the notifier of a document. `None`: the document has no receiver, or a disabled one.
    pub open: OpenNotifier,
    /// Disables a receiver after too many failed deliveries.
    pub disable: DisableReceiver,
}

/// Creates the notifier of a document.
pub type OpenNotifier = Box<dyn Fn(&Json) -> Option<Box<dyn PushNotifier>> + Send + Sync>;

/// Returns the document of a disabled receiver: unchanged for its owner, but [`PushNotifiers::open`] returns `None` for
/// it. Replacing the document enables the receiver again. `None`: the document has no receiver.
pub type DisableReceiver = Box<dyn Fn(&Json) -> Option<Json> + Send + Sync>;

/// Produces the requests for one receiver.
pub trait PushNotifier: Send + 'static {
    /// The receiver's URL, as the client wrote it.
    fn url(&self) -> &str;

    /// Processes a step without sending it, because it was delivered before.
    fn skip(&mut self, step: Step<'_>);

    /// Processes a step and appends the requests to send now, in order.
    fn take(&mut self, step: Step<'_>, requests: &mut Vec<PushRequest>);

    /// True while steps are held back.
    fn has_held(&self) -> bool;

    /// Appends requests for what is held back. `step` is the last step taken.
    fn flush(&mut self, step: Step<'_>, requests: &mut Vec<PushRequest>);
}

/// One POST request to a receiver. Any 2xx response acknowledges it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest {
    /// Headers, names in lower case. They may contain secrets of the client and are never logged.
    pub headers: Vec<(&'static str, String)>,
    /// Sent as it is; usually JSON.
    pub body: Vec<u8>,
}
