//! Active checks: a GET to each endpoint of an agent now and then, whose status says whether it is healthy.
//!
//! Not here: what follows from the results ([`crate::pool`]).

use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use interlingua_core::connector::{HttpRequest, Purpose};
use interlingua_core::{Fault, FaultKind};
use tokio::time::{sleep, timeout};

use super::{Agent, HealthCheck};
use crate::headers::TurnHeaders;

impl Agent {
    /// Checks every endpoint for as long as the agent exists.
    pub(super) async fn watch(agent: Weak<Self>, endpoints: usize, check: HealthCheck) {
        join_all((0..endpoints).map(|endpoint| Self::watch_endpoint(agent.clone(), endpoint, &check))).await;
    }

    async fn watch_endpoint(agent: Weak<Self>, endpoint: usize, check: &HealthCheck) {
        // A check keeps the agent for no longer than it takes: it may have left the configuration.
        while let Some(agent) = agent.upgrade() {
            let result = agent.check(endpoint, check).await;
            if let Err(fault) = &result {
                tracing::debug!(agent = agent.settings.agent, endpoint, detail = fault.detail, "check failed: {fault}");
            }
            agent.pool.checked(endpoint, result.is_ok());
            let pause = agent.pool.vary(check.every);
            drop(agent);
            sleep(pause).await;
        }
    }

    /// Succeeds if the endpoint answers with success.
    async fn check(self: &Arc<Self>, endpoint: usize, check: &HealthCheck) -> Result<(), Fault> {
        let failed =
            |detail: String| Fault::new(FaultKind::UpstreamUnreachable, "the check failed").with_detail(detail);
        let url = self.endpoints[endpoint].url.as_ref().and_then(|url| url.join(&check.path).ok());
        let url = url.ok_or_else(|| failed("the endpoint has no URL".to_owned()))?;
        let (purpose, headers) = (Purpose::Lookup, Vec::new());
        let request =
            HttpRequest { method: "GET", url: url.into(), headers, body: Vec::new(), purpose, is_trusted: false };
        let request = self.request(request, endpoint, &TurnHeaders::default())?;

        let answer = timeout(check.timeout, self.clients.send(&request, None, true, &Arc::default())?).await;
        match answer {
            Ok(Ok(answer)) if answer.status.is_success() => Ok(()),
            Ok(Ok(answer)) => Err(failed(format!("status {}", answer.status))),
            Ok(Err(error)) => Err(failed(interlingua_core::fault::error_chain(&error.without_url()))),
            Err(_) => Err(failed(format!("no answer after {:?}", check.timeout))),
        }
    }
}
