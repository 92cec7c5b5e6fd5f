//! Telemetry for collectors (OTLP): spans with the right parents and attributes, metrics, log records; and a collector
//! that does not answer, which loses only its own telemetry.
//!
//! Not here: other programs that read it (`tests/conformance/operations`).

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::{Value, json};

use crate::support::agent::{approval_request, response, text_reply, text_reply_until};
use crate::support::collector::{
    Answer, CollectorRecords, GrpcCollector, body, client_trace, http_collector, received, text,
};
use crate::support::gateway::{Gateway, ROUTE, agent, user_turn, user_turn_in};
use crate::support::poll_until;
use crate::support::process::Process;
use crate::support::upstream::{ReceivedRequest, Reply, Upstream, unused_address};

const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway in front of an agent, with this `[observe]` table.
async fn observed(upstream: &Upstream, further: &str, observe: &str) -> Gateway {
    let agent = agent("friday", &upstream.url("/process"), "version = \"1.2\"", further);
    Gateway::with_config(&format!("[store]\nkind = \"memory\"\n[observe]\n{observe}\n{agent}{ROUTE}")).await
}

async fn ask(gateway: &Gateway, headers: &[(&str, &str)], body: &Value) -> u16 {
    let headers: Vec<(&str, &str)> = headers.iter().copied().chain([JSON]).collect();
    let path = "/agents/friday/process";
    gateway.open("POST", path, &headers, body.to_string().as_bytes()).await.response().await.status
}

/// The records of an HTTP collector, once it received this number of spans.
async fn spans(collector: &Upstream, count: usize) -> CollectorRecords {
    poll_until("the spans", async || Some(received(collector)).filter(|got| got.spans.len() >= count)).await
}

fn ids(span: &Span) -> (u128, u64, Option<u64>) {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    let trace = u128::from_be_bytes(span.trace_id.as_slice().try_into().expect("sixteen bytes"));
    let parent = (!span.parent_span_id.is_empty()).then(|| number(&span.parent_span_id));
    (trace, number(&span.span_id), parent)
}

/// Calls two tools, of which the second is the client's to run.
fn calls() -> Reply {
    let message = |id: &str, kind: &str, data: Value| {
        let content = json!({ "object": "content", "status": "completed", "type": "data", "index": 0, "delta": false, "data": data });
        json!({ "object": "message", "status": "completed", "id": id, "type": kind, "role": "assistant", "content": [content] })
            .to_string()
    };
    Reply::frames([
        response("created"),
        response("in_progress"),
        message("m1", "plugin_call", json!({ "call_id": "c1", "name": "look", "arguments": "{\"at\":\"sky\"}" })),
        message("m2", "plugin_call_output", json!({ "call_id": "c1", "output": "blue" })),
        message("m3", "function_call", json!({ "call_id": "c2", "name": "paint", "arguments": "{}" })),
        response("completed"),
    ])
}

