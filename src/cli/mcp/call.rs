//! Requests of the host: sent, answered, and continued over another connection if an answer that can be resumed is cut.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use interlingua_upstream::message_client::MessageAnswer;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::answer::{AnswerReader, ReadError};
use super::budget::Share;
use super::link::{Headers, Link, REQUEST_TIMEOUT};
use super::listener::{MAX_RETRY, RETRY};
use super::message::{Failure, INITIALIZE, Message, ServerMessage, ServerMessageKind};
use super::session::{Session, Sessions};

/// The number of attempts to resume an answer, since its last event.
const MAX_ATTEMPTS: u32 = 3;
/// Time for the end of a stream after the response: its connection can then be used again.
const END_TIMEOUT: Duration = Duration::from_millis(200);
/// Time for the end of an answer after `notifications/cancelled` was sent.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit of `initialize`. Other messages wait for its answer.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request without a response so far.
pub(super) struct OpenCall {
    pub(super) id: Value,
    /// The request is of a stateless revision: closing its connection cancels it.
    pub(super) is_modern: bool,
    pub(super) task: Cell<Option<AbortHandle>>,
    is_cancelled: watch::Sender<bool>,
    /// The server has begun to answer.
    is_begun: watch::Sender<bool>,
}

impl OpenCall {
    pub(super) fn new(id: Value, is_modern: bool) -> Self {
        let flag = || watch::Sender::new(false);
        Self { id, is_modern, task: Cell::new(None), is_cancelled: flag(), is_begun: flag() }
    }

    /// Notes that the host cancelled the request: it gets no error of the bridge.
    pub(super) fn cancel(&self) {
        self.is_cancelled.send_replace(true);
    }

    /// Waits until the server has begun to answer.
    pub(super) async fn wait_for_begin(&self) {
        let _ = self.is_begun.subscribe().wait_for(|is_begun| *is_begun).await;
    }

    async fn wait_for_cancel(&self) {
        let _ = self.is_cancelled.subscribe().wait_for(|is_cancelled| *is_cancelled).await;
    }
}

/// Sends a request and writes the messages of its answer. The last one is a response, except of a cancelled request.
pub(super) async fn run(link: &Rc<Link>, sessions: &Sessions, message: Message, share: Share, call: &OpenCall) {
    let exchange = Exchange { link, sessions, call };
    let failure = tokio::select! {
        result = exchange.run(message, share) => result.err(),
        () = async { call.wait_for_cancel().await; sleep(CANCEL_TIMEOUT).await } => None,
    };
    if let Some(failure) = failure
        && !*call.is_cancelled.borrow()
    {
        link.output.problem(&failure.text);
        link.output.message(failure.line(&call.id)).await;
    }
}

struct Exchange<'a> {
    link: &'a Rc<Link>,
    sessions: &'a Sessions,
    call: &'a OpenCall,
}

/// The part of an answer that one connection brought.
#[derive(Default)]
struct AnswerPart {
    is_answered: bool,
    last_event_id: String,
    retry: Option<Duration>,
    /// The reason why the connection broke.
    cut: Option<String>,
}

