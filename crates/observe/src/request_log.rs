//! The record of one request and of the turn it began: written when its last owner drops it.
//!
//! The body of the response and the turn share it, so that one line describes both, whichever ends later.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use interlingua_core::filter::truncated;
use interlingua_core::loss::Loss;

use super::audit::{Action, AuditEntry};
use super::observer::Observer;
use super::parts::{RequestParts, ServerSpan, TurnPart};
use interlingua_base::clock;

/// Maximum length of a logged path, in bytes.
const MAX_PATH: usize = 512;

/// A request under way.
pub struct RequestLog {
    observer: Arc<Observer>,
    started: Instant,
    parts: Mutex<RequestParts>,
}

impl RequestLog {
    /// A request that begins now. A new id is made unless a trusted proxy has sent one.
    #[must_use]
    pub fn begin(observer: Arc<Observer>, method: &str, path: &str, id: Option<String>) -> Arc<Self> {
        let started = Instant::now();
        let parts = RequestParts {
            at: clock::now(),
            started: Some(started),
            id: id.unwrap_or_else(|| clock::new_id().to_prefixed("req_")),
            method: method.to_owned(),
            path: truncated(path, MAX_PATH).to_owned(),
            ..RequestParts::default()
        };
        Arc::new(Self { observer, started, parts: Mutex::new(parts) })
    }

    /// Begins the span of the request, if requests are traced. `client`: the trace and the span of the client, and
    /// whether it records them, which decides for ours too.
    pub fn trace(&self, client: impl FnOnce() -> Option<(u128, u64, bool)>) {
        if let Some(sample) = self.observer.sample() {
            self.parts().span = Some(ServerSpan::begin(client(), sample));
        }
    }

    /// The span of the request. `None`: requests are not traced.
    #[must_use]
    pub fn span(&self) -> Option<ServerSpan> {
        self.parts().span
    }

    /// True if its span is sent to a collector.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.span().is_some_and(|span| span.sampled)
    }

    /// True if the request is logged, or sent to a collector. Otherwise only its counters and its losses are used.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.observer.wants_requests()
    }

    /// Whether its span is sent to a collector with messages.
    #[must_use]
    pub fn wants_content(&self) -> bool {
        self.observer.wants_content() && self.is_sampled()
    }

    /// Sets the version of HTTP, and whether the connection uses TLS.
    pub fn set_connection(&self, version: &'static str, is_secure: bool) {
        let mut parts = self.parts();
        parts.version = version;
        parts.is_secure = is_secure;
    }

    /// A request within this one's connection: a message of a WebSocket.
    #[must_use]
    pub fn message(&self, method: &str) -> Arc<Self> {
        let (started, sample) = (Instant::now(), self.observer.sample());
        let parts = self.parts();
        let parts = RequestParts {
            at: clock::now(),
            started: Some(started),
            id: clock::new_id().to_prefixed("req_"),
            method: method.to_owned(),
            path: parts.path.clone(),
            client: parts.client,
            route: parts.route.clone(),
            endpoint: parts.endpoint,
            version: parts.version,
            is_secure: parts.is_secure,
            span: parts.span.zip(sample).map(|(span, sample)| span.message(sample)),
            protocol: parts.protocol,
            caller: parts.caller.clone(),
            ..RequestParts::default()
        };
        Arc::new(Self { observer: Arc::clone(&self.observer), started, parts: Mutex::new(parts) })
    }

    fn parts(&self) -> MutexGuard<'_, RequestParts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> String {
        self.parts().id.clone()
    }

    /// The id that a protocol has given it, which its client knows.
    pub fn set_id(&self, id: &str) {
        self.parts().id = id.to_owned();
    }

    /// Sets the client's address.
    pub fn set_client(&self, address: IpAddr) {
        self.parts().client = Some(address);
    }

    /// Where it was routed to. `endpoint`: the path below the route, as the protocol names it.
    pub fn set_route(&self, route: &Arc<str>, protocol: &'static str, endpoint: &'static str) {
        let mut parts = self.parts();
        parts.route = Some(Arc::clone(route));
        parts.protocol = protocol;
        parts.endpoint = endpoint;
    }

    /// The caller whose credentials it has.
    pub fn set_caller(&self, caller: &Arc<str>) {
        self.parts().caller = Some(Arc::clone(caller));
    }

    /// Why it failed, and whose failure that is.
    pub fn set_fault(&self, code: &str, blame: &'static str) {
        let mut parts = self.parts();
        parts.code = Some(code.to_owned());
        parts.blame = Some(blame);
    }

    /// Counts that its credentials were refused, and notes it in the audit log.
    pub fn credentials_refused(&self, reason: &'static str) {
        self.observer.metrics().auth_failed(reason);
        let path = self.parts().path.clone();
        self.audit(AuditEntry::new(Action::CredentialRefused).target(path).detail(reason));
    }

    /// Counts that it exceeded a limit.
    pub fn limited(&self, limit: &'static str) {
        self.observer.metrics().limited(limit);
    }

    /// The status of its answer.
    pub fn set_status(&self, status: u16) {
        self.parts().status = status;
    }

    /// Counts bytes of its body.
    pub fn received(&self, bytes: u64) {
        self.parts().bytes_in += bytes;
    }

    /// Counts bytes of its answer.
    pub fn sent(&self, bytes: u64) {
        self.parts().bytes_out += bytes;
    }

    /// Records the end of its answer, with its length in bytes. `complete` is false if the client disconnected before.
    pub fn record_end(&self, bytes: u64, complete: bool) {
        let took = self.started.elapsed();
        let mut parts = self.parts();
        parts.bytes_out += bytes;
        parts.took = Some(took);
        parts.client_left |= !complete;
    }

    /// Records the content of the request that is not passed on, and the content of the answer that its response does
    /// not show. Ignored unless the request began a turn.
    pub fn set_losses(&self, losses: &[Loss]) {
        if !losses.is_empty() {
            self.parts().losses = losses.to_vec();
        }
    }

    /// Records the outcome of its turn.
    pub fn set_turn(&self, turn: TurnPart) {
        self.parts().turn = Some(turn);
    }

    /// Writes an entry to the audit log, with the id, the caller and the address of this request.
    pub fn audit(&self, entry: AuditEntry) {
        let parts = self.parts();
        let mut entry = entry.request(parts.id.clone());
        if let Some(caller) = &parts.caller {
            entry = entry.who(&**caller);
        }
        if let Some(client) = parts.client {
            entry = entry.from(client);
        }
        drop(parts);
        self.observer.audit(entry);
    }
}

