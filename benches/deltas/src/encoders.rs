//! The exchanges that send streams, each with a request of a client.

use interlingua_core::exchange::{Exchange, Mounted};
use interlingua_core::model::{ContentType, MessageType, Role};
use interlingua_core::run::{CallHead, MessageStart};
use interlingua_core::{Endpoint, Out, Record};
use interlingua_core_testkit::{self as testkit, ClientRequest, TestRun};
pub use interlingua_testing_protocols::DeltaKind as Kind;
use interlingua_testing_protocols::{StreamForm, served};

/// Number of deltas that the connection takes at once.
pub const TAKEN: usize = 100;

/// A request whose answer is a stream, as a client of this protocol sends it.
pub struct StreamedRequest {
    /// Name of the protocol.
    pub protocol: &'static str,
    /// The form of the stream.
    pub form: &'static StreamForm,
    mounted: Mounted,
}

impl StreamedRequest {
    fn open(&self) -> Box<dyn Exchange> {
        let form = self.form;
        let is_asked = |endpoint: &&Endpoint| {
            (endpoint.path, endpoint.method, endpoint.websocket.is_some())
                == (form.endpoint, form.method(), form.is_websocket)
        };
        let endpoint = self.mounted.endpoints.iter().find(is_asked).expect("an endpoint");
        let mut exchange = (endpoint.open)();
        let headers = [&[("content-type", "application/json")], form.headers].concat();
        let method = if form.is_websocket { "WEBSOCKET" } else { form.method().as_str() };
        let request = ClientRequest {
            headers: &headers,
            body: form.body.as_bytes(),
            ..ClientRequest::new(method, form.endpoint)
        };
        request.decode(&mut *exchange).unwrap_or_else(|fault| panic!("{} {}: {fault:?}", self.protocol, form.name));
        exchange
    }

    /// Encodes the steps of a record but the last ones, as for a client that has just connected.
    ///
    /// # Panics
    /// If the request cannot be decoded.
    #[must_use]
    pub fn begin<'r>(&self, record: &'r Record, last: u64) -> Writing<'r> {
        let (mut exchange, mut out) = (self.open(), Out::new());
        exchange.head(&mut out.head);
        exchange.begin(TestRun::new(record).view(), &mut out);
        let next = record.len() - last;
        for sequence in 0..next {
            exchange.encode(record.step(sequence).expect("a recorded step"), &mut out);
        }

        out.body.clear();
        Writing { exchange, out, record, next }
    }
}

/// A stream to a client, from a step of its run on.
pub struct Writing<'r> {
    exchange: Box<dyn Exchange>,
    out: Out,
    record: &'r Record,
    next: u64,
}

impl Writing<'_> {
    /// Encodes the remaining steps. The connection takes the bytes from time to time. Returns how many it took.
    pub fn write_on(&mut self) -> usize {
        let mut taken = 0;
        for (nth, sequence) in (self.next..self.record.len()).enumerate() {
            let Some(step) = self.record.step(sequence) else { break };
            self.exchange.encode(step, &mut self.out);
            if nth % TAKEN == 0 {
                taken += self.out.body.len();
                self.out.body.clear();
            }
        }
        taken
    }
}

/// Every way in which a client gets a stream.
///
/// # Panics
/// If a protocol refuses its options.
#[must_use]
pub fn all() -> Vec<StreamedRequest> {
    let forms = served().flat_map(|(protocol, serves)| serves.streams.iter().map(move |form| (protocol, serves, form)));
    let requests = forms.map(|(protocol, serves, form)| {
        let mounted = (serves.mount)(&testkit::mount("/at", &["demo"]), form.options);
        StreamedRequest { protocol: protocol.name, form, mounted: mounted.expect("the options are valid") }
    });
    requests.collect()
}

/// A run with this number of deltas of one text in an open message.
#[must_use]
pub fn record(kind: Kind, text: &str, count: usize) -> Record {
    let mut record = testkit::started();
    let (of, content, call) = match kind {
        Kind::Text => (MessageType::Message, ContentType::Text, None),
        Kind::Reasoning => (MessageType::Reasoning, ContentType::Text, None),
        Kind::Arguments => {
            let head = CallHead { call_id: "call_1".to_owned(), name: "f".to_owned(), server_label: None };
            (MessageType::FunctionCall, ContentType::Data, Some(head))
        }
    };
    let message = record.start_message(MessageStart::new("", of, Role::Assistant));
    let content = record.start_content(message, content, call);
    let mut piece = text.to_owned();
    if kind == Kind::Arguments {
        record.push(message, content, r#"{"text":""#);
        piece = text.replace('"', "\\\"");
    }
    for _ in 0..count {
        record.push(message, content, &piece);
    }
    record
}
