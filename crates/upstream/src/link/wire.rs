//! A connection to an agent: whole messages in both directions, and its limits.
//!
//! Not here: the meaning of messages (the connectors).

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use interlingua_core::{Fault, FaultKind};

/// A connection to an agent: whole messages in both directions.
pub struct Wire {
    /// The messages of the agent. The stream ends with the connection.
    pub incoming: BoxStream<'static, Result<Bytes, Fault>>,
    /// Writes messages to the agent.
    pub outgoing: Box<dyn WireWriter>,
}

/// Writes messages to a connection.
pub trait WireWriter: Send + 'static {
    /// Writes one message.
    ///
    /// # Errors
    /// If the connection is broken.
    fn write<'a>(&'a mut self, message: &'a [u8]) -> BoxFuture<'a, Result<(), Fault>>;
}

/// Connects to an agent.
pub trait Dial: Send + Sync + 'static {
    /// Opens a new connection.
    ///
    /// # Errors
    /// No connection could be opened.
    fn dial(&self) -> BoxFuture<'static, Result<Wire, Fault>>;
}

/// The limits of a link. All of them bound what an agent can make the gateway keep or wait for.
#[derive(Clone, Debug)]
pub struct LinkLimits {
    /// Time for the connection, and again for the handshake.
    pub connect: Duration,
    /// Time in which a message has to be written.
    pub write: Duration,
    /// Time after which a link that no turn uses and that is not needed is closed.
    pub unused: Duration,
    /// Largest message of the agent, in bytes. A turn that does not read keeps as much in its inbox.
    pub max_message: usize,
    /// Largest sum of the messages that a topic keeps between two turns, in bytes.
    pub max_kept: usize,
    /// Largest number of topics with messages between two turns.
    pub max_topics: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            write: Duration::from_secs(30),
            unused: Duration::from_secs(10 * 60),
            max_message: 8 * 1024 * 1024,
            max_kept: 256 * 1024,
            max_topics: 1000,
        }
    }
}

/// The connection has ended.
pub(super) fn closed() -> Fault {
    Fault::new(FaultKind::UpstreamTruncated, "the connection to the agent has ended")
}