#[tokio::test]
async fn a_run_has_the_spans_of_the_conventions() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let collector = http_collector();
    let observe = format!(
        "traces = {{ endpoint = \"{}\", headers = {{ x-tenant = \"seven\" }} }}\nservice_name = \"front\"",
        collector.url("/otlp")
    );
    let gateway = observed(&upstream, "", &observe).await;
    let (trace, client, header) = client_trace(true);
    let headers = [("traceparent", header.as_str()), ("tracestate", "vendor=x")];
    assert_eq!(ask(&gateway, &headers, &user_turn_in("s-1", "hello")).await, 200);

    let got = spans(&collector, 2).await;
    let request = &collector.requests()[0];
    assert_eq!((request.path.as_str(), request.headers["x-tenant"].as_str()), ("/otlp/v1/traces", "seven"));
    assert_eq!(request.headers["content-type"], "application/x-protobuf");
    assert_eq!(text(&got.resources, "service.name").as_deref(), Some("front"));

    let server = got.span("POST /agents/friday/process");
    assert_eq!((server.kind, ids(server).0, ids(server).2), (2, trace, Some(client)), "SERVER, of the client's span");
    let turn = got.span("invoke_agent friday");
    assert_eq!((turn.kind, ids(turn).0, ids(turn).2), (3, trace, Some(ids(server).1)), "CLIENT, of the request's span");
    let sent = upstream.requests()[0].headers["traceparent"].clone();
    assert_eq!(sent, format!("00-{trace:032x}-{:016x}-01", ids(turn).1), "the agent gets the turn's span");
    assert!(
        turn.start_time_unix_nano >= server.start_time_unix_nano && turn.end_time_unix_nano > turn.start_time_unix_nano
    );
    assert!(server.status.is_none() && turn.status.is_none());

    for (key, value) in [
        ("http.request.method", "POST"),
        ("http.route", "/agents/friday/process"),
        ("url.path", "/agents/friday/process"),
        ("url.scheme", "http"),
        ("http.response.status_code", "200"),
        ("client.address", "127.0.0.1"),
        ("network.protocol.version", "1.1"),
        ("interlingua.protocol", "agent-api"),
    ] {
        assert_eq!(text(&server.attributes, key).as_deref(), Some(value), "{key}");
    }
    let port = upstream.address().port().to_string();
    for (key, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.provider.name", "agent-api"),
        ("gen_ai.agent.name", "friday"),
        ("gen_ai.agent.version", "1.2"),
        ("gen_ai.conversation.id", "s-1"),
        ("gen_ai.response.finish_reasons", "stop"),
        ("gen_ai.usage.input_tokens", "1"),
        ("gen_ai.usage.output_tokens", "2"),
        ("server.address", "127.0.0.1"),
        ("server.port", port.as_str()),
        ("interlingua.run.state", "completed"),
    ] {
        assert_eq!(text(&turn.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert!(text(&turn.attributes, "gen_ai.response.id").is_some() && text(&turn.attributes, "error.type").is_none());
    assert!(!String::from_utf8_lossy(&got.raw).contains("hello"), "what is said is not sent");
}

#[tokio::test]
async fn failures_retries_and_waits_are_in_the_spans() {
    let unavailable = Reply::complete(503, &[("retry-after", "0")], "starting");
    let upstream = Upstream::in_order([
        unavailable,
        approval_request("ask_1"),
        text_reply(&["done"]),
        Reply::complete(500, &[], "no"),
    ]);
    let collector = http_collector();
    let observe = format!("traces = {{ endpoint = \"{}\" }}", collector.url(""));
    let gateway = observed(&upstream, "retries = 1", &observe).await;
    ask(&gateway, &[], &user_turn_in("s", "go")).await;
    let asked = spans(&collector, 2).await;
    let turn = asked.span("invoke_agent");
    let names: Vec<&str> = turn.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"interlingua.retry"), "{names:?}");
    assert_eq!(names.last(), Some(&"interlingua.waiting"), "{names:?}");
    assert_eq!(text(&turn.events[0].attributes, "interlingua.retry.reason").as_deref(), Some("status 503"));
    assert_eq!(text(&turn.attributes, "gen_ai.response.finish_reasons").as_deref(), Some("tool_call"));

    let answer = json!({
        "type": "mcp_approval_response", "role": "user",
        "content": [{ "type": "data", "data": { "approval_request_id": "ask_1", "approve": true } }],
    });
    ask(&gateway, &[], &json!({ "session_id": "s", "input": [answer] })).await;
    let resumed = spans(&collector, 4).await;
    let turns: Vec<&Span> = resumed.spans.iter().filter(|span| span.name.starts_with("invoke_agent")).collect();
    assert!(turns[1].events.iter().any(|event| event.name == "interlingua.resumed"), "{:?}", turns[1].events);
    assert_ne!(ids(turns[0]).0, ids(turns[1]).0, "requests without a trace begin their own");

    ask(&gateway, &[], &user_turn("fail")).await;
    let failed = spans(&collector, 6).await;
    let turn = failed.spans.iter().rfind(|span| span.name.starts_with("invoke_agent")).expect("a turn");
    let code = text(&turn.attributes, "error.type").expect("a code");
    assert_eq!(code, "AGENT_ERROR");
    assert_eq!(turn.status.as_ref().map(|status| (status.code, status.message.clone())), Some((2, code)));
    let server = failed.spans.iter().rfind(|span| span.name.starts_with("POST")).expect("a request");
    assert_eq!(text(&server.attributes, "http.response.status_code").as_deref(), Some("502"));
    assert_eq!(server.status.as_ref().map(|status| status.code), Some(2));
}

