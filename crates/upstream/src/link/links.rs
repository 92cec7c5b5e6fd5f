//! The connection of an agent: opened when a turn needs it, and again after it has ended.
//!
//! Not here: the task that owns it ([`super::driver`]).

use std::sync::Arc;

use interlingua_core::connector::{AgentLink, LinkInfo, LinkMessages};
use interlingua_core::{Fault, FaultKind, Json};
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;

use super::driver::Driver;
use super::inbox::{Inboxes, TopicReader};
use super::wire::{Dial, LinkLimits, closed};
use crate::send_error::{SendCause, SendError, SendProgress};

/// Number of messages of turns that wait until the link takes them.
const QUEUED_SENDS: usize = 64;

/// The link to one agent: at most one connection at a time.
pub(crate) struct Links {
    dial: Arc<dyn Dial>,
    protocol: Box<dyn Fn() -> Option<Box<dyn AgentLink>> + Send + Sync>,
    limits: LinkLimits,
    open: Mutex<Option<Arc<Link>>>,
}

/// An open link.
pub(crate) struct Link {
    id: String,
    commands: mpsc::Sender<LinkMessages>,
    inboxes: Arc<Inboxes>,
    handshake: watch::Receiver<Option<Json>>,
}

impl Links {
    /// Nothing is connected yet. `protocol` makes the protocol's part of a new connection.
    pub(crate) fn new(
        dial: Arc<dyn Dial>,
        protocol: Box<dyn Fn() -> Option<Box<dyn AgentLink>> + Send + Sync>,
        limits: LinkLimits,
    ) -> Self {
        Self { dial, protocol, limits, open: Mutex::default() }
    }

    /// The open link, or a new one, once its handshake is complete. Turns that ask at the same time share it.
    ///
    /// # Errors
    /// The agent cannot be reached, or does not complete the handshake in time. Nothing was sent for the turn.
    pub(crate) async fn connect(&self) -> Result<(Arc<Link>, LinkInfo), SendError> {
        let connected = self.connect_or_fail().await;
        connected.map_err(|fault| SendError { cause: SendCause::Fault(fault), reach: SendProgress::NotSent })
    }

    async fn connect_or_fail(&self) -> Result<(Arc<Link>, LinkInfo), Fault> {
        let link = {
            let mut open = self.open.lock().await;
            match open.as_ref().filter(|link| !link.commands.is_closed()) {
                Some(link) => Arc::clone(link),
                None => Arc::clone(open.insert(self.dial().await?)),
            }
        };
        let mut handshake = link.handshake.clone();
        let handshake = match handshake.wait_for(Option::is_some).await {
            Ok(handshake) => handshake.clone().unwrap_or_else(Json::null),
            Err(_) => return Err(link.inboxes.fault().unwrap_or_else(closed)),
        };
        let info = LinkInfo { id: link.id.clone(), handshake };
        Ok((link, info))
    }

    async fn dial(&self) -> Result<Arc<Link>, Fault> {
        let Some(protocol) = (self.protocol)() else {
            return Err(Fault::new(FaultKind::Internal, "the agent's protocol has no link"));
        };
        let wire = timeout(self.limits.connect, self.dial.dial()).await.unwrap_or_else(|_| {
            let fault = Fault::new(FaultKind::UpstreamTimeout, "the agent did not accept a connection in time");
            Err(fault.with_detail(format_args!("no connection within {:?}", self.limits.connect)))
        })?;
        let (commands, taken) = mpsc::channel(QUEUED_SENDS);
        let (announce, handshake) = watch::channel(None);
        let inboxes = Arc::new(Inboxes::new(self.limits.clone()));
        Driver::spawn(protocol, wire, Arc::clone(&inboxes), taken, announce, self.limits.clone());
        Ok(Arc::new(Link { id: interlingua_base::clock::new_id().to_string(), commands, inboxes, handshake }))
    }
}

impl Link {
    /// Reads a topic, after writing messages to it.
    ///
    /// # Errors
    /// Another turn reads the topic, or the link is closed: then nothing was written.
    pub(crate) async fn converse(&self, messages: LinkMessages) -> Result<TopicReader, SendError> {
        let refused = |fault| SendError { cause: SendCause::Fault(fault), reach: SendProgress::NotSent };
        // Read before anything is written, so that no answer is missed.
        let reader = Inboxes::read(&self.inboxes, &messages.topic).map_err(refused)?;
        self.send(messages).await.map_err(refused)?;
        Ok(reader)
    }

    /// Writes messages.
    ///
    /// # Errors
    /// The link is closed.
    pub(crate) async fn send(&self, messages: LinkMessages) -> Result<(), Fault> {
        if messages.messages.is_empty() {
            return Ok(());
        }
        let sent = self.commands.send(messages).await;
        sent.map_err(|_| self.inboxes.fault().unwrap_or_else(closed))
    }
}
