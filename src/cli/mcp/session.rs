//! The session of the revisions that have one: its id, the negotiated version, and its renewal when the server no longer
//! knows it.
//!
//! Not here: the stream of the session ([`super::listener`]).

use std::rc::Rc;

use bytes::Bytes;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

use super::answer::{AnswerReader, ReadError};
use super::link::{Headers, Link, REQUEST_TIMEOUT};
use super::message::{Failure, INITIALIZE, INITIALIZED, ServerMessage, ServerMessageKind};

/// The id of the bridge's own `initialize`. It is sent in a new session, where no other request has an id yet.
const RENEWAL_ID: &str = "interlingua";

/// A session with the server, between two handshakes.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    /// `None`: the server has no sessions.
    id: Option<String>,
    /// The negotiated version of the protocol.
    version: Option<String>,
    /// The `params` of the host's `initialize`.
    handshake: Option<Box<RawValue>>,
}

impl Session {
    /// The headers of all its requests.
    pub(super) fn headers(&self) -> Headers {
        let id = self.id.iter().map(|id| ("mcp-session-id", id.clone()));
        let version = self.version.iter().map(|version| ("mcp-protocol-version", version.clone()));
        id.chain(version).collect()
    }

    /// True if the server can lose it.
    pub(super) fn has_id(&self) -> bool {
        self.id.is_some()
    }
}

/// The sessions of the bridge, one after the other.
pub(super) struct Sessions {
    state: watch::Sender<SessionState>,
    /// Held during a renewal.
    renewal: Mutex<Option<RenewalFailure>>,
}

#[derive(Default)]
struct SessionState {
    current: Option<Rc<Session>>,
    /// The server accepted `notifications/initialized`.
    is_initialized: bool,
}

/// The last renewal that failed.
struct RenewalFailure {
    session: u64,
    at: Instant,
    failure: Failure,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { state: watch::Sender::new(SessionState::default()), renewal: Mutex::new(None) }
    }

    /// The current session. `None`: there was no handshake.
    pub(super) fn current(&self) -> Option<Rc<Session>> {
        self.state.borrow().current.clone()
    }

    /// The headers of the current session.
    pub(super) fn headers(&self) -> Headers {
        self.current().map(|session| session.headers()).unwrap_or_default()
    }

    /// Begins a session after a handshake. Returns the one before it.
    pub(super) fn begin(
        &self,
        id: Option<String>,
        version: Option<String>,
        handshake: Option<Box<RawValue>>,
    ) -> Option<Rc<Session>> {
        let previous = self.current();
        let number = previous.as_ref().map_or(0, |session| session.number + 1);
        let current = Some(Rc::new(Session { number, id, version, handshake }));
        self.state.send_replace(SessionState { current, is_initialized: false });
        previous
    }

    /// Notes that the server accepted `notifications/initialized` in the current session.
    pub(super) fn set_initialized(&self) {
        self.state.send_modify(|state| state.is_initialized = true);
    }

    /// Waits for a session that is initialized and has an id.
    pub(super) async fn wait_for_initialized(&self) -> Rc<Session> {
        let mut states = self.state.subscribe();
        let is_ready = |state: &SessionState| {
            state.is_initialized && state.current.as_ref().is_some_and(|session| session.has_id())
        };
        match states.wait_for(|state| is_ready(state)).await.ok().and_then(|state| state.current.clone()) {
            Some(session) => session,
            None => std::future::pending().await,
        }
    }

    /// Waits until another session replaces this one.
    pub(super) async fn wait_for_successor(&self, session: &Session) {
        let mut states = self.state.subscribe();
        let is_other = |state: &SessionState| state.current.as_ref().is_none_or(|now| now.number != session.number);
        // The sender lives as long as this future.
        let _ = states.wait_for(|state| is_other(state)).await;
    }

    /// Initializes again, with the host's own parameters, unless another task already replaced this session.
    pub(super) async fn renew(&self, link: &Link, lost: &Session) -> Result<(), Failure> {
        let began = Instant::now();
        let mut renewal = self.renewal.lock().await;
        let current = self.current();
        if current.is_some_and(|current| current.number != lost.number) {
            return Ok(());
        }
        // The renewal that this call waited for. Repeating it for each waiting call would take too long.
        if let Some(failed) = renewal.as_ref().filter(|failed| failed.session == lost.number && failed.at > began) {
            return Err(failed.failure.clone());
        }

        let was_initialized = self.state.borrow().is_initialized;
        let renewed = timeout(REQUEST_TIMEOUT, self.initialize(link, lost, was_initialized)).await;
        if was_initialized && self.current().is_some_and(|current| current.number != lost.number) {
            // Also after a failed notification: the host does not send it again.
            self.set_initialized();
        }
        let renewed = renewed.unwrap_or_else(|_| Err(link.failure("to initialize did not arrive in time")));
        let failure = renewed.map_err(|failure| Failure {
            text: format!("the server lost the session and does not begin a new one: {}", failure.text),
            ..failure
        });
        if let Err(failure) = &failure {
            *renewal = Some(RenewalFailure { session: lost.number, at: Instant::now(), failure: failure.clone() });
        }
        failure
    }

    async fn initialize(&self, link: &Link, lost: &Session, was_initialized: bool) -> Result<(), Failure> {
        let request = json!({ "jsonrpc": "2.0", "id": RENEWAL_ID, "method": INITIALIZE, "params": lost.handshake });
        let answer = link.post(Bytes::from(request.to_string()), &Headers::new()).await?;
        if !answer.is_success() {
            return Err(link.refusal(answer).await.failure);
        }
        let id = answer.header("mcp-session-id").map(str::to_owned);
        let response = response(&mut link.reader(answer)).await.map_err(|error| link.read_failure(error))?;
        if response.result().is_none() {
            let reason = response.error_text().unwrap_or_else(|| "is an error".to_owned());
            return Err(link.failure(&format!("to initialize: {reason}")));
        }
        self.begin(id, response.negotiated(), lost.handshake.clone());

        if was_initialized {
            let notification = json!({ "jsonrpc": "2.0", "method": INITIALIZED });
            let answer = link.post(Bytes::from(notification.to_string()), &self.headers()).await?;
            if !answer.is_success() {
                return Err(link.refusal(answer).await.failure);
            }
        }
        Ok(())
    }
}

/// The first response in an answer.
async fn response(reader: &mut AnswerReader) -> Result<ServerMessage, ReadError> {
    while let Some(data) = reader.next().await? {
        let message = ServerMessage::parse(&data);
        if let Some(message) = message.filter(|message| matches!(message.kind, ServerMessageKind::Response(_))) {
            return Ok(message);
        }
    }
    Err(ReadError::Cut("it ended without a response".to_owned()))
}
