//! Connections: one pool per thread, and for each request whether it got a new connection or a pooled one.
//!
//! Agents without TLS and without a proxy are requested by [`super::plain`], all others by reqwest.
//!
//! A thread drives the connections it opened itself, so an answer never wakes another thread. Pools are shared by all
//! agents that a thread calls with the same limits, except for agents whose connections are made in a way of their own:
//! with TLS settings or through a proxy.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::Either;
use interlingua_core::Fault;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{self, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Url};
use secrecy::{ExposeSecret, SecretString};
use tower_layer::Layer;
use tower_service::Service;
use url::Host;

use super::answer::Answer;
use super::attempt::Attempt;
use super::client_error::ClientError;
use super::failure;
use super::outgoing::OutgoingRequest;
use super::plain::{self, IDLE_TIMEOUT, POOL_SIZE, PlainRequest};
use crate::tls;
use interlingua_base::tls::ClientTls;

thread_local! {
    static CLIENTS: RefCell<Vec<CachedClient>> = const { RefCell::new(Vec::new()) };
}

/// A client of this thread.
struct CachedClient {
    whose: ClientKey,
    to: KeyedDestination,
    secure: bool,
    client: Client,
}

/// The callers that may use a client.
enum ClientKey {
    /// All agents with this limit for connections.
    All(Duration),
    /// The agent with these settings, for as long as it exists.
    One(Weak<ConnectionSettings>),
}

/// Where a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyedDestination {
    /// The agent's own servers, which may see its client certificate.
    Own,
    /// This host of the agent, whatever name the URL has.
    Pinned(String),
    /// Others.
    Foreign,
}

/// The settings of connections.
#[derive(Clone, Debug, Default)]
pub struct ConnectionSettings {
    /// Limit for a connection, name lookup and TLS included.
    pub connect: Duration,
    /// TLS. `None`: as the system has it.
    pub tls: Option<ClientTls>,
    /// The name in the certificates of the agent's servers, if that is not the host of their URL.
    pub server_name: Option<String>,
    /// The proxy that all requests go through.
    pub proxy: Option<Proxy>,
}

/// A proxy.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// Where it is.
    pub url: Url,
    /// Name and password.
    pub credentials: Option<(String, SecretString)>,
}

impl Proxy {
    fn intercept(&self) -> reqwest::Result<reqwest::Proxy> {
        let proxy = reqwest::Proxy::all(self.url.clone())?;
        Ok(match &self.credentials {
            Some((name, password)) => proxy.basic_auth(name, password.expose_secret()),
            None => proxy,
        })
    }
}

/// Sends requests.
#[derive(Clone, Debug)]
pub(super) struct ClientPool(Arc<ConnectionSettings>);

impl ClientPool {
    pub(super) fn new(settings: ConnectionSettings) -> Self {
        Self(Arc::new(settings))
    }

    /// Limit for a connection.
    pub(super) fn connect(&self) -> Duration {
        self.0.connect
    }

    /// Sends a request by this thread's client. `extra` replaces the header of its name. `is_own`: the request goes to a
    /// server of the agent, which has the origin of the endpoint or a host that the operator allowed. `attempt` notes the
    /// progress.
    pub(super) fn send(
        &self,
        request: &OutgoingRequest,
        extra: Option<&(HeaderName, HeaderValue)>,
        is_own: bool,
        attempt: &Arc<Attempt>,
    ) -> Result<impl Future<Output = Result<Answer, ClientError>> + Send + use<>, Fault> {
        if request.target.is_plain && self.0.proxy.is_none() {
            let request = PlainRequest {
                method: &request.method,
                authority: &request.target.authority,
                host: &request.target.host,
                path: &request.target.path,
                headers: &request.headers,
                extra,
                body: request.body.as_ref(),
            };
            let sending = plain::send(&request, self.0.connect, Arc::clone(attempt));
            return Ok(Either::Left(async move { sending.await.map(Answer::of_plain).map_err(ClientError::Plain) }));
        }

        let mut request = request.to_client_request(extra);
        let secure = request.url().scheme() == "https";
        let to = match &self.0.server_name {
            _ if !is_own => KeyedDestination::Foreign,
            Some(name) if secure => pin(&mut request, name)?,
            _ => KeyedDestination::Own,
        };
        let sending = ATTEMPT.scope(Arc::clone(attempt), self.client(secure, to)?.execute(request));
        Ok(Either::Right(async move { sending.await.map(Answer::of_client).map_err(ClientError::Client) }))
    }

