//! Sends telemetry to a collector: OTLP/HTTP with Protobuf, and OTLP/gRPC.
//!
//! A unary call of gRPC is a POST over HTTP/2 with a length before its message, and a status after the answer; this
//! module writes these. Redirects are not followed, proxies of the environment not used, and the size of an answer is
//! limited. Not here: the telemetry, and its retries (`interlingua_observe`).

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::future::{BoxFuture, FutureExt as _};
use hyper::body::Body as _;
use interlingua_core::fault::error_chain;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, TE};
use reqwest::redirect::Policy;
use reqwest::{Body, Client, Response, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;
use url::Url;

use super::tls;
use interlingua_base::ports::{ExportError, Signal, TelemetryClient};

/// The limit of one request, in all.
const TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after which a dead connection is detected while a request is in progress.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The most bytes of an answer.
const MAX_ANSWER: usize = 64 * 1024;
/// The longest pause that a collector may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(30);
const USER_AGENT: &str = concat!("interlingua/", env!("CARGO_PKG_VERSION"));

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// Calls of gRPC, over HTTP/2.
    Grpc,
    /// POST requests with Protobuf.
    Http,
}

/// A collector.
pub struct Collector {
    client: Client,
    endpoint: Url,
    protocol: OtlpProtocol,
    headers: HeaderMap,
}

impl Collector {
    /// The client of a collector. Nothing is connected yet. `endpoint`: without the path of a signal. `headers`: sent
    /// with every request; names in lower case.
    ///
    /// # Errors
    /// A sentence for the operator: a header that HTTP does not allow, or TLS that cannot be set up.
    pub fn new(endpoint: Url, protocol: OtlpProtocol, headers: &[(String, SecretString)]) -> Result<Self, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header name"))?;
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_| format!("the value of header {name:?} has characters that are not allowed"))?;
            value.set_sensitive(true);
            map.append(known, value);
        }

        let is_secure = endpoint.scheme() == "https";
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .user_agent(USER_AGENT)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(1)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_INTERVAL);
        let mut config = tls::client_config(is_secure);
        if protocol == OtlpProtocol::Grpc {
            tls::offer(&mut config, &[tls::HTTP_2]);
            builder = builder.http2_prior_knowledge();
        }
        let client = builder.tls_backend_preconfigured(config).build().map_err(|error| error_chain(&error))?;
        Ok(Self { client, endpoint, protocol, headers: map })
    }

    fn url(&self, signal: Signal) -> Url {
        let below = match (self.protocol, signal) {
            (OtlpProtocol::Http, signal) => format!("v1/{}", signal.as_str()),
            (OtlpProtocol::Grpc, Signal::Traces) => service("trace", "TraceService"),
            (OtlpProtocol::Grpc, Signal::Metrics) => service("metrics", "MetricsService"),
            (OtlpProtocol::Grpc, Signal::Logs) => service("logs", "LogsService"),
        };
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}/{below}", self.endpoint.path().trim_end_matches('/')));
        url
    }
}

fn service(package: &str, name: &str) -> String {
    format!("opentelemetry.proto.collector.{package}.v1.{name}/Export")
}

impl TelemetryClient for Collector {
    fn export(&self, signal: Signal, request: Bytes) -> BoxFuture<'static, Result<Bytes, ExportError>> {
        let is_grpc = self.protocol == OtlpProtocol::Grpc;
        let request = self.client.post(self.url(signal)).headers(self.headers.clone()).body(match is_grpc {
            true => framed(&request),
            false => request,
        });
        let request = if is_grpc {
            request.header(CONTENT_TYPE, "application/grpc").header(TE, "trailers")
        } else {
            request.header(CONTENT_TYPE, "application/x-protobuf")
        };

        async move {
            let exchange = async {
                let response = request.send().await.map_err(|error| again(error_chain(&error.without_url())))?;
                if is_grpc { grpc_answer(response).await } else { http_answer(response).await }
            };
            let late = || Err(again(format!("no answer within {TIMEOUT:?}")));
            timeout(TIMEOUT, exchange).await.unwrap_or_else(|_| late())
        }
        .boxed()
    }
}

