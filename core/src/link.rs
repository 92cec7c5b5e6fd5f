//! A link: a connection to an agent that outlasts turns, as a pure state machine.
//!
//! Some agents take messages in both directions over one connection: the gateway sends prompts, the agent sends updates
//! and questions, and a question stays open on the connection until a later turn answers it. An [`AgentLink`] is the
//! protocol's part of such a connection. It performs the handshake, gives messages their ids, answers what needs no
//! turn, and delivers all other messages to topics. A turn reads one topic, such as a session
//! ([`Next::Converse`](crate::connector::Next::Converse)).
//!
//! ```text
//! open ─► on_message* ─► handshake: Some ─► on_send | on_message | on_time …
//! ```
//!
//! Not here: the connection itself, its limits and its inboxes (the gateway).

use crate::event::Millis;
use crate::fault::Fault;
use crate::json::Json;

/// The protocol's part of a connection to an agent.
///
/// Several turns use a link at the same time. It exists until the agent closes the connection, until the link fails, or
/// until the gateway closes an unused connection.
pub trait AgentLink: Send + 'static {
    /// The connection is open: writes the first messages.
    fn open(&mut self, now: Millis, out: &mut LinkOut);

    /// The result of the handshake, which each turn that uses the link receives. `None`: the handshake is not complete.
    fn handshake(&self) -> Option<Json>;

    /// Reads a message of the agent: answers it, delivers it to a topic, or ignores it.
    ///
    /// # Errors
    /// The connection cannot be used any longer. The gateway closes it, and the fault ends the turns that read from it.
    fn on_message(&mut self, message: &[u8], now: Millis, out: &mut LinkOut) -> Result<(), Fault>;

    /// Writes a message of a turn, for example after adding an id. By default writes it unchanged.
    fn on_send(&mut self, topic: &str, message: Vec<u8>, now: Millis, out: &mut LinkOut) {
        let _ = (topic, now);
        out.write(message);
    }

    /// The time at which [`on_time`](Self::on_time) is due, in milliseconds since the epoch. `None`: never.
    fn wake_at(&self) -> Option<Millis> {
        None
    }

    /// The time of [`wake_at`](Self::wake_at) has come.
    fn on_time(&mut self, now: Millis, out: &mut LinkOut) {
        let _ = (now, out);
    }

    /// True while the agent waits for an answer that a later turn gives. The gateway then keeps the link although no
    /// turn uses it.
    fn is_needed(&self) -> bool {
        false
    }
}

/// The steps that a link asks for, in order.
#[derive(Debug, Default)]
pub struct LinkOut {
    steps: Vec<LinkStep>,
}

/// One step that a link asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkStep {
    /// Write this message to the agent.
    Write(Vec<u8>),
    /// Hand this message to the turn that reads the topic. Without such a turn it is kept for the next one.
    Deliver {
        /// The topic.
        topic: String,
        /// The message as the turn reads it.
        message: Vec<u8>,
    },
}

impl LinkOut {
    /// Writes a message to the agent.
    pub fn write(&mut self, message: Vec<u8>) {
        self.steps.push(LinkStep::Write(message));
    }

    /// Hands a message to the turn that reads a topic.
    pub fn deliver(&mut self, topic: &str, message: &[u8]) {
        self.steps.push(LinkStep::Deliver { topic: topic.to_owned(), message: message.to_owned() });
    }

    /// Takes the steps out.
    pub fn take(&mut self) -> Vec<LinkStep> {
        std::mem::take(&mut self.steps)
    }
}

/// The link that a turn uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Differs for each connection, also after a restart and at other replicas. A connector that stores it with the
    /// session knows at the next turn whether the connection is still the same.
    pub id: String,
    /// The result of the handshake ([`AgentLink::handshake`]).
    pub handshake: Json,
}

/// Messages of a turn to its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkMessages {
    /// The topic whose messages the turn reads.
    pub topic: String,
    /// The messages, in order. They may be empty: the turn only reads.
    pub messages: Vec<Vec<u8>>,
}
