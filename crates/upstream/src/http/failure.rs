//! Converts transport errors to faults: a sentence without addresses for the client, the complete chain of causes for
//! the log.

use std::error::Error;
use std::fmt;
use std::io;

use interlingua_core::fault::error_chain;
use interlingua_core::{Fault, FaultKind};
use reqwest::Url;

use super::cause::cause;
use super::client_error::ClientError;
use crate::scheme_error::{SPEAKS_HTTP, is_answer_in_clear};
use interlingua_base::secrets;

/// A request that cannot be sent at all: the connector, or the configuration, is wrong.
pub(super) fn not_asked() -> Fault {
    Fault::new(FaultKind::Internal, "the agent could not be asked")
}

/// An error before the head of an answer was received. The log gets the URL without its query and user info.
pub(super) fn before_answer(error: ClientError, url: &Url) -> Fault {
    let error = error.without_url();
    let (kind, message) = if error.is_connect() && error.is_timeout() {
        (FaultKind::UpstreamTimeout, "the agent did not accept a connection in time")
    } else if error.is_connect() && is_answer_in_clear(&error) {
        (FaultKind::UpstreamUnreachable, "the agent could not be reached over TLS")
    } else if error.is_connect() {
        (FaultKind::UpstreamUnreachable, "the agent could not be reached")
    } else if error.is_timeout() {
        (FaultKind::UpstreamTimeout, "the agent did not begin to answer in time")
    } else if error.is_parse() {
        // No HTTP, or a head that is too large.
        (FaultKind::UpstreamGarbage, "the head of the agent's answer could not be read")
    } else {
        // The agent may or may not have processed the request.
        (FaultKind::UpstreamTruncated, "the agent closed the connection before it answered")
    };
    let cause = if is_answer_in_clear(&error) {
        format!("{SPEAKS_HTTP}: write http:// in its url")
    } else {
        error_chain(&error)
    };
    let detail = format!("{}: {cause}", shown(url));
    secrets::mask_fault(Fault::new(kind, message).with_detail(detail).with_source(error))
}

/// An error in the middle of an answer.
pub(super) fn in_answer(error: reqwest::Error) -> Fault {
    broken_off(error.without_url())
}

/// The same, read by a connection without a client library.
pub(super) fn in_plain_answer(error: hyper::Error) -> Fault {
    broken_off(error)
}

fn broken_off(error: impl Error + Send + Sync + 'static) -> Fault {
    let is_garbage = cause::<io::Error>(&error)
        .is_some_and(|error| matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput));
    let (kind, message) = if is_garbage {
        (FaultKind::UpstreamGarbage, "the agent's answer is not framed as HTTP wants it")
    } else {
        (FaultKind::UpstreamTruncated, "the connection to the agent broke in the middle of its answer")
    };
    secrets::mask_fault(Fault::new(kind, message).with_source(error))
}

/// The fault of an exceeded time limit.
pub(super) fn timed_out(message: &'static str, detail: impl fmt::Display) -> Fault {
    Fault::new(FaultKind::UpstreamTimeout, message).with_detail(detail)
}

/// A URL as the log may show it: without query and user info.
pub(super) fn shown(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}