impl ServerSpan {
    fn begin(client: Option<(u128, u64, bool)>, sample: f64) -> Self {
        let span = clock::new_span_id();
        match client {
            Some((trace, parent, sampled)) => Self { trace, span, parent: Some(parent), sampled },
            None => {
                let trace = clock::new_trace_id();
                Self { trace, span, parent: None, sampled: is_sampled(trace, sample) }
            }
        }
    }

    /// The span of a message of the same connection: of its client's trace, or else of one of its own.
    fn message(self, sample: f64) -> Self {
        Self::begin(self.parent.map(|parent| (self.trace, parent, self.sampled)), sample)
    }
}

/// Whether a trace that begins here is sent: by the 56 bits of its id that are random wherever ids are made.
fn is_sampled(trace: u128, sample: f64) -> bool {
    const RANDOM: u64 = 1 << 56;
    let random = u64::try_from(trace & u128::from(RANDOM - 1)).unwrap_or(0);
    // Exact for all shares that a person writes.
    #[allow(clippy::cast_precision_loss)]
    let share = random as f64 / RANDOM as f64;
    share < sample
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let mut parts = std::mem::take(self.parts.get_mut().unwrap_or_else(PoisonError::into_inner));
        if parts.took.is_none() {
            parts.took = Some(self.started.elapsed());
            parts.client_left |= parts.status == 0;
        }
        self.observer.ended(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_new_traces_is_sampled_and_a_client_decides_for_its_own() {
        let sampled = |sample| (0..10_000).filter(|_| ServerSpan::begin(None, sample).sampled).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        let tenth = sampled(0.1);
        assert!((800..1200).contains(&tenth), "{tenth} of 10000");

        for recorded in [true, false] {
            let span = ServerSpan::begin(Some((7, 8, recorded)), 0.5);
            assert_eq!((span.trace, span.parent, span.sampled), (7, Some(8), recorded));
            let message = span.message(0.5);
            assert_eq!((message.trace, message.parent, message.sampled), (7, Some(8), recorded));
            assert_ne!(message.span, span.span);
        }
        let alone = ServerSpan::begin(None, 1.0);
        assert_ne!(alone.message(1.0).trace, alone.trace);
    }
}
