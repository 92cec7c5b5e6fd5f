//! The bridge: takes the messages of the host, starts a task for each of them, and ends when the host has left.
//!
//! Messages are sent at the same time. Only the handshake of a session is in order: messages behind it wait for its
//! answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::budget::Share;
use super::call::{self, HANDSHAKE_TIMEOUT, OpenCall};
use super::lines::InputLine;
use super::link::Link;
use super::listener;
use super::message::{Failure, INITIALIZE, INITIALIZED, INVALID_REQUEST, Message, PARSE_ERROR, unreadable};
use super::session::Sessions;

/// The limit of open requests. Further ones are refused: waiting could be without end, since open requests may need a
/// message of the host to be answered.
const MAX_CALLS: usize = 1000;
/// The limit of all messages under way, so that open requests leave room for notifications and responses.
const MAX_TASKS: usize = 2 * MAX_CALLS;
/// The limit of messages and errors that wait to be written. A host that reads nothing gets no further errors.
const MAX_WRITES: usize = 3 * MAX_CALLS;
/// Time for open answers after the end of the input.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// The limit for the end of a session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that a cancellation waits until the server has begun to answer the request that it names.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the bridge.
pub(super) struct Bridge {
    link: Rc<Link>,
    sessions: Sessions,
    open: RefCell<Vec<Rc<OpenCall>>>,
    /// Closed when the last message of a handshake is answered.
    handshake: RefCell<Option<watch::Receiver<()>>>,
    /// The revision of the last message that named one.
    modern: RefCell<Option<String>>,
    /// The host has sent `initialize`.
    has_handshake: Cell<bool>,
}

/// Removes a request from the open ones when its task ends, however it ends.
struct OpenCallGuard {
    bridge: Rc<Bridge>,
    call: Rc<OpenCall>,
}

impl Drop for OpenCallGuard {
    fn drop(&mut self) {
        self.bridge.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, &self.call));
    }
}

impl Bridge {
    pub(super) fn new(link: Link) -> Rc<Self> {
        Rc::new(Self {
            link: Rc::new(link),
            sessions: Sessions::new(),
            open: RefCell::default(),
            handshake: RefCell::default(),
            modern: RefCell::default(),
            has_handshake: Cell::default(),
        })
    }

    /// Takes lines until the input ends, standard output is closed, or `stop` resolves.
    pub(super) async fn run(self: Rc<Self>, mut lines: mpsc::Receiver<InputLine>, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut tasks = JoinSet::new();
        let has_input_ended = {
            let mut listening = std::pin::pin!(listener::listen(&self.link, &self.sessions));
            loop {
                tokio::select! {
                    line = lines.recv() => match line {
                        Some(line) => self.take(line, &mut tasks),
                        None => break true,
                    },
                    Some(_) = tasks.join_next() => {}
                    () = &mut listening => {}
                    () = self.link.output.closed() => break false,
                    () = &mut stop => break false,
                }
            }
        };

        if has_input_ended {
            let answered = timeout(END_TIMEOUT, async { while tasks.join_next().await.is_some() {} });
            tokio::select! {
                _ = answered => {}
                () = self.link.output.closed() => {}
                () = &mut stop => {}
            }
        }
        tasks.shutdown().await;
        if let Some(session) = self.sessions.current().filter(|session| session.has_id()) {
            self.link.delete(&session.headers(), DELETE_TIMEOUT).await;
        }
    }

    /// Starts the task of a message.
    fn take(self: &Rc<Self>, line: InputLine, tasks: &mut JoinSet<()>) {
        let body = match line {
            InputLine::Message(body) => body,
            InputLine::TooLong => {
                return self.refuse_line(INVALID_REQUEST, "the message is larger than 64 MiB", tasks);
            }
        };
        let Some(message) = Message::parse(body) else {
            return self.refuse_line(PARSE_ERROR, "the line is not JSON", tasks);
        };
        let mut share = self.link.budget.share();
        // Before the limits, because it frees what they count.
        let is_sent = message.cancels.as_ref().is_none_or(|id| self.cancel(id));
        if !is_sent {
            return;
        }
        let has_room = tasks.len() < MAX_TASKS && (!message.is_request() || self.open.borrow().len() < MAX_CALLS);
        if !has_room || !share.resize(message.body.len()) {
            return self.refuse_message(&message, tasks);
        }
        if let Some(version) = &message.version {
            self.modern.replace(Some(version.clone()));
        }
        match message.id.clone().filter(|_| message.is_request()) {
            Some(id) => self.start_call(id, message, share, tasks),
            None => self.start_notification(message, share, tasks),
        }
    }