#[tokio::test]
async fn a_waiting_run_is_marked_in_its_span() {
    let upstream = Upstream::in_order([approval_request("ask_1"), text_reply(&["done"])]);
    let collector = http_collector();
    let observe = format!("[observe]\ntraces = {{ endpoint = \"{}\" }}\n", collector.url(""));
    let agent = agent("friday", &upstream.url("/process"), "", "");
    let routes = "[[routes]]\nprotocol = \"a2a\"\npath = \"/a2a/{agent}\"\n";
    let gateway = Gateway::with_config(&format!("[store]\nkind = \"memory\"\n{observe}{agent}{routes}")).await;
    let message = json!({ "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "go" }] });
    let sent = json!({ "message": message }).to_string();
    let headers = [JSON, ("a2a-version", "1.0")];
    let response = gateway.open("POST", "/a2a/friday/message:send", &headers, sent.as_bytes()).await.response().await;
    assert_eq!(response.status, 200, "{}", response.text());

    let got = spans(&collector, 2).await;
    let turn = got.span("invoke_agent");
    assert_eq!(turn.events.last().map(|event| event.name.as_str()), Some("interlingua.waiting"), "{:?}", turn.events);
    assert_eq!(text(&turn.events[0].attributes, "interlingua.pending_items").as_deref(), Some("1"));
    assert_eq!(text(&turn.attributes, "gen_ai.response.finish_reasons").as_deref(), Some("tool_call"));
    got.span("POST /a2a/friday/message:send");
}

#[tokio::test]
async fn each_call_of_a_tool_has_a_span_and_content_only_if_it_is_wanted() {
    for content in [false, true] {
        let upstream = Upstream::always(calls());
        let collector = http_collector();
        let observe = format!("traces = {{ endpoint = \"{}\", content = {content} }}", collector.url(""));
        let gateway = observed(&upstream, "", &observe).await;
        ask(&gateway, &[], &user_turn("what is up?")).await;
        let got = spans(&collector, 4).await;
        let turn = got.span("invoke_agent");
        for (name, call, kind) in [("look", "c1", "extension"), ("paint", "c2", "function")] {
            let tool = got.span(&format!("execute_tool {name}"));
            assert_eq!((tool.kind, ids(tool).0, ids(tool).2), (1, ids(turn).0, Some(ids(turn).1)), "INTERNAL");
            assert!(tool.start_time_unix_nano >= turn.start_time_unix_nano, "within the turn");
            assert!(tool.end_time_unix_nano <= turn.end_time_unix_nano, "within the turn");
            for (key, value) in [
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.tool.name", name),
                ("gen_ai.tool.call.id", call),
                ("gen_ai.tool.type", kind),
            ] {
                assert_eq!(text(&tool.attributes, key).as_deref(), Some(value), "{key}");
            }
        }

        let said = [text(&turn.attributes, "gen_ai.input.messages"), text(&turn.attributes, "gen_ai.output.messages")];
        let tool = got.span("execute_tool look");
        let of_tool = ["arguments", "result"].map(|part| text(&tool.attributes, &format!("gen_ai.tool.call.{part}")));
        if !content {
            assert_eq!((said, of_tool), ([None, None], [None, None]));
            continue;
        }
        assert_eq!(of_tool, [Some("{\"at\":\"sky\"}".to_owned()), Some("blue".to_owned())]);
        let [input, output] = said.map(|text| serde_json::from_str::<Value>(&text.expect("a text")).expect("JSON"));
        let parts = json!([{ "type": "text", "content": "what is up?" }]);
        assert_eq!(input, json!([{ "role": "user", "parts": parts }]));
        assert_eq!(output[1]["parts"][0]["result"], "blue", "{output}");
    }
}

#[tokio::test]
async fn clients_decide_for_their_traces_and_the_share_for_the_others() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let collector = http_collector();
    let gateway =
        observed(&upstream, "", &format!("traces = {{ endpoint = \"{}\", sample = 0 }}", collector.url(""))).await;
    let (not_recorded, recorded) = (client_trace(false), client_trace(true));
    ask(&gateway, &[("traceparent", &not_recorded.2)], &user_turn("a")).await;
    ask(&gateway, &[], &user_turn("b")).await;
    ask(&gateway, &[("traceparent", &recorded.2)], &user_turn("c")).await;
    let got = spans(&collector, 2).await;
    assert!(got.spans.iter().all(|span| ids(span).0 == recorded.0), "{:?}", got.spans);

    let sent: Vec<String> = upstream.requests().iter().map(|request| request.headers["traceparent"].clone()).collect();
    assert!(sent[0].starts_with(&format!("00-{:032x}-", not_recorded.0)) && sent[0].ends_with("-00"), "{sent:?}");
    assert!(sent[1].ends_with("-00") && sent[2].ends_with("-01"), "{sent:?}");
    gateway.stop().await;
    assert_eq!(received(&collector).spans.len(), 2, "nothing else was waiting");
}

#[tokio::test]
async fn a_run_that_outlives_its_request_has_both_spans_when_it_has_ended() {
    let upstream = Upstream::always(text_reply_until(&["so far"], "on"));
    let collector = http_collector();
    let (_folder, process) = process_with(&upstream, &collector.url(""), "", "on_disconnect = \"detach\"\n");
    let body = user_turn("go").to_string();
    let mut stream = process.open("POST", "/agents/friday/process", &[JSON], body.as_bytes()).await;
    stream.read_until("so far").await;
    drop(stream);
    poll_until("the gateway to notice it", async || {
        let text = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
        let open = "interlingua_streams_open{route=\"/agents/friday\",protocol=\"agent-api\"} 0";
        text.lines().any(|line| line == open).then_some(())
    })
    .await;
    assert_eq!(received(&collector).spans.len(), 0);

    upstream.open("on");
    let got = spans(&collector, 2).await;
    let (server, turn) = (got.span("POST"), got.span("invoke_agent"));
    assert!(turn.end_time_unix_nano > server.end_time_unix_nano, "the run went on");
    assert_eq!(ids(turn).2, Some(ids(server).1));
    assert_eq!(text(&server.attributes, "interlingua.client_left").as_deref(), Some("true"));
    assert_eq!(text(&turn.attributes, "interlingua.run.state").as_deref(), Some("completed"));
}

#[tokio::test]
async fn grpc_collectors_get_all_signals_and_their_status_counts() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let again = Answer::Status { code: 14, in_front: true };
    let collector = GrpcCollector::start(vec![again, Answer::Status { code: 14, in_front: false }, Answer::Good]).await;
    let observe = format!(
        "traces = {{ endpoint = \"http://{}\", protocol = \"grpc\" }}\nmetrics = {{}}\nlogs = {{}}",
        collector.address
    );
    let gateway = observed(&upstream, "", &observe).await;
    ask(&gateway, &[], &user_turn("hello")).await;
    poll_until("all after two refusals", async || {
        let got = collector.received();
        (!got.spans.is_empty() && !got.logs.is_empty()).then_some(())
    })
    .await;
    gateway.stop().await;

    let got = collector.received();
    assert_eq!((got.spans.len(), got.logs.len()), (2, 1), "each once");
    let names: Vec<&str> = got.metrics.iter().map(|metric| metric.name.as_str()).collect();
    // A busy machine may have sent them before.
    assert_eq!(
        names[names.len() - 3..],
        ["gen_ai.invoke_agent.duration", "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.token.usage"]
    );
    let heads = collector.heads();
    for service in ["trace.v1.TraceService", "metrics.v1.MetricsService", "logs.v1.LogsService"] {
        let path = format!("/opentelemetry.proto.collector.{service}/Export");
        let (_, head) = heads.iter().find(|(known, _)| *known == path).unwrap_or_else(|| panic!("{path}: {heads:?}"));
        assert_eq!(
            (&head["content-type"], &head["te"]),
            (&"application/grpc".parse().unwrap(), &"trailers".parse().unwrap())
        );
    }
}

