//! The stream of a session, for messages of the server that belong to no request: opened when the session is
//! initialized, and again when it is interrupted.

use std::time::Duration;

use tokio::time::sleep;

use super::link::Link;
use super::message::ServerMessage;
use super::session::{Session, Sessions};

/// The pause before the stream is opened again, if the server asks for none.
pub(super) const RETRY: Duration = Duration::from_secs(1);
/// The longest pause, whatever the server asks for.
pub(super) const MAX_RETRY: Duration = Duration::from_secs(30);
/// The number of failures in a row after which the interruption is reported.
const REPORTED_FAILURES: u32 = 3;

/// The reason why the stream of a session is not opened again.
enum ListenerEnd {
    /// The server does not know the session any more.
    SessionLost,
    /// The server offers no stream, or refuses it.
    NoStream,
}

/// Follows the stream of the current session, without end.
pub(super) async fn listen(link: &Link, sessions: &Sessions) {
    loop {
        let session = sessions.wait_for_initialized().await;
        let end = tokio::select! {
            end = follow(link, &session) => end,
            () = sessions.wait_for_successor(&session) => continue,
        };
        // Outside of the select, because a renewal changes the session before it is complete.
        if matches!(end, ListenerEnd::SessionLost)
            && let Err(failure) = sessions.renew(link, &session).await
        {
            link.output.problem(&failure.text);
        }
        sessions.wait_for_successor(&session).await;
    }
}

async fn follow(link: &Link, session: &Session) -> ListenerEnd {
    let mut last_event_id = String::new();
    let mut was_open = false;
    let mut failures = 0;
    loop {
        let mut headers = session.headers();
        if !last_event_id.is_empty() {
            headers.push(("last-event-id", last_event_id.clone()));
        }
        let mut pause = RETRY.saturating_mul(1 << failures.min(5));

        let failure = match link.get(&headers).await {
            Err(failure) => Some(failure),
            Ok(answer) if answer.is_success() && answer.is_event_stream() => {
                (was_open, failures, pause) = (true, 0, RETRY);
                let mut reader = link.reader(answer);
                let failure = loop {
                    match reader.next().await {
                        Ok(Some(data)) => write(link, &data).await,
                        Ok(None) => break None,
                        Err(error) => break Some(link.read_failure(error)),
                    }
                };
                pause = reader.retry().unwrap_or(pause);
                if !reader.last_event_id().is_empty() {
                    reader.last_event_id().clone_into(&mut last_event_id);
                }
                failure
            }
            // Some servers without such a stream answer 404, just as for a lost session.
            Ok(answer) if answer.status() == 404 && was_open => return ListenerEnd::SessionLost,
            Ok(answer) if matches!(answer.status(), 404 | 405) || answer.is_success() => return ListenerEnd::NoStream,
            Ok(answer) => {
                let refusal = link.refusal(answer).await;
                match refusal.status {
                    408 | 429 | 500.. => {}
                    // The server does not know the event any more.
                    400 if !last_event_id.is_empty() => last_event_id.clear(),
                    _ => {
                        link.output.problem(&refusal.failure.text);
                        return ListenerEnd::NoStream;
                    }
                }
                Some(refusal.failure)
            }
        };
        if let Some(failure) = failure {
            failures += 1;
            if failures == REPORTED_FAILURES {
                link.output.problem(&format!("the stream of the session is interrupted: {}", failure.text));
            }
        }
        sleep(pause.min(MAX_RETRY)).await;
    }
}

async fn write(link: &Link, data: &[u8]) {
    if data.trim_ascii().is_empty() {
        return;
    }
    match ServerMessage::parse(data) {
        Some(message) => link.output.message(message.line).await,
        None => link.output.problem("the server sent an event that is no message of JSON-RPC"),
    }
}
