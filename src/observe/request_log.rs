//! What is known of one request, and of the turn it began: written when the last of those who know more has let it go.
//!
//! The body of the response and the turn share it, so that one line has both, whichever ends later.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::audit::{Action, AuditEntry};
use super::observer::Observer;
use super::parts::{RequestParts, TurnPart};
use crate::clock;

/// A path is logged up to so many bytes.
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
        let mut end = path.len().min(MAX_PATH);
        while !path.is_char_boundary(end) {
            end -= 1;
        }
        let parts = RequestParts {
            at: clock::now(),
            id: id.unwrap_or_else(|| clock::new_id().to_prefixed("req_")),
            method: method.to_owned(),
            path: path[..end].to_owned(),
            ..RequestParts::default()
        };
        Arc::new(Self { observer, started: Instant::now(), parts: Mutex::new(parts) })
    }

    /// A request within this one's connection: a message of a WebSocket.
    #[must_use]
    pub fn message(&self, method: &str) -> Arc<Self> {
        let parts = self.parts();
        let parts = RequestParts {
            at: clock::now(),
            id: clock::new_id().to_prefixed("req_"),
            method: method.to_owned(),
            path: parts.path.clone(),
            client: parts.client,
            route: parts.route.clone(),
            protocol: parts.protocol,
            caller: parts.caller.clone(),
            ..RequestParts::default()
        };
        Arc::new(Self { observer: Arc::clone(&self.observer), started: Instant::now(), parts: Mutex::new(parts) })
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

    /// Who sent it.
    pub fn set_client(&self, address: IpAddr) {
        self.parts().client = Some(address);
    }

    /// Where it was routed to.
    pub fn set_route(&self, route: &Arc<str>, protocol: &'static str) {
        let mut parts = self.parts();
        parts.route = Some(Arc::clone(route));
        parts.protocol = protocol;
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

    /// The end of its answer, which had so many bytes. `complete` is false if the client left before.
    pub fn answered(&self, bytes: u64, complete: bool) {
        let took = self.started.elapsed();
        let mut parts = self.parts();
        parts.bytes_out += bytes;
        parts.took = Some(took);
        parts.client_left |= !complete;
    }

    /// What became of its turn.
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