impl Exchange<'_> {
    async fn run(&self, mut message: Message, share: Share) -> Result<(), Failure> {
        let handshake = message.handshake.take();
        let is_handshake = message.is_legacy(INITIALIZE);
        let (answer, session) = self.send(&message, is_handshake).await?;
        self.call.is_begun.send_replace(true);
        drop((message, share));

        if !answer.is_success() {
            return self.refuse(answer).await;
        }
        let new_session = is_handshake.then(|| (answer.header("mcp-session-id").map(str::to_owned), handshake));
        let mut reader = self.link.reader(answer);
        if is_handshake {
            let read = timeout(HANDSHAKE_TIMEOUT, self.pass(&mut reader, new_session)).await;
            let read = read.unwrap_or_else(|_| Err(self.link.failure("did not arrive in time")))?;
            return self.end(&read);
        }
        let part = self.pass(&mut reader, None).await?;
        match session.filter(|_| !part.is_answered && !part.last_event_id.is_empty()) {
            Some(session) => self.resume(session, part).await,
            None => self.end(&part),
        }
    }

    /// Sends the message, and once more in a new session if the server lost the session.
    async fn send(
        &self,
        message: &Message,
        is_handshake: bool,
    ) -> Result<(MessageAnswer, Option<Rc<Session>>), Failure> {
        let body = || message.body.clone();
        if let Some(version) = &message.version {
            return Ok((self.link.post(body(), &message.headers(version)).await?, None));
        }
        if is_handshake {
            let sent = timeout(HANDSHAKE_TIMEOUT, self.link.post(body(), &Headers::new())).await;
            return Ok((sent.unwrap_or_else(|_| Err(self.link.failure("did not arrive in time")))?, None));
        }

        let session = self.sessions.current();
        let headers = session.as_ref().map(|session| session.headers()).unwrap_or_default();
        let answer = self.link.post(body(), &headers).await?;
        match session {
            Some(lost) if answer.status() == 404 && lost.has_id() => {
                drop(answer);
                self.sessions.renew(self.link, &lost).await?;
                Ok((self.link.post(body(), &self.sessions.headers()).await?, self.sessions.current()))
            }
            session => Ok((answer, session)),
        }
    }

    /// Writes the error of an answer that is no success.
    async fn refuse(&self, answer: MessageAnswer) -> Result<(), Failure> {
        let refusal = self.link.refusal(answer).await;
        let Some(error) = refusal.error.filter(|_| refusal.status != 401) else { return Err(refusal.failure) };
        match error.error_for(&self.call.id) {
            _ if error.kind == ServerMessageKind::Response(Some(self.call.id.clone())) => {
                self.link.output.message(error.line).await;
            }
            Some(line) => self.link.output.message(line).await,
            None => return Err(refusal.failure),
        }
        Ok(())
    }

    /// Writes the messages of an answer until the response was written or the connection has ended. `new_session`: the
    /// response begins a session.
    async fn pass(
        &self,
        reader: &mut AnswerReader,
        mut new_session: Option<(Option<String>, Option<Box<RawValue>>)>,
    ) -> Result<AnswerPart, Failure> {
        let mut part = AnswerPart::default();
        loop {
            match reader.next().await {
                Ok(Some(data)) if data.trim_ascii().is_empty() => {}
                Ok(Some(data)) => match ServerMessage::parse(&data) {
                    Some(message) => {
                        let is_answer = self.is_answer(&message);
                        if let Some((id, handshake)) = new_session.take_if(|_| is_answer && message.result().is_some())
                        {
                            self.begin_session(id, message.negotiated(), handshake);
                        }
                        self.write(message).await;
                        part.is_answered |= is_answer;
                    }
                    None if reader.is_stream() => {
                        self.link.output.problem("the server sent an event that is no message of JSON-RPC");
                    }
                    None => return Err(self.link.failure("is no message of JSON-RPC")),
                },
                Ok(None) => break,
                Err(ReadError::Cut(reason)) => {
                    part.cut = Some(reason);
                    break;
                }
                Err(error) => return Err(self.link.read_failure(error)),
            }
            if part.is_answered {
                self.finish(reader).await;
                break;
            }
        }
        (part.last_event_id, part.retry) = (reader.last_event_id().to_owned(), reader.retry());
        Ok(part)
    }

    /// Writes what follows the response until the stream ends, for a limited time.
    async fn finish(&self, reader: &mut AnswerReader) {
        let rest = async {
            while let Ok(Some(data)) = reader.next().await {
                if let Some(message) = ServerMessage::parse(&data) {
                    self.link.output.message(message.line).await;
                }
            }
        };
        let _ = timeout(END_TIMEOUT, rest).await;
    }

    /// True for the response to this request. An error without an id is one: the server could not read the id.
    fn is_answer(&self, message: &ServerMessage) -> bool {
        match &message.kind {
            ServerMessageKind::Response(Some(id)) => *id == self.call.id,
            ServerMessageKind::Response(None) => message.error().is_some(),
            ServerMessageKind::Batch => true,
            ServerMessageKind::Call => false,
        }
    }

    async fn write(&self, message: ServerMessage) {
        let line = match &message.kind {
            ServerMessageKind::Response(None) => message.error_for(&self.call.id),
            _ => None,
        };
        self.link.output.message(line.unwrap_or(message.line)).await;
    }

    /// Begins a session, and ends the one before it.
    fn begin_session(&self, id: Option<String>, version: Option<String>, handshake: Option<Box<RawValue>>) {
        if let Some(previous) = self.sessions.begin(id, version, handshake).filter(|previous| previous.has_id()) {
            let link = Rc::clone(self.link);
            tokio::task::spawn_local(async move { link.delete(&previous.headers(), REQUEST_TIMEOUT).await });
        }
    }

    /// Requests the rest of an answer until it is complete.
    async fn resume(&self, mut session: Rc<Session>, mut part: AnswerPart) -> Result<(), Failure> {
        let (mut attempts, mut is_renewed) = (0, false);
        let mut last = self.end(&part);
        while !part.is_answered && !*self.call.is_cancelled.borrow() {
            if attempts == MAX_ATTEMPTS {
                return last;
            }
            attempts += 1;
            sleep(part.retry.unwrap_or(RETRY).min(MAX_RETRY)).await;

            let mut headers = session.headers();
            headers.push(("last-event-id", part.last_event_id.clone()));
            match self.link.get(&headers).await {
                Err(failure) => last = Err(failure),
                Ok(answer) if answer.is_success() && answer.is_event_stream() => {
                    let mut next = self.pass(&mut self.link.reader(answer), None).await?;
                    if next.last_event_id.is_empty() {
                        next.last_event_id.clone_from(&part.last_event_id);
                    }
                    if next.last_event_id != part.last_event_id {
                        attempts = 0;
                    }
                    next.retry = next.retry.or(part.retry);
                    part = next;
                    last = self.end(&part);
                }
                Ok(answer) if answer.status() == 404 && !is_renewed => {
                    is_renewed = true;
                    self.sessions.renew(self.link, &session).await?;
                    session = self.sessions.current().unwrap_or(session);
                    // The same attempt, in the new session.
                    attempts -= 1;
                    part.retry = Some(Duration::ZERO);
                }
                Ok(answer) if answer.is_success() => return Err(self.link.failure("is no event stream")),
                Ok(answer) => {
                    let refusal = self.link.refusal(answer).await;
                    if !matches!(refusal.status, 408 | 429 | 500..) {
                        return Err(refusal.failure);
                    }
                    last = Err(refusal.failure);
                }
            }
        }
        Ok(())
    }

    /// The result of an answer that brings nothing more.
    fn end(&self, part: &AnswerPart) -> Result<(), Failure> {
        match &part.cut {
            _ if part.is_answered => Ok(()),
            Some(reason) => Err(self.link.failure(&format!("broke off: {reason}"))),
            None => Err(self.link.failure("ended without a response")),
        }
    }
}
