//! Collectors of telemetry: one that speaks HTTP, made of the scripted server, and one that speaks gRPC.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::server::SendResponse;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Request, Response};
use interlingua::clock;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::TcpListener;

use super::upstream::{ReceivedRequest, Reply, Upstream};

/// The records of the collector, in all requests so far.
#[derive(Clone, Debug, Default)]
pub struct CollectorRecords {
    pub spans: Vec<Span>,
    pub metrics: Vec<Metric>,
    pub logs: Vec<LogRecord>,
    pub resources: Vec<KeyValue>,
    /// All bytes of all requests.
    pub raw: Vec<u8>,
}

impl CollectorRecords {
    /// Adds a request. Panics if its path is unknown.
    pub fn add(&mut self, path: &str, body: &[u8]) {
        self.raw.extend_from_slice(body);
        if path.contains("trace") {
            let request = ExportTraceServiceRequest::decode(body).expect("spans");
            for resource in request.resource_spans {
                self.resources.extend(resource.resource.expect("a resource").attributes);
                self.spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        } else if path.contains("metrics") {
            let request = ExportMetricsServiceRequest::decode(body).expect("metrics");
            for resource in request.resource_metrics {
                self.metrics.extend(resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics));
            }
        } else {
            let request = ExportLogsServiceRequest::decode(body).expect("log records");
            for resource in request.resource_logs {
                self.logs.extend(resource.scope_logs.into_iter().flat_map(|scope| scope.log_records));
            }
        }
    }

    /// The only span whose name begins so.
    pub fn span(&self, name: &str) -> &Span {
        let found: Vec<&Span> = self.spans.iter().filter(|span| span.name.starts_with(name)).collect();
        assert_eq!(found.len(), 1, "{name} among {:?}", self.spans.iter().map(|span| &span.name).collect::<Vec<_>>());
        found[0]
    }
}

/// The records of an HTTP collector.
pub fn received(collector: &Upstream) -> CollectorRecords {
    let mut received = CollectorRecords::default();
    for request in collector.requests() {
        received.add(&request.path, &request.body);
    }
    received
}

/// A collector that takes everything.
pub fn http_collector() -> Upstream {
    Upstream::with_handler(|_: &ReceivedRequest| {
        Reply::complete(200, &[("content-type", "application/x-protobuf")], b"")
    })
}

/// An attribute as text.
pub fn text(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?;
    show(value)
}

fn show(value: &AnyValue) -> Option<String> {
    Some(match value.value.as_ref()? {
        Value::StringValue(text) => text.clone(),
        Value::BoolValue(value) => value.to_string(),
        Value::IntValue(value) => value.to_string(),
        Value::DoubleValue(value) => value.to_string(),
        Value::ArrayValue(list) => list.values.iter().filter_map(show).collect::<Vec<_>>().join(","),
        other => format!("{other:?}"),
    })
}

/// The body of a log record.
pub fn body(record: &LogRecord) -> String {
    record.body.as_ref().and_then(show).unwrap_or_default()
}

/// The answer of a gRPC collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A message and a status after it.
    Good,
    /// This status after a message, or before it if there is no message.
    Status { code: u16, in_front: bool },
    /// Never.
    Silence,
}

/// A collector that speaks gRPC.
pub struct GrpcCollector {
    pub address: SocketAddr,
    received: Arc<Mutex<CollectorRecords>>,
    paths: Arc<Mutex<Vec<(String, HeaderMap)>>>,
}

impl GrpcCollector {
    /// Answers as these say, one after the other, and then as the last one.
    pub async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (received, paths) =
            (Arc::<Mutex<CollectorRecords>>::default(), Arc::<Mutex<Vec<(String, HeaderMap)>>>::default());
        let (store, heads) = (Arc::clone(&received), Arc::clone(&paths));
        let answers = Arc::new(Mutex::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (store, heads, answers) = (Arc::clone(&store), Arc::clone(&heads), Arc::clone(&answers));
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let answer = {
                            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
                            if answers.len() > 1 { answers.remove(0) } else { answers[0] }
                        };
                        let head = (request.uri().path().to_owned(), request.headers().clone());
                        heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                        tokio::spawn(serve(request, respond, answer, Arc::clone(&store)));
                    }
                });
            }
        });
        Self { address, received, paths }
    }

    pub fn received(&self) -> CollectorRecords {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Path and headers of all requests so far.
    pub fn heads(&self) -> Vec<(String, HeaderMap)> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    answer: Answer,
    received: Arc<Mutex<CollectorRecords>>,
) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut message = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        message.extend_from_slice(&data);
    }
    let status = |code: u16| HeaderMap::from_iter([("grpc-status".parse().expect("a name"), HeaderValue::from(code))]);
    let head = || Response::builder().header("content-type", "application/grpc");
    match answer {
        Answer::Silence => std::future::pending().await,
        Answer::Status { code, in_front: true } => {
            let response = head().header("grpc-status", code).body(()).expect("a response");
            let _ = respond.send_response(response, true);
            return;
        }
        Answer::Status { code, in_front: false } => {
            let mut stream = respond.send_response(head().body(()).expect("a response"), false).expect("a stream");
            let _ = stream.send_trailers(status(code));
            return;
        }
        Answer::Good => {}
    }

    let length = u32::from_be_bytes(message[1..5].try_into().expect("four bytes")) as usize;
    assert_eq!((message[0], message.len()), (0, 5 + length), "one message, not compressed");
    received.lock().unwrap_or_else(PoisonError::into_inner).add(&path, &message[5..]);
    let mut stream = respond.send_response(head().body(()).expect("a response"), false).expect("a stream");
    let _ = stream.send_data(Bytes::from_static(b"\0\0\0\0\0"), false);
    let _ = stream.send_trailers(status(0));
}

/// A trace that a client has begun, as the header names it. `sampled`: the client records it.
pub fn client_trace(sampled: bool) -> (u128, u64, String) {
    let (trace, span) = (clock::new_trace_id(), clock::new_span_id());
    (trace, span, format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled)))
}