#[tokio::test]
async fn turns_are_measured_and_requests_logged() {
    let upstream = Upstream::in_order([text_reply(&["hi"]), Reply::complete(500, &[], "no")]);
    let collector = http_collector();
    let endpoint = collector.url("");
    let observe =
        format!("metrics = {{ endpoint = \"{endpoint}\", every = \"1s\" }}\nlogs = {{ endpoint = \"{endpoint}\" }}");
    let gateway = observed(&upstream, "", &observe).await;
    ask(&gateway, &[], &user_turn_in("s", "hello")).await;
    ask(&gateway, &[], &user_turn("fail")).await;
    let got = poll_until("a report of both", async || {
        let got = received(&collector);
        let has_both = got
            .metrics
            .iter()
            .filter(|metric| metric.name == "gen_ai.invoke_agent.duration")
            .any(|metric| metric_points(metric).len() == 2);
        (has_both && got.logs.len() == 2).then_some(got)
    })
    .await;
    assert!(got.spans.is_empty(), "requests are not traced");
    assert!(!upstream.requests()[0].headers.contains_key("traceparent"));

    let last = |name: &str| got.metrics.iter().rfind(|metric| metric.name == name).expect(name);
    let duration = last("gen_ai.invoke_agent.duration");
    assert_eq!(duration.unit, "s");
    let errors: Vec<Option<String>> =
        metric_points(duration).iter().map(|point| text(&point.attributes, "error.type")).collect();
    assert!(errors.contains(&None) && errors.iter().flatten().any(|code| code == "AGENT_ERROR"), "{errors:?}");
    let tokens = last("gen_ai.client.token.usage");
    assert_eq!(tokens.unit, "{token}");
    for point in metric_points(tokens) {
        let kind = text(&point.attributes, "gen_ai.token.type").expect("a type");
        assert_eq!((point.count, point.sum), (1, Some(if kind == "input" { 1.0 } else { 2.0 })), "{kind}");
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        assert_eq!(text(&point.attributes, "gen_ai.provider.name").as_deref(), Some("agent-api"));
    }

    let line = &got.logs[0];
    assert_eq!((line.event_name.as_str(), line.severity_text.as_str()), ("interlingua.access", "INFO"));
    for (key, value) in [("agent", "friday"), ("session", "s"), ("status", "200"), ("outcome", "completed")] {
        assert_eq!(text(&line.attributes, key).as_deref(), Some(value), "{key}");
    }
    assert!(body(line).contains("POST /agents/friday/process"), "{}", body(line));
}

