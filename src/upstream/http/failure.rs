//! What went wrong on the wire, told as faults: a sentence without addresses for the client, the whole chain of
//! causes for the log.

use std::error::Error;
use std::fmt;
use std::io;

use interlingua_core::{Fault, FaultKind};
use reqwest::Url;

use crate::secrets;

/// What went wrong before the head of an answer had come. The log is told where from, without what a URL may hide.
pub(super) fn before_answer(error: reqwest::Error, url: &Url) -> Fault {
    let error = &error.without_url();
    let (kind, message) = if error.is_connect() && error.is_timeout() {
        (FaultKind::UpstreamTimeout, "the agent did not accept a connection in time")
    } else if error.is_connect() {
        (FaultKind::UpstreamUnreachable, "the agent could not be reached")
    } else if error.is_timeout() {
        (FaultKind::UpstreamTimeout, "the agent did not begin to answer in time")
    } else {
        match cause::<hyper::Error>(error) {
            // No HTTP, or a head that is too large.
            Some(http) if http.is_parse() => {
                (FaultKind::UpstreamGarbage, "the head of the agent's answer could not be read")
            }
            // It may or may not have worked on the question.
            _ => (FaultKind::UpstreamTruncated, "the agent closed the connection before it answered"),
        }
    };
    secrets::mask_fault(Fault::new(kind, message).with_detail(format_args!("{}: {}", shown(url), chain(error))))
}

/// What went wrong in the middle of an answer.
pub(super) fn in_answer(error: reqwest::Error) -> Fault {
    let error = &error.without_url();
    let garbage = cause::<io::Error>(error)
        .is_some_and(|error| matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput));
    let (kind, message) = if garbage {
        (FaultKind::UpstreamGarbage, "the agent's answer is not framed as HTTP wants it")
    } else {
        (FaultKind::UpstreamTruncated, "the connection to the agent broke in the middle of its answer")
    };
    secrets::mask_fault(Fault::new(kind, message).with_detail(chain(error)))
}

/// ResponseTimeouts that was lost.
pub(super) fn timed_out(message: &'static str, detail: impl fmt::Display) -> Fault {
    Fault::new(FaultKind::UpstreamTimeout, message).with_detail(detail)
}

/// Whether the other side was gone, as opposed to sending nonsense.
pub(super) fn is_disconnect(error: &reqwest::Error) -> bool {
    match cause::<hyper::Error>(error) {
        Some(http) => !http.is_parse() && !http.is_user(),
        None => false,
    }
}

/// A URL as the log may show it: neither its query nor who it names may be told.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

/// An error and its causes in one line: the outermost alone says next to nothing.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// The first cause of a type.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}
