//! The task of one link: it owns the connection and the protocol's state machine.
//!
//! Writing has a task of its own, so that an agent which writes before it reads cannot block the link. Not here:
//! opening a connection ([`super::links`]).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _};
use interlingua_core::connector::{AgentLink, LinkMessages, LinkOut};
use interlingua_core::event::Millis;
use interlingua_core::link::LinkStep;
use interlingua_core::{Fault, FaultKind, Json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::inbox::Inboxes;
use super::wire::{LinkLimits, Wire, WireWriter, closed};
use interlingua_base::clock::now;

/// Number of messages that wait to be written.
const QUEUED_WRITES: usize = 256;
/// Number of checks within the time after which an unused link is closed.
const CHECKS_OF_USE: u32 = 10;
/// The shortest pause before the protocol's timer.
const MIN_PAUSE: Duration = Duration::from_millis(1);

/// The state of the task.
pub(super) struct Driver {
    protocol: Box<dyn AgentLink>,
    incoming: BoxStream<'static, Result<Bytes, Fault>>,
    writes: mpsc::Sender<Vec<u8>>,
    inboxes: Arc<Inboxes>,
    commands: mpsc::Receiver<LinkMessages>,
    announce: Option<watch::Sender<Option<Json>>>,
    limits: LinkLimits,
}

impl Driver {
    /// Starts the task. It ends with the connection, and once the link is not used.
    pub(super) fn spawn(
        protocol: Box<dyn AgentLink>,
        wire: Wire,
        inboxes: Arc<Inboxes>,
        commands: mpsc::Receiver<LinkMessages>,
        announce: watch::Sender<Option<Json>>,
        limits: LinkLimits,
    ) {
        let (writes, taken) = mpsc::channel(QUEUED_WRITES);
        let writing = write_all(wire.outgoing, taken, limits.write);
        let announce = Some(announce);
        let mut driver = Self { protocol, incoming: wire.incoming, writes, inboxes, commands, announce, limits };
        tokio::spawn(async move {
            let ended = tokio::select! {
                fault = driver.run() => fault,
                fault = writing => fault,
            };
            // The next turn opens another connection.
            driver.commands.close();
            driver.inboxes.end(&ended);
        });
    }

    /// Drives the link until it ends, and returns the reason.
    async fn run(&mut self) -> Fault {
        let mut out = LinkOut::default();
        self.protocol.open(now(), &mut out);
        let (mut used, handshake_ends) = (Instant::now(), Instant::now() + self.limits.connect);
        loop {
            if let Err(fault) = self.apply(&mut out) {
                return fault;
            }
            self.announce_handshake();

            let check = self.limits.unused / CHECKS_OF_USE;
            // At most once in a millisecond, even if the protocol's time stays in the past.
            let mut pause = self.protocol.wake_at().map_or(check, |at| until(at).max(MIN_PAUSE).min(check));
            if self.announce.is_some() {
                pause = pause.min(handshake_ends - Instant::now());
            }
            tokio::select! {
                message = self.incoming.next() => match message {
                    Some(Ok(message)) => {
                        used = Instant::now();
                        if let Err(fault) = self.protocol.on_message(&message, now(), &mut out) {
                            return fault;
                        }
                    }
                    Some(Err(fault)) => return fault,
                    None => return closed(),
                },
                command = self.commands.recv() => match command {
                    Some(LinkMessages { topic, messages }) => {
                        used = Instant::now();
                        for message in messages {
                            self.protocol.on_send(&topic, message, now(), &mut out);
                        }
                    }
                    // The agent was taken out of the configuration, and no turn uses the link.
                    None => return closed(),
                },
                () = sleep(pause) => {
                    if self.announce.is_some() && Instant::now() >= handshake_ends {
                        let limit = self.limits.connect;
                        return Fault::new(FaultKind::UpstreamTimeout, "the agent did not accept a connection in time")
                            .with_detail(format_args!("no handshake within {limit:?}"));
                    }
                    if self.protocol.wake_at().is_some_and(|at| at <= now()) {
                        self.protocol.on_time(now(), &mut out);
                    }
                    if self.inboxes.is_used() || self.protocol.is_needed() {
                        used = Instant::now();
                    } else if used.elapsed() >= self.limits.unused {
                        return closed();
                    }
                }
            }
        }
    }

    fn apply(&self, out: &mut LinkOut) -> Result<(), Fault> {
        for step in out.take() {
            match step {
                LinkStep::Deliver { topic, message } => self.inboxes.deliver(topic, message.into()),
                LinkStep::Write(message) => self.writes.try_send(message).map_err(|_| {
                    Fault::new(FaultKind::UpstreamTimeout, "the agent does not read what it is sent")
                        .with_detail(format_args!("{QUEUED_WRITES} messages wait to be written"))
                })?,
            }
        }
        Ok(())
    }

    fn announce_handshake(&mut self) {
        if self.announce.is_some()
            && let Some(handshake) = self.protocol.handshake()
            && let Some(announce) = self.announce.take()
        {
            announce.send_replace(Some(handshake));
        }
    }
}

/// Writes the messages of a channel, and returns the reason why that ended.
async fn write_all(mut wire: Box<dyn WireWriter>, mut taken: mpsc::Receiver<Vec<u8>>, limit: Duration) -> Fault {
    while let Some(message) = taken.recv().await {
        match timeout(limit, wire.write(&message)).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => return fault,
            Err(_) => {
                return Fault::new(FaultKind::UpstreamTimeout, "the agent does not read what it is sent")
                    .with_detail(format_args!("a message was not written within {limit:?}"));
            }
        }
    }
    closed()
}

fn until(at: Millis) -> Duration {
    Duration::from_millis(at.saturating_sub(now()))
}