fn metric_points(
    metric: &opentelemetry_proto::tonic::metrics::v1::Metric,
) -> Vec<opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint> {
    match &metric.data {
        Some(Data::Histogram(histogram)) => {
            assert_eq!(histogram.aggregation_temporality, 2, "cumulative");
            histogram.data_points.clone()
        }
        other => panic!("{other:?}"),
    }
}

/// The gateway's count of dropped items, for each signal.
async fn dropped(process: &Process) -> Vec<u64> {
    let text = process.operate("GET", "/metrics", &[], b"").await.text().to_owned();
    let of = |signal: &str| {
        let line = format!("interlingua_otlp_dropped_total{{signal=\"{signal}\"}} ");
        let value = text.lines().find_map(|found| found.strip_prefix(line.as_str()));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{line} in {text}"))
    };
    ["traces", "metrics", "logs"].map(of).to_vec()
}

/// A process whose collectors are at this URL.
fn process(upstream: &Upstream, endpoint: &str, further: &str) -> (tempfile::TempDir, Process) {
    process_with(upstream, endpoint, further, "")
}

/// The same, with further lines of its route.
fn process_with(upstream: &Upstream, endpoint: &str, further: &str, route: &str) -> (tempfile::TempDir, Process) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndrain = \"1ms\"\n[store]\nkind = \"memory\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [observe]\ntraces = {{ endpoint = \"{endpoint}\"{further} }}\nmetrics = {{ every = \"1s\" }}\nlogs = {{}}\n{}{ROUTE}{route}",
        agent("friday", &upstream.url("/process"), "", "")
    );
    std::fs::write(folder.path().join("gateway.toml"), config).expect("a file");
    let process = Process::start_logging(folder.path());
    (folder, process)
}

