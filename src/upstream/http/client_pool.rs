//! Connections: one pool per thread, and for each request whether it got a new connection or a pooled one.
//!
//! A thread drives the connections it opened itself, so an answer never wakes another thread. Pools are shared by all
//! agents that a thread calls with the same limits.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use interlingua_core::{Fault, FaultKind};
use reqwest::Client;
use reqwest::redirect::Policy;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use crate::upstream::tls;

/// How long an unused connection is kept: less than the five seconds after which common servers close it, so that
/// hardly a request meets a connection that is being closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How many unused connections a thread keeps for one host.
const POOL_SIZE: usize = 64;

thread_local! {
    static CLIENTS: RefCell<Vec<(ClientPool, bool, Client)>> = const { RefCell::new(Vec::new()) };
}

/// How connections are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientPool {
    connect: Duration,
}

impl ClientPool {
    pub(super) fn new(connect: Duration) -> Self {
        Self { connect }
    }

    /// This thread's client. `secure`: whether it has to speak TLS.
    pub(super) fn client(self, secure: bool) -> Result<Client, Fault> {
        CLIENTS.with_borrow_mut(|clients| {
            let known = clients.iter().find(|(pool, for_tls, _)| *pool == self && *for_tls == secure);
            if let Some((_, _, client)) = known {
                return Ok(client.clone());
            }
            let client = self
                .build(secure)
                .map_err(|error| Fault::new(FaultKind::Internal, "the agent could not be asked").with_source(error))?;
            clients.push((self, secure, client.clone()));
            Ok(client)
        })
    }

    fn build(self, secure: bool) -> reqwest::Result<Client> {
        Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(self.connect)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_SIZE)
            .connector_layer(Watch)
            .tls_backend_preconfigured(tls::client_config(secure))
            .build()
    }
}

tokio::task_local! {
    static ATTEMPT: Arc<Attempt>;
}

/// How a request was sent: over a new connection or a pooled one.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    dialled: AtomicBool,
    connected: OnceLock<Instant>,
}

impl Attempt {
    /// Notes what happens while `sending` is polled.
    pub(super) fn watch<F: Future>(self: &Arc<Self>, sending: F) -> impl Future<Output = F::Output> + use<F> {
        ATTEMPT.scope(Arc::clone(self), sending)
    }

    /// True if a new connection was requested. Otherwise the request went over a pooled one.
    pub(super) fn dialled(&self) -> bool {
        self.dialled.load(Ordering::Relaxed)
    }

    /// When the connection was open, or the latest time it can be.
    pub(super) fn connected(&self, began: Instant, bound: Duration) -> Instant {
        match self.connected.get() {
            Some(moment) => *moment,
            None if self.dialled() => began + bound,
            None => began,
        }
    }
}

/// Wraps the making of connections.
#[derive(Clone, Copy)]
struct Watch;

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;
    fn layer(&self, inner: S) -> Watched<S> {
        Watched(inner)
    }
}

#[derive(Clone)]
struct Watched<S>(S);

impl<S, R> Service<R> for Watched<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, target: R) -> Self::Future {
        let attempt = ATTEMPT.try_with(Arc::clone).ok();
        if let Some(attempt) = &attempt {
            attempt.dialled.store(true, Ordering::Relaxed);
        }
        let connecting = self.0.call(target);
        Box::pin(async move {
            let connection = connecting.await?;
            if let Some(attempt) = attempt {
                // Set before only if the request was sent over a second connection.
                let _ = attempt.connected.set(Instant::now());
            }
            Ok(connection)
        })
    }
}
