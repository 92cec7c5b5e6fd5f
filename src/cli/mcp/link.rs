//! The server and the host, as the parts of the bridge see them: requests with their failures in words, and the output.

use std::time::Duration;

use bytes::Bytes;
use interlingua_upstream::message_client::{MessageAnswer, MessageClient};
use tokio::time::timeout;

use super::answer::{AnswerReader, ReadError};
use super::budget::Budget;
use super::lines::Output;
use super::message::{Failure, ServerMessage, ServerMessageKind};

/// Headers of one request.
pub(super) type Headers = Vec<(&'static str, String)>;

/// The limit of each request that is not the host's own: a notification, a stream until it begins, the end of a session.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit for the body of a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest location of a redirect that is shown, in bytes.
const MAX_LOCATION: usize = 1024;

/// The server, and the output to the host.
pub(super) struct Link {
    client: MessageClient,
    url: String,
    has_key: bool,
    pub(super) output: Output,
    pub(super) budget: Budget,
}

/// An answer of the server that is no success.
pub(super) struct ServerRefusal {
    pub(super) status: u16,
    /// The refusal in words.
    pub(super) failure: Failure,
    /// The error of JSON-RPC in its body.
    pub(super) error: Option<ServerMessage>,
}

impl Link {
    /// `has_key`: requests have credentials.
    pub(super) fn new(client: MessageClient, has_key: bool, output: Output) -> Self {
        Self { url: client.shown_url(), client, has_key, output, budget: Budget::default() }
    }

    /// Sends a message. It may take any time.
    pub(super) async fn post(&self, body: Bytes, headers: &Headers) -> Result<MessageAnswer, Failure> {
        self.client.post(body, headers).await.map_err(|reason| self.unreachable(&reason))
    }

    /// Sends a message, with [`REQUEST_TIMEOUT`].
    pub(super) async fn post_limited(&self, body: Bytes, headers: &Headers) -> Result<MessageAnswer, Failure> {
        timeout(REQUEST_TIMEOUT, self.post(body, headers)).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// Requests an event stream, with [`REQUEST_TIMEOUT`] until it begins.
    pub(super) async fn get(&self, headers: &Headers) -> Result<MessageAnswer, Failure> {
        let answer = timeout(REQUEST_TIMEOUT, self.client.get(headers)).await.map_err(|_| self.late())?;
        answer.map_err(|reason| self.unreachable(&reason))
    }

    /// Sends a DELETE. The result does not matter: the server ends sessions by itself too.
    pub(super) async fn delete(&self, headers: &Headers, limit: Duration) {
        let _ = timeout(limit, self.client.delete(headers)).await;
    }

    /// A reader of an answer.
    pub(super) fn reader(&self, answer: MessageAnswer) -> AnswerReader {
        AnswerReader::new(answer, self.budget.share())
    }

    /// Reads an answer that is no success.
    pub(super) async fn refusal(&self, answer: MessageAnswer) -> ServerRefusal {
        let (status, mut text) = (answer.status(), format!("{} answered {}", self.url, answer.status_line()));
        if let Some(location) = answer.header("location").filter(|location| location.len() <= MAX_LOCATION) {
            text = format!("{text}, a redirect to {location}, which is not followed");
        }
        let body = timeout(REFUSAL_TIMEOUT, async { self.reader(answer).next().await.ok().flatten() }).await;
        let error = body.ok().flatten().and_then(|body| ServerMessage::parse(&body));
        let error =
            error.filter(|error| matches!(error.kind, ServerMessageKind::Response(_)) && error.error().is_some());

        if let Some(message) = error.as_ref().and_then(ServerMessage::error_text) {
            text = format!("{text}: {message}");
        }
        if status == 401 {
            let hint = if self.has_key { "the key of --key-env or --key-file" } else { "a request without a key" };
            text = format!("{text}; the server refuses {hint}");
            if !self.has_key {
                text.push_str(": name the variable of a key with --key-env");
            }
        }
        let data = error.as_ref().and_then(ServerMessage::error_data);
        ServerRefusal { status, failure: Failure { text, data }, error }
    }

    /// A failure of an answer, in words that name the URL.
    pub(super) fn failure(&self, text: &str) -> Failure {
        Failure::new(format!("the answer of {} {text}", self.url))
    }

    /// The failure of an answer that cannot be read to its end.
    pub(super) fn read_failure(&self, error: ReadError) -> Failure {
        match error {
            ReadError::Cut(reason) => self.failure(&format!("broke off: {reason}")),
            ReadError::TooLarge(text) => self.failure(text),
        }
    }

    fn unreachable(&self, reason: &str) -> Failure {
        Failure::new(format!("no answer of {}: {reason}", self.url))
    }

    fn late(&self) -> Failure {
        Failure::new(format!("no answer of {} within {} s", self.url, REQUEST_TIMEOUT.as_secs()))
    }
}
