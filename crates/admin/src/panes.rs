//! A pane: encodes a run in one protocol step by step, as a client of the protocol would receive it.
//!
//! A pane opens an exchange with the sample request of the protocol. The request is decoded but never sent: the
//! exchange encodes the steps of the run. The bytes that a step adds to the output are the frames of its event. Not
//! here: several protocols at once, and the source of the steps ([`super::prism`]).

use std::sync::Arc;

use interlingua_core::call::{Delivery, DocumentCall, Reply, RunView};
use interlingua_core::exchange::{Caller, Mounted, Request};
use interlingua_core::model::Message;
use interlingua_core::sample::{SampleInput, SampleThread};
use interlingua_core::seal::Sealer;
use interlingua_core::{Call, Endpoint, Exchange, Fault, Flow, Next, Out, Owner, RunId, Step, Target};

use uuid::Uuid;

use super::mask;
use interlingua_base::clock;
use interlingua_server::served::ServedRoute;

/// Maximum lookups of an exchange before it runs the agent.
const MAX_LOOKUPS: usize = 8;

/// The mount of a protocol: of a route, or for the console only.
#[derive(Clone)]
pub(super) enum Encoding {
    Route(Arc<ServedRoute>),
    /// The protocol's name and its mount.
    Own(&'static str, Arc<Mounted>),
}

impl Encoding {
    fn protocol(&self) -> &'static str {
        match self {
            Self::Route(route) => route.scope.protocol,
            Self::Own(protocol, _) => protocol,
        }
    }

    fn mounted(&self) -> &Mounted {
        match self {
            Self::Route(route) => &route.mounted,
            Self::Own(_, mounted) => mounted,
        }
    }
}

/// One protocol of a run's agent.
pub(super) struct Pane {
    encoding: Encoding,
    exchange: Box<dyn Exchange>,
    out: Out,
    /// False: the protocol has a whole response after each turn.
    streams: bool,
    /// True: the response is complete. The next turn opens another response, like a client's next request.
    closed: bool,
    /// Whether the response has begun.
    begun: bool,
    /// The number of times the exchange was reopened.
    opened: u128,
    /// True: texts are masked. Only for the Agent API.
    masked: bool,
}

/// The output of a pane, or a lookup that the pane needs first.
pub(super) enum PaneOutput {
    Frames(String),
    Asks(Call),
}

impl Pane {
    /// Opens a pane. `None`: the protocol has no sample request, or its sample starts no run.
    pub(super) fn open(encoding: Encoding, run: RunView<'_>) -> Option<Self> {
        let (exchange, streams) = open_exchange(encoding.mounted(), run, run.run().id)?;
        Some(Self {
            encoding,
            exchange,
            out: Out::new(),
            streams,
            closed: false,
            begun: false,
            opened: 0,
            masked: false,
        })
    }

    /// Masks texts.
    pub(super) fn masked(self) -> Self {
        Self { masked: true, ..self }
    }

