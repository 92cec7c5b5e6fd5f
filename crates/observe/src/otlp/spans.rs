//! The spans of a request that made a run: that of the request, that of the turn below it, and one for each call of a
//! tool below that.
//!
//! The request's span ends with its answer, that of the turn with the turn, which may be later; both are sent then.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interlingua_core::event::Millis;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;

use super::value::{Attributes, Origin};
use crate::access::shown_session;
use crate::conventions as names;
use crate::parts::{RequestParts, ServerSpan, ToolPart, TurnPart};
use interlingua_base::clock;

/// Flags of a span whose trace is sampled, and which says whether its parent is in another process.
const SAMPLED: u32 = 0x1;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The request for these, and how many spans it has.
pub(super) fn encode(origin: &Origin, ended: &[Arc<RequestParts>]) -> (Bytes, u64) {
    let spans: Vec<Span> = ended.iter().flat_map(|parts| spans(parts)).collect();
    let count = spans.len() as u64;
    let scope_spans = vec![ScopeSpans { scope: Origin::scope(), spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { resource: origin.resource(), scope_spans, ..ResourceSpans::default() }];
    (ExportTraceServiceRequest { resource_spans }.encode_to_vec().into(), count)
}

fn spans(parts: &RequestParts) -> Vec<Span> {
    let Some((ids, turn)) = parts.span.zip(parts.turn.as_ref()) else { return Vec::new() };
    let began = nanos_at(parts.at);
    let time = Range { start: began, end: began + nanos(parts.took.unwrap_or_default()) };
    let mut spans = vec![server_span(parts, ids, time)];

    // On the clock of the request, so that no span begins before its parent.
    let start = began + turn.began_at.zip(parts.started).map_or(0, |(turn, request)| nanos(turn - request));
    let time = Range { start, end: start + nanos(turn.took) };
    let span = turn.span.unwrap_or_else(clock::new_span_id);
    spans.push(turn_span(parts, turn, Ids { trace: ids.trace, span, parent: ids.span }, time));
    spans.extend(
        turn.tools.iter().map(|tool| {
            tool_span(tool, turn, Ids { trace: ids.trace, span: clock::new_span_id(), parent: span }, time)
        }),
    );
    spans
}

/// The ids of a span within the gateway.
#[derive(Clone, Copy)]
struct Ids {
    trace: u128,
    span: u64,
    parent: u64,
}

/// When a span began and ended, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// A moment within it.
    fn clamp(self, at: Millis) -> u64 {
        nanos_at(at).clamp(self.start, self.end)
    }
}

fn server_span(parts: &RequestParts, ids: ServerSpan, time: Range) -> Span {
    let route = format!("{}{}", parts.route.as_deref().unwrap_or_default(), parts.endpoint);
    let is_message = parts.method == "WEBSOCKET";
    let is_failed = parts.status >= 500;
    let mut attributes = Attributes::default();
    if is_message {
        attributes = attributes.text(names::NETWORK_PROTOCOL_NAME, "websocket");
    } else {
        attributes = attributes.text(names::HTTP_REQUEST_METHOD, &parts.method);
        attributes = attributes.text(names::NETWORK_PROTOCOL_VERSION, parts.version);
        if parts.status > 0 {
            attributes = attributes.number(names::HTTP_RESPONSE_STATUS_CODE, parts.status.into());
        }
    }
    let attributes = attributes
        .text(names::HTTP_ROUTE, &route)
        .text(names::URL_PATH, &parts.path)
        .text(names::URL_SCHEME, if parts.is_secure { "https" } else { "http" })
        .some_text(names::CLIENT_ADDRESS, parts.client.map(|client| client.to_canonical().to_string()).as_deref())
        .number(names::HTTP_REQUEST_BODY_SIZE, parts.bytes_in)
        .number(names::HTTP_RESPONSE_BODY_SIZE, parts.bytes_out)
        .text(names::REQUEST_ID, &parts.id)
        .text(names::CLIENT_PROTOCOL, parts.protocol)
        .some_text(names::CALLER, parts.caller.as_deref())
        .flag(names::CLIENT_LEFT, parts.client_left)
        .some_text(names::ERROR_TYPE, parts.code.as_deref().filter(|_| is_failed));

    let remote = if ids.parent.is_some() { IS_REMOTE } else { 0 };
    Span {
        trace_id: ids.trace.to_be_bytes().to_vec(),
        span_id: ids.span.to_be_bytes().to_vec(),
        parent_span_id: ids.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        flags: SAMPLED | HAS_IS_REMOTE | remote,
        name: format!("{} {route}", parts.method),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: time.start,
        end_time_unix_nano: time.end,
        attributes: attributes.done(),
        status: status(parts.code.as_deref().filter(|_| is_failed)),
        ..Span::default()
    }
}