async fn ask_process(process: &Process, text: &str) -> u16 {
    let body = user_turn(text).to_string();
    process.open("POST", "/agents/friday/process", &[JSON], body.as_bytes()).await.response().await.status
}

#[tokio::test]
async fn refusing_collectors_lose_their_data_and_no_stream() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let http = |reply: Reply| Upstream::with_handler(move |_: &ReceivedRequest| reply.clone());
    let redirect = Reply::complete(307, &[("location", "http://127.0.0.1:1/")], b"");
    let servers = [
        ("redirect", http(redirect)),
        ("too long", http(Reply::complete(200, &[], vec![0; 1 << 20]))),
        ("garbage", http(Reply::raw(b"SSH-2.0-server\r\n".to_vec()))),
        ("a flood", http(Reply::head(200, &[]).flood(vec![0; 1 << 16]))),
    ];
    for (what, server) in &servers {
        let (_folder, process) = process_of(&upstream, server);
        for _ in 0..3 {
            assert_eq!(ask_process(&process, "hello").await, 200, "{what}");
        }
        process.terminate();
        process.wait().await;
    }

    let refusing = http(Reply::complete(404, &[], b""));
    let (_folder, process) = process_of(&upstream, &refusing);
    assert_eq!(ask_process(&process, "hello").await, 200);
    let lost = poll_until("the count", async || {
        Some(dropped(&process).await).filter(|lost| lost[0] >= 2 && lost[1] >= 1 && lost[2] >= 1)
    });
    assert_eq!(lost.await[0], 2, "both spans");
    let partial = Reply::complete(200, &[], [0x0a, 0x02, 0x08, 0x01]);
    let partial = http(partial);
    let (_folder, process) = process_of(&upstream, &partial);
    assert_eq!(ask_process(&process, "hello").await, 200);
    let lost = poll_until("the count", async || Some(dropped(&process).await).filter(|lost| lost[0] >= 1));
    assert_eq!(lost.await[0], 1, "as many as the collector says");
}

fn process_of(upstream: &Upstream, collector: &Upstream) -> (tempfile::TempDir, Process) {
    process(upstream, &collector.url(""), "")
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_hold_anything_up() {
    let upstream = Upstream::always(text_reply(&["hi"]));
    let silent = Upstream::always(Reply::silence());
    let grpc = GrpcCollector::start(vec![Answer::Silence]).await;
    let unused = unused_address();
    for (endpoint, further) in [
        (silent.url(""), ""),
        (format!("http://{}", grpc.address), ", protocol = \"grpc\""),
        (format!("http://{unused}"), ", protocol = \"grpc\""),
    ] {
        let (_folder, process) = process(&upstream, &endpoint, further);
        for _ in 0..20 {
            assert_eq!(ask_process(&process, "hello").await, 200);
        }
        let began = Instant::now();
        process.terminate();
        process.wait().await;
        assert!(began.elapsed() < Duration::from_secs(6), "{endpoint}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn warnings_are_sent_with_the_span_they_belong_to() {
    let upstream = Upstream::always(Reply::complete(500, &[], "no"));
    let collector = http_collector();
    let (_folder, process) = process_of(&upstream, &collector);
    ask_process(&process, "fail").await;
    let got = poll_until("the warning", async || {
        Some(received(&collector))
            .filter(|got| got.spans.len() >= 2 && got.logs.iter().any(|log| body(log) == "turn failed"))
    })
    .await;
    let warning = got.logs.iter().find(|log| body(log) == "turn failed").expect("the warning");
    let turn = got.span("invoke_agent");
    assert_eq!((&warning.trace_id, &warning.span_id), (&turn.trace_id, &turn.span_id));
    assert_eq!((warning.severity_text.as_str(), warning.severity_number), ("WARN", 13));
    assert_eq!(text(&warning.attributes, "agent").as_deref(), Some("friday"));
    let access = got.logs.iter().find(|log| log.event_name == "interlingua.access").expect("the line");
    assert_eq!(access.span_id, got.span("POST").span_id);

    // Unsent items are sent at the end.
    ask_process(&process, "fail").await;
    process.terminate();
    process.wait().await;
    assert_eq!(received(&collector).spans.len(), 4);
}