    /// The name of the protocol.
    pub(super) fn protocol(&self) -> &'static str {
        self.encoding.protocol()
    }

    /// Encodes one event.
    pub(super) fn step(&mut self, view: RunView<'_>, step: Step<'_>) -> String {
        if self.closed {
            self.reopen(view);
        }
        if self.streams && !self.closed {
            if !self.begun {
                self.exchange.head(&mut self.out.head);
                self.exchange.begin(view, &mut self.out);
                self.begun = true;
            }
            let flow = self.exchange.encode(step, &mut self.out);
            self.closed = flow != Flow::More;
            if flow == Flow::Next {
                self.finish(view);
            }
        }
        let frames = self.take();
        if self.masked { mask::frames(&frames, step.message().map(|(_, message)| &message.kind)) } else { frames }
    }

    /// Writes the end of a response that needs the whole run. A response that continues with another run ends here: that
    /// run has panes of its own.
    fn finish(&mut self, view: RunView<'_>) {
        if let Some(Call::Fetch(Target::Run(id))) = self.exchange.next_call()
            && id == view.run().id
            && let Err(fault) = self.exchange.reply(Reply::Run(view), &mut self.out)
        {
            self.exchange.interrupt(&fault, &mut self.out);
        }
    }

    /// The output when a run waits between two turns, or has ended: a whole response if the protocol does not stream.
    pub(super) fn pause(&mut self, view: RunView<'_>) -> PaneOutput {
        if self.closed {
            return PaneOutput::Frames(String::new());
        }
        if !self.streams {
            return self.reply(Reply::Run(view));
        }
        self.closed = self.exchange.pause(view, &mut self.out) != Flow::More;
        let frames = self.take();
        PaneOutput::Frames(if self.masked { mask::frames(&frames, None) } else { frames })
    }

    /// Continues with the result of a lookup.
    pub(super) fn reply(&mut self, reply: Reply<'_>) -> PaneOutput {
        self.closed = true;
        match self.exchange.reply(reply, &mut self.out) {
            Ok(Next::Call(call)) => PaneOutput::Asks(call),
            Ok(Next::Done) => PaneOutput::Frames(self.take()),
            Err(fault) => self.fail(&fault),
        }
    }

    /// Continues after a failed lookup.
    pub(super) fn fail(&mut self, fault: &Fault) -> PaneOutput {
        self.closed = true;
        match self.exchange.on_not_found(fault) {
            Some(call) => PaneOutput::Asks(call),
            None => {
                self.out = Out::new();
                self.exchange.fail(fault, &mut self.out);
                PaneOutput::Frames(self.take())
            }
        }
    }

    fn reopen(&mut self, view: RunView<'_>) {
        self.opened += 1;
        // Derived from the run's id, so that the frames are the same each time.
        let id = RunId(Uuid::from_u128(view.run().id.0.as_u128().wrapping_add(self.opened)));
        if let Some((exchange, streams)) = open_exchange(self.encoding.mounted(), view, id) {
            (self.exchange, self.streams, self.closed, self.begun) = (exchange, streams, false, false);
        }
    }

    fn take(&mut self) -> String {
        let bytes = Vec::from(self.out.body.split());
        String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// The last text in the client's first input, or the preview of a run without text.
pub(super) fn first_input(view: RunView<'_>) -> String {
    let first = view.run().turns.first();
    let message = first.and_then(|turn| turn.input.iter().rev().find(|message| !message.text().is_empty()));
    message.map_or_else(|| view.run().preview(), Message::text)
}

/// Opens an exchange with the sample request of its protocol, in the run's session and with the ids that its client
/// chose. Returns true if the response is a stream. `id`: the id of the request.
fn open_exchange(mounted: &Mounted, view: RunView<'_>, id: RunId) -> Option<(Box<dyn Exchange>, bool)> {
    let (run, text) = (view.run(), first_input(view));
    let thread = SampleThread { session: &run.session_id, previous: view.info.previous, said: &[] };
    let input = SampleInput { agent: &run.agent, text: &text, id, began: Some(run), thread: Some(thread) };
    // The client's ids may be invalid in this protocol: then the sample has ids of its own.
    decoded(mounted, &input).or_else(|| decoded(mounted, &SampleInput { began: None, ..input }))
}

/// Opens an exchange and decodes a sample request. `None` if it is invalid or starts no run.
fn decoded(mounted: &Mounted, input: &SampleInput<'_>) -> Option<(Box<dyn Exchange>, bool)> {
    let id = input.id;
    let sample = mounted.console.sample.as_ref()?(input);
    let is_it = |endpoint: &&Endpoint| endpoint.method == sample.method && endpoint.path == sample.endpoint;
    let mut exchange = (mounted.endpoints.iter().find(is_it)?.open)();
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(sample.headers.iter().map(|(name, value)| (&**name, value.as_str())));
    let caller = Caller { owner: Owner::anonymous(), authenticated: false };
    let body = serde_json::to_vec(&sample.body).ok()?;
    let decoded = exchange.decode(&Request {
        method: sample.method.as_str(),
        path: sample.endpoint,
        params: &sample.params,
        query: "",
        headers: &headers,
        body: &body,
        base_url: "",
        caller: &caller,
        now: clock::now(),
        new_id: id,
        sealer: &Sealer::default(),
    });

    let mut call = decoded.ok()?;
    for _ in 0..MAX_LOOKUPS {
        // Lookups before the run find nothing, as for a new client.
        call = match &call {
            Call::Run(call) => return Some((exchange, call.delivery == Delivery::Stream)),
            Call::Document(DocumentCall::Get { .. } | DocumentCall::List { .. }) => {
                next(exchange.reply(Reply::Documents(&[]), &mut Out::new()))?
            }
            Call::Document(_) => next(exchange.reply(Reply::Done, &mut Out::new()))?,
            _ => exchange.on_not_found(&Fault::not_found("what a new client looks up"))?,
        };
    }
    None
}

fn next(answered: Result<Next, Fault>) -> Option<Call> {
    match answered {
        Ok(Next::Call(next)) => Some(next),
        Ok(Next::Done) | Err(_) => None,
    }
}