fn turn_span(parts: &RequestParts, turn: &TurnPart, ids: Ids, time: Range) -> Span {
    let mut attributes = operation(names::INVOKE_AGENT, turn)
        .text(names::AGENT_VERSION, &turn.agent_version)
        .text(names::CONVERSATION_ID, &shown_session(&turn.session, parts.hide_session))
        .text(names::RESPONSE_ID, &turn.run)
        .texts(names::RESPONSE_FINISH_REASONS, turn.finish_reason)
        .text(names::RUN_STATE, turn.outcome)
        .some_text(names::ERROR_TYPE, turn.error_type);
    if let Some((host, port)) = &turn.server {
        attributes = attributes.text(names::SERVER_ADDRESS, host).number(names::SERVER_PORT, (*port).into());
    }
    if let Some((input, output)) = turn.usage {
        attributes = attributes.number(names::USAGE_INPUT_TOKENS, input).number(names::USAGE_OUTPUT_TOKENS, output);
    }
    if let Some(queued) = turn.queued {
        attributes = attributes.number(names::QUEUED_MS, u64::try_from(queued.as_millis()).unwrap_or(u64::MAX));
    }
    if let Some(messages) = &turn.messages {
        attributes = attributes.text(names::INPUT_MESSAGES, &messages.0).text(names::OUTPUT_MESSAGES, &messages.1);
    }

    let mut span = inner(ids, SpanKind::Client, format!("{} {}", names::INVOKE_AGENT, turn.agent), time);
    span.attributes = attributes.done();
    span.events = events(turn, time);
    span.status = status(turn.error_type);
    span
}

fn events(turn: &TurnPart, time: Range) -> Vec<Event> {
    let event = |at: u64, name: &str, attributes: Attributes| Event {
        time_unix_nano: at,
        name: name.to_owned(),
        attributes: attributes.done(),
        ..Event::default()
    };
    let items = |count: usize| Attributes::default().number(names::PENDING_ITEMS, count as u64);

    let mut events = Vec::new();
    if turn.answers > 0 {
        events.push(event(time.start, names::RESUMED_EVENT, items(turn.answers)));
    }
    for (at, reason) in &turn.first_retries {
        let reason = Attributes::default().text(names::RETRY_REASON, reason);
        events.push(event(time.clamp(*at), names::RETRY_EVENT, reason));
    }
    if let Some(count) = turn.waits_for {
        events.push(event(time.end, names::WAITING_EVENT, items(count)));
    }
    events
}

fn tool_span(tool: &ToolPart, turn: &TurnPart, ids: Ids, within: Range) -> Span {
    let start = tool.started_at.map_or(within.start, |at| within.clamp(at));
    let end = tool.ended_at.map_or(within.end, |at| within.clamp(at)).max(start);
    // In the words of the conventions: a function is run by the client, an extension by the agent.
    let kind = if tool.is_client_run { "function" } else { "extension" };
    let mut attributes = operation(names::EXECUTE_TOOL, turn)
        .text(names::TOOL_NAME, &tool.name)
        .text(names::TOOL_CALL_ID, &tool.call_id)
        .text(names::TOOL_TYPE, kind);
    if let Some(content) = &tool.content {
        attributes = attributes.text(names::TOOL_CALL_ARGUMENTS, &content.0).text(names::TOOL_CALL_RESULT, &content.1);
    }

    let name = format!("{} {}", names::EXECUTE_TOOL, tool.name);
    let mut span = inner(ids, SpanKind::Internal, name, Range { start, end });
    span.attributes = attributes.done();
    span
}

fn operation(name: &str, turn: &TurnPart) -> Attributes {
    Attributes::default()
        .text(names::OPERATION_NAME, name)
        .text(names::PROVIDER_NAME, &turn.provider)
        .text(names::AGENT_NAME, &turn.agent)
}

/// A span whose parent is one of the gateway.
fn inner(ids: Ids, kind: SpanKind, name: String, time: Range) -> Span {
    Span {
        trace_id: ids.trace.to_be_bytes().to_vec(),
        span_id: ids.span.to_be_bytes().to_vec(),
        parent_span_id: ids.parent.to_be_bytes().to_vec(),
        flags: SAMPLED | HAS_IS_REMOTE,
        // Tools are named by agents.
        name: interlingua_base::secrets::mask(name.trim_end()).into_owned(),
        kind: kind.into(),
        start_time_unix_nano: time.start,
        end_time_unix_nano: time.end,
        ..Span::default()
    }
}

/// The status of a span that failed with this code.
fn status(code: Option<&str>) -> Option<Status> {
    code.map(|code| Status { message: code.to_owned(), code: StatusCode::Error.into() })
}

fn nanos_at(at: Millis) -> u64 {
    at.saturating_mul(1_000_000)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}
