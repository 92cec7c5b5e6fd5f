//! Asking an agent what it is (`interlingua probe`): sends what its connector's probe wants to know.
//!
//! Nothing is sent again, and nothing is counted: a probe shows how things are. Not here: what an answer means (the
//! connectors), and what is printed (`src/cli`).

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use interlingua_core::Fault;
use interlingua_core::connector::HttpRequest;
use interlingua_core::probe::{Finding, ProbeAnswer};
use tokio::time::{Instant, timeout};

use super::{Agent, AgentServers, failure, unpacked};
use crate::headers::TurnHeaders;
use interlingua_base::secrets;

/// The most requests of one probe.
const MAX_REQUESTS: usize = 64;
/// Bytes of an answer that a probe receives.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The part of an answer that a probe receives.
struct ProbeReply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Agent {
    /// Probes one endpoint. `limit`: how long each answer may take.
    pub(super) async fn probe(self: Arc<Self>, endpoint: usize, limit: Duration) -> Vec<Finding> {
        let mut probe = self.endpoints[endpoint].connector.probe();
        let mut reached = None;
        for _ in 0..MAX_REQUESTS {
            let Some(request) = probe.next() else { break };
            let began = Instant::now();
            let asking = timeout(limit, self.ask_once(request, endpoint)).await;
            let answer = asking.unwrap_or_else(|_| {
                Err(failure::timed_out("the agent did not answer in time", format_args!("no answer after {limit:?}")))
            });
            if reached.is_none() {
                match &answer {
                    Ok(answer) => {
                        let took = began.elapsed().as_millis();
                        reached = Some(Finding::good(format!("reachable: {} in {took} ms", answer.status)));
                    }
                    // Further requests would not reach it either.
                    Err(fault) => return vec![Finding::problem(in_words(fault))],
                }
            }
            match &answer {
                Ok(ProbeReply { status, headers, body }) => {
                    probe.on_answer(Ok(ProbeAnswer { status: *status, headers, body }));
                }
                Err(fault) => probe.on_answer(Err(fault)),
            }
        }
        let masked = |finding: &Finding| Finding { text: secrets::mask(&finding.text).into_owned(), ..finding.clone() };
        reached.into_iter().chain(probe.findings().iter().map(masked)).collect()
    }

    async fn ask_once(&self, ask: HttpRequest, endpoint: usize) -> Result<ProbeReply, Fault> {
        let known = AgentServers { endpoint, is_trusted: ask.is_trusted };
        let request = self.request(ask, endpoint, &TurnHeaders::default())?;
        let is_own = Self::is_own(known, &request.target);
        let answer = self.clients.send(&request, None, is_own, &Arc::default())?.await;
        let answer = answer.map_err(|error| failure::before_answer(error, &request.target.url))?;
        let status = answer.status.as_u16();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers = answer.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect();

        let mut body = Vec::new();
        let mut chunks = unpacked(answer)?;
        while body.len() < MAX_BODY_BYTES
            && let Some(chunk) = chunks.next().await
        {
            let chunk = chunk?;
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_BODY_BYTES - body.len())]);
        }
        Ok(ProbeReply { status, headers, body })
    }
}

/// A fault with its cause.
fn in_words(fault: &Fault) -> String {
    match &fault.detail {
        Some(detail) => format!("{}: {detail}", fault.message),
        None => fault.message.clone(),
    }
}
