//! Documents that connectors look up: fetched for each turn, or, if they are the same for all callers, cached by the
//! rules of HTTP.
//!
//! Cached documents are fetched without the caller's headers and identity. Not here: the lifetime of documents
//! ([`crate::documents`]), and the cards that clients see ([`super::card`]).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use interlingua_core::connector::HttpRequest;
use interlingua_core::{Fault, FaultKind};
use reqwest::Url;
use tokio::time::{Instant, timeout};

use super::answer::Answer;
use super::card::max_age;
use super::kept::PublishedDocument;
use super::{Agent, Resend, failure, unpacked};
use crate::Reply;
use crate::documents::{FetchOutcome, FreshDocument, Missing};
use crate::headers::TurnHeaders;
use crate::send_error::{SendCause, SendError};

/// The largest document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;
/// Time that the absence of a document is cached.
const MISSING: Duration = Duration::from_secs(60);

impl Agent {
    /// A document that is the same for all, from what is kept if it is fresh.
    pub(super) async fn published(self: Arc<Self>, ask: HttpRequest, resend: Resend) -> Result<Reply, SendError> {
        let fetcher = Arc::clone(&self);
        let asked = Url::parse(&ask.url).map(|url| failure::shown(&url)).unwrap_or_default();
        let key = (resend.endpoint, ask.url.clone());
        let fetch = || async move { fetcher.fetch_published(ask, resend).await };
        let late = |bound| {
            let detail = format_args!("a document was not complete after {bound:?} (timeouts.total)");
            SendError::from(failure::timed_out("the agent took too long to answer", detail))
        };
        let agent = self.settings.agent.clone();
        let note = move |noted: FetchOutcome<SendError>| match noted {
            FetchOutcome::Gone { why, is_kept: true } => {
                let why = super::shown(&why);
                tracing::warn!(agent, asked, why, "cannot read a document of the agent: the previous one is used");
            }
            FetchOutcome::Gone { .. } | FetchOutcome::Again => {}
        };
        match self.lookups.get(key, fetch, late, note).await {
            Ok(PublishedDocument::Document(document)) => Ok(Reply::Document(document)),
            Ok(PublishedDocument::Missing(refused)) => Err(SendError::refused(refused)),
            Err(Missing::Failed(error)) => Err(error),
            Err(Missing::Late) => Err(SendError::from(failure::timed_out(
                "the agent took too long to answer",
                format_args!("a document was not there in time (timeouts.total)"),
            ))),
        }
    }

    async fn fetch_published(
        &self,
        ask: HttpRequest,
        resend: Resend,
    ) -> Result<FreshDocument<PublishedDocument>, SendError> {
        let request = self.request(ask, resend.endpoint, &TurnHeaders::default())?;
        match self.send(request, &resend, Instant::now()).await {
            Ok(answer) => {
                let max_age = max_age(&answer.headers);
                Ok(FreshDocument {
                    document: PublishedDocument::Document(self.document(answer).await?.into()),
                    max_age,
                })
            }
            Err(SendError { cause: SendCause::Refused(refused), .. }) if matches!(refused.status, 404 | 410) => {
                Ok(FreshDocument { document: PublishedDocument::Missing(refused), max_age: Some(MISSING) })
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a complete document.
    pub(super) async fn document(&self, answer: Answer) -> Result<Vec<u8>, Fault> {
        let mut chunks = unpacked(answer)?;
        let read = timeout(self.settings.first_byte, async {
            let mut document = Vec::new();
            while let Some(chunk) = chunks.next().await {
                document.extend_from_slice(&chunk?);
                if document.len() > MAX_DOCUMENT_BYTES {
                    let message = format!("the agent sent a document larger than {MAX_DOCUMENT_BYTES} bytes");
                    return Err(Fault::new(FaultKind::UpstreamTooLarge, message));
                }
            }
            Ok(document)
        });
        read.await.unwrap_or_else(|_| {
            Err(failure::timed_out(
                "the agent took too long to answer",
                format_args!("a document was not complete after {:?} (timeouts.first_byte)", self.settings.first_byte),
            ))
        })
    }
}