    fn client(&self, secure: bool, to: KeyedDestination) -> Result<Client, Fault> {
        // Without settings of its own, an agent shares its connections with others.
        let to = if self.is_shared() { KeyedDestination::Foreign } else { to };
        CLIENTS.with_borrow_mut(|clients| {
            let known =
                clients.iter().find(|known| self.owns(&known.whose) && known.to == to && known.secure == secure);
            if let Some(known) = known {
                return Ok(known.client.clone());
            }

            let client = self.build(secure, &to).map_err(|error| failure::not_asked().with_source(error))?;
            // Those of agents that a reload removed.
            clients.retain(|known| !matches!(&known.whose, ClientKey::One(settings) if settings.strong_count() == 0));
            let whose =
                if self.is_shared() { ClientKey::All(self.0.connect) } else { ClientKey::One(Arc::downgrade(&self.0)) };
            clients.push(CachedClient { whose, to, secure, client: client.clone() });
            Ok(client)
        })
    }

    fn is_shared(&self) -> bool {
        self.0.tls.is_none() && self.0.server_name.is_none() && self.0.proxy.is_none()
    }

    fn owns(&self, whose: &ClientKey) -> bool {
        match whose {
            ClientKey::All(connect) => self.is_shared() && *connect == self.0.connect,
            ClientKey::One(settings) => settings.as_ptr() == Arc::as_ptr(&self.0),
        }
    }

    fn build(&self, secure: bool, to: &KeyedDestination) -> reqwest::Result<Client> {
        let mut config = match &self.0.tls {
            Some(own) if secure => {
                tls::install_crypto();
                own.config(*to != KeyedDestination::Foreign)
            }
            _ => tls::client_config(secure),
        };
        // HTTP/2 would send the pinned name instead of the host.
        let is_pinned = matches!(to, KeyedDestination::Pinned(_));
        tls::offer(&mut config, if is_pinned { &[tls::HTTP_1] } else { &[tls::HTTP_2, tls::HTTP_1] });
        let mut builder = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(self.0.connect)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(POOL_SIZE)
            .connector_layer(Watch);
        if let KeyedDestination::Pinned(host) = to {
            builder = builder.dns_resolver(Arc::new(RealHost(host.clone())));
        }
        if let Some(proxy) = &self.0.proxy {
            builder = builder.proxy(proxy.intercept()?);
        }
        builder.tls_backend_preconfigured(config).build()
    }
}

/// Has the server verified by this name: TLS takes the name from the URL. The agent still gets the host that it knows
/// itself by.
fn pin(request: &mut Request, name: &str) -> Result<KeyedDestination, Fault> {
    let url = request.url();
    let host = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        _ => url.host_str().unwrap_or_default().to_owned(),
    };
    let authority = HeaderValue::from_str(&url[url::Position::BeforeHost..url::Position::AfterPort])
        .map_err(|error| failure::not_asked().with_source(error))?;
    request.url_mut().set_host(Some(name)).map_err(|error| failure::not_asked().with_source(error))?;
    // What the operator set wins.
    request.headers_mut().entry(header::HOST).or_insert(authority);
    Ok(KeyedDestination::Pinned(host))
}

/// Resolves every name to the addresses of one host.
struct RealHost(String);

impl Resolve for RealHost {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.0.clone();
        Box::pin(async move {
            // The port is that of the URL.
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            let addresses: Addrs = Box::new(found.into_iter());
            Ok(addresses)
        })
    }
}

tokio::task_local! {
    static ATTEMPT: Arc<Attempt>;
}

/// Wraps the making of connections.
#[derive(Clone, Copy)]
struct Watch;

impl<S> Layer<S> for Watch {
    type Service = WatchedConnection<S>;
    fn layer(&self, inner: S) -> WatchedConnection<S> {
        WatchedConnection(inner)
    }
}

#[derive(Clone)]
struct WatchedConnection<S>(S);

impl<S, R> Service<R> for WatchedConnection<S>
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
            attempt.note_dial();
        }
        let connecting = self.0.call(target);
        Box::pin(async move {
            let connection = connecting.await?;
            if let Some(attempt) = attempt {
                attempt.note_connection();
            }
            Ok(connection)
        })
    }
}
