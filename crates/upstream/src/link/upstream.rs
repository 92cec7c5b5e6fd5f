//! One agent that is reached over a link.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, ready};
use futures_util::stream::StreamExt as _;
use interlingua_core::capability::UpstreamCapabilities;
use interlingua_core::connector::{Connector, HttpRequest, LinkInfo, LinkMessages, TurnRequest};
use interlingua_core::{Fault, FaultKind};
use tokio::time::{Instant, timeout};

use super::links::{Link, Links};
use super::wire::{Dial, LinkLimits};
use crate::conversation::{Body, Conversation, Form, Reply, StopAnswer, Transport};
use crate::send_error::SendError;
use crate::{ResponseTimeouts, SendOptions, Upstream};

/// Limit for the messages that stop an agent.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// An agent that is reached over a link. It sends no HTTP requests.
pub struct LinkUpstream {
    connector: Arc<dyn Connector>,
    links: Arc<Links>,
    max_message: usize,
    idle: Duration,
    total: Duration,
}

impl LinkUpstream {
    /// The agent of a connector, to which `dial` connects. `idle` limits a silence within a turn, `total` a whole turn.
    #[must_use]
    pub fn new(
        connector: Arc<dyn Connector>,
        dial: Arc<dyn Dial>,
        limits: LinkLimits,
        idle: Duration,
        total: Duration,
    ) -> Self {
        let (of_links, max_message) = (Arc::clone(&connector), limits.max_message);
        let links = Arc::new(Links::new(dial, Box::new(move || of_links.link()), limits));
        Self { connector, links, max_message, idle, total }
    }
}

impl Upstream for LinkUpstream {
    fn capabilities(&self) -> UpstreamCapabilities {
        self.connector.capabilities()
    }

    fn start(&self, request: &TurnRequest<'_>, _: SendOptions<'_>) -> Result<Conversation, Fault> {
        let turn = self.connector.turn(request)?;
        let transport = LinkTransport {
            links: Arc::clone(&self.links),
            used: Arc::default(),
            max_message: self.max_message,
            idle: self.idle,
            total: self.total,
        };
        Ok(Conversation::new(turn, Box::new(transport), self.total))
    }
}

/// The way of one turn to the link.
struct LinkTransport {
    links: Arc<Links>,
    /// The link that the turn uses.
    used: Arc<Mutex<Option<Arc<Link>>>>,
    max_message: usize,
    idle: Duration,
    total: Duration,
}

impl LinkTransport {
    /// The link that the turn has opened.
    fn used(&self) -> Result<Arc<Link>, Fault> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).clone();
        used.ok_or_else(|| Fault::new(FaultKind::Internal, "the turn has not opened the connection to the agent"))
    }
}

impl Transport for LinkTransport {
    fn send(&self, _: HttpRequest, _: Instant) -> BoxFuture<'static, Result<Reply, SendError>> {
        ready(Err(SendError::from(no_http()))).boxed()
    }

    fn cancel(&self, _: HttpRequest) -> BoxFuture<'static, Result<StopAnswer, Fault>> {
        ready(Err(no_http())).boxed()
    }

    fn connect(&self) -> BoxFuture<'static, Result<LinkInfo, SendError>> {
        let (links, used) = (Arc::clone(&self.links), Arc::clone(&self.used));
        async move {
            let (link, info) = links.connect().await?;
            *used.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
            Ok(info)
        }
        .boxed()
    }

    fn converse(&self, messages: LinkMessages, since: Instant) -> BoxFuture<'static, Result<Reply, SendError>> {
        let (link, timeouts) = (self.used(), ResponseTimeouts::new(since, self.idle, self.total));
        let max_message = self.max_message;
        async move {
            let topic = link?.converse(messages).await?;
            Ok(Reply::Answer(Box::new(Body::new(topic.boxed(), Form::Messages, max_message, Some(timeouts)))))
        }
        .boxed()
    }

    fn notify(&self, messages: LinkMessages) -> BoxFuture<'static, Result<(), Fault>> {
        let link = self.used();
        async move {
            timeout(NOTIFY_TIMEOUT, link?.send(messages)).await.unwrap_or_else(|_| {
                Err(Fault::new(FaultKind::UpstreamTimeout, "the agent does not read what it is sent"))
            })
        }
        .boxed()
    }
}

fn no_http() -> Fault {
    Fault::new(FaultKind::Internal, "the agent is reached over a link, which carries no HTTP requests")
}