/// A message of gRPC: not compressed, and how long it is.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// The message in the body of an answer. Empty if the body contains no complete message.
fn unframed(mut body: Bytes) -> Bytes {
    match body.first_chunk() {
        Some([0, a, b, c, d]) => {
            let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            let message = body.split_off(5);
            message.get(..length).map(|_| message.slice(..length)).unwrap_or_default()
        }
        _ => Bytes::new(),
    }
}

async fn http_answer(response: Response) -> Result<Bytes, ExportError> {
    let status = response.status();
    let retry_after = retry_after(response.headers());
    if !status.is_success() {
        // These four, by the specification of OTLP/HTTP.
        let retryable = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ]
        .contains(&status);
        return Err(ExportError { retryable, retry_after, reason: format!("answered {}", status.as_u16()) });
    }
    Ok(read(response).await?.0)
}

async fn grpc_answer(response: Response) -> Result<Bytes, ExportError> {
    let status = response.status();
    if status != StatusCode::OK {
        // A proxy's answer.
        let retryable = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let retry_after = retry_after(response.headers());
        return Err(ExportError { retryable, retry_after, reason: format!("answered {}", status.as_u16()) });
    }

    let in_headers = grpc_status(response.headers());
    let (body, trailers) = match in_headers {
        // An answer without a message has its status in front.
        Some(_) => (Bytes::new(), None),
        None => read(response).await?,
    };
    match in_headers.or_else(|| trailers.as_ref().and_then(grpc_status)) {
        Some(0) => Ok(unframed(body)),
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS, by the specification of
        // OTLP/gRPC.
        Some(code) => Err(ExportError {
            retryable: matches!(code, 1 | 4 | 10 | 11 | 14 | 15),
            retry_after: None,
            reason: format!("status {code} of gRPC"),
        }),
        None => Err(again("an answer without a status of gRPC".to_owned())),
    }
}

fn grpc_status(headers: &HeaderMap) -> Option<u32> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// The body of an answer, and what follows it.
async fn read(response: Response) -> Result<(Bytes, Option<HeaderMap>), ExportError> {
    let mut body: Body = hyper::Response::from(response).into_body();
    let (mut whole, mut trailers) = (BytesMut::new(), None);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| again(error_chain(&error)))?;
        match frame.into_data() {
            Ok(data) if whole.len() + data.len() > MAX_ANSWER => {
                let reason = format!("an answer of more than {MAX_ANSWER} bytes");
                return Err(ExportError { retryable: false, retry_after: None, reason });
            }
            Ok(data) => whole.extend_from_slice(&data),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((whole.freeze(), trailers))
}

fn again(reason: String) -> ExportError {
    ExportError { retryable: true, retry_after: None, reason }
}

/// The pause that a collector asks for, in seconds. A date is not understood: the usual pause does.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_has_its_url() {
        let url = |endpoint: &str, protocol, signal| {
            let collector = Collector::new(Url::parse(endpoint).expect("a URL"), protocol, &[]).expect("a collector");
            collector.url(signal).to_string()
        };
        assert_eq!(url("http://h:4318", OtlpProtocol::Http, Signal::Traces), "http://h:4318/v1/traces");
        assert_eq!(url("http://h/otlp/?k=1", OtlpProtocol::Http, Signal::Logs), "http://h/otlp/v1/logs?k=1");
        assert_eq!(
            url("http://h:4317", OtlpProtocol::Grpc, Signal::Metrics),
            "http://h:4317/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
        );
    }

    #[test]
    fn messages_have_their_length_in_front() {
        let frame = framed(b"abc");
        assert_eq!(&frame[..], b"\0\0\0\0\x03abc");
        assert_eq!(unframed(frame.clone()), "abc");
        for broken in [frame.slice(..7), frame.slice(..4), Bytes::from_static(b"\x01\0\0\0\x01a"), Bytes::new()] {
            assert_eq!(unframed(broken.clone()), "", "{broken:?}");
        }
    }

    #[test]
    fn a_pause_is_bounded() {
        let pause = |value: &str| {
            let value = HeaderValue::from_str(value).expect("a value");
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)])).map(|pause| pause.as_secs())
        };
        assert_eq!([pause("3"), pause("99999999"), pause("soon"), pause("-1")], [Some(3), Some(30), None, None]);
    }
}