    fn start_call(self: &Rc<Self>, id: Value, message: Message, share: Share, tasks: &mut JoinSet<()>) {
        let call = Rc::new(OpenCall::new(id, message.version.is_some()));
        self.open.borrow_mut().push(Rc::clone(&call));
        let turn = self.turn(&message);
        let guard = OpenCallGuard { bridge: Rc::clone(self), call: Rc::clone(&call) };
        let task = tasks.spawn_local(async move {
            let _turn = turn.wait().await;
            call::run(&guard.bridge.link, &guard.bridge.sessions, message, share, &guard.call).await;
        });
        call.task.set(Some(task));
    }

    fn start_notification(self: &Rc<Self>, message: Message, share: Share, tasks: &mut JoinSet<()>) {
        let turn = self.turn(&message);
        let bridge = Rc::clone(self);
        tasks.spawn_local(async move {
            let _turn = turn.wait().await;
            if let Err(failure) = bridge.notify(&message).await {
                bridge.link.output.problem(&format!("{} was not delivered: {}", message.kind(), failure.text));
            }
            drop(share);
        });
    }

    /// Sends a notification or a response, and once more in a new session if the server lost the session.
    async fn notify(&self, message: &Message) -> Result<(), Failure> {
        if let Some(id) = &message.cancels {
            let named: Vec<_> = self.open.borrow().iter().filter(|call| call.id == *id).cloned().collect();
            let begun = async {
                for call in named {
                    call.wait_for_begin().await;
                }
            };
            // A server may ignore the cancellation of a request that it does not know yet.
            let _ = timeout(BEGIN_TIMEOUT, begun).await;
        }

        let modern = self.modern.borrow().clone().filter(|_| !self.has_handshake.get());
        let version = message.version.clone().or(modern);
        let session = self.sessions.current().filter(|_| version.is_none());
        let headers = match &version {
            Some(version) => message.headers(version),
            None => self.sessions.headers(),
        };
        let mut answer = self.link.post_limited(message.body.clone(), &headers).await?;
        if let Some(lost) = session.filter(|session| answer.status() == 404 && session.has_id()) {
            drop(answer);
            self.sessions.renew(&self.link, &lost).await?;
            answer = self.link.post_limited(message.body.clone(), &self.sessions.headers()).await?;
        }
        if !answer.is_success() {
            return Err(self.link.refusal(answer).await.failure);
        }
        if message.is_legacy(INITIALIZED) {
            self.sessions.set_initialized();
        }
        Ok(())
    }

    /// Cancels the requests with this id. True if the server has to be notified: in stateless revisions the closed
    /// connection is the cancellation.
    fn cancel(&self, id: &Value) -> bool {
        let named: Vec<_> = self.open.borrow().iter().filter(|call| call.id == *id).cloned().collect();
        for call in &named {
            match call.task.take().filter(|_| call.is_modern) {
                Some(task) => task.abort(),
                None => call.cancel(),
            }
        }
        if named.is_empty() { self.has_handshake.get() } else { named.iter().any(|call| !call.is_modern) }
    }

    /// The turn of a message in the order of the handshake.
    fn turn(&self, message: &Message) -> HandshakeTurn {
        if message.version.is_some() {
            return HandshakeTurn { previous: None, own: None };
        }
        let previous = self.handshake.borrow().clone();
        let is_handshake = message.is_legacy(INITIALIZE) || message.is_legacy(INITIALIZED);
        let own = is_handshake.then(|| {
            let (sender, receiver) = watch::channel(());
            self.handshake.replace(Some(receiver));
            self.has_handshake.set(true);
            sender
        });
        HandshakeTurn { previous, own }
    }

    fn refuse_line(self: &Rc<Self>, code: i64, text: &str, tasks: &mut JoinSet<()>) {
        self.link.output.problem(text);
        self.write(unreadable(code, text), tasks);
    }

    fn refuse_message(self: &Rc<Self>, message: &Message, tasks: &mut JoinSet<()>) {
        let text = format!("{} was not sent: too many messages are under way", message.kind());
        self.link.output.problem(&text);
        if let Some(id) = message.id.as_ref().filter(|_| message.is_request()) {
            self.write(Failure::new(text).line(id), tasks);
        }
    }

    fn write(self: &Rc<Self>, line: Vec<u8>, tasks: &mut JoinSet<()>) {
        if tasks.len() < MAX_WRITES {
            let bridge = Rc::clone(self);
            tasks.spawn_local(async move { bridge.link.output.message(line).await });
        }
    }
}

/// The place of a message behind a handshake. Messages behind it wait until it is dropped.
struct HandshakeTurn {
    previous: Option<watch::Receiver<()>>,
    own: Option<watch::Sender<()>>,
}

impl HandshakeTurn {
    /// Waits a limited time for the handshake before it. The result is to be kept until the message is answered.
    async fn wait(mut self) -> Option<watch::Sender<()>> {
        if let Some(mut previous) = self.previous.take() {
            // Fails when the sender is dropped, which is the end of the handshake.
            let _ = timeout(HANDSHAKE_TIMEOUT, previous.changed()).await;
        }
        self.own
    }
}
