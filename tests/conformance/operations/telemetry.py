"""Traces, metrics and logs as a collector reads them that is made of OpenTelemetry's own messages and of gRPC itself.

A reload sets where the gateway's collector is: first one that speaks HTTP, then one that speaks gRPC.
"""

import http.server
import json
import pathlib
import re
import threading
import time
import urllib.request
from concurrent import futures

import grpc
from checks import GATEWAY_URL, check, close
from native import Connection, question, run
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

PROCESS = f"{GATEWAY_URL}/agents/demo/process"
STARTED = re.search(r"operators find metrics and state at ([^ ]+): ", pathlib.Path("gateway.log").read_text())
ADMIN = f"http://{STARTED.group(1)}"
KEY_FILE = re.search(r"the admin key of this start is in (\S+)", pathlib.Path("gateway.log").read_text())
KEY = pathlib.Path(KEY_FILE.group(1)).read_text().strip()
CONFIG = pathlib.Path("gateway.toml")
WRITTEN = CONFIG.read_text()

MESSAGES = {
    "/v1/traces": (traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse),
    "/v1/metrics": (metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse),
    "/v1/logs": (logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse),
}


class Received:
    """Everything that a collector got."""

    def __init__(self):
        self.requests = []

    def add(self, request):
        self.requests.append(request)

    def _of(self, kind, resources, scopes, items):
        requests = [request for request in list(self.requests) if isinstance(request, kind)]
        found = []
        for request in requests:
            for resource in getattr(request, resources):
                for scope in getattr(resource, scopes):
                    found += [(item, resource.resource, scope.scope) for item in getattr(scope, items)]
        return found

    def spans(self):
        return self._of(traces.ExportTraceServiceRequest, "resource_spans", "scope_spans", "spans")

    def metrics(self):
        return self._of(metrics.ExportMetricsServiceRequest, "resource_metrics", "scope_metrics", "metrics")

    def logs(self):
        return self._of(logs.ExportLogsServiceRequest, "resource_logs", "scope_logs", "log_records")


def http_collector(received):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.headers["content-type"] == "application/x-protobuf", self.headers["content-type"]
            request, response = MESSAGES[self.path]
            received.add(request.FromString(body))
            answer = response().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def grpc_collector(received):
    def servicer(base, response):
        class Servicer(base):
            def Export(self, request, context):
                received.add(request)
                return response()

        return Servicer()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    traces_grpc.add_TraceServiceServicer_to_server(
        servicer(traces_grpc.TraceServiceServicer, traces.ExportTraceServiceResponse), server
    )
    metrics_grpc.add_MetricsServiceServicer_to_server(
        servicer(metrics_grpc.MetricsServiceServicer, metrics.ExportMetricsServiceResponse), server
    )
    logs_grpc.add_LogsServiceServicer_to_server(
        servicer(logs_grpc.LogsServiceServicer, logs.ExportLogsServiceResponse), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    # It ends with its last reference.
    SERVERS.append(server)
    return f"http://127.0.0.1:{port}"


SERVERS = []


def configure(endpoint, protocol):
    observe = f"""
[observe]
traces = {{ endpoint = "{endpoint}", protocol = "{protocol}", content = true }}
metrics = {{ every = "1s" }}
logs = {{}}
service_name = "conformance"
"""
    CONFIG.write_text(WRITTEN + observe)
    headers = {"content-type": "application/json", "host": STARTED.group(1), "authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{ADMIN}/api/reload", b"{}", headers, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200, answer.read()


def value(any_value):
    kind = any_value.WhichOneof("value")
    found = getattr(any_value, kind)
    return [value(one) for one in found.values] if kind == "array_value" else found


def attributes(of):
    found = {attribute.key: value(attribute.value) for attribute in of.attributes}
    assert len(found) == len(of.attributes), "no key twice"
    return found


def until(what, find):
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if found := find():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come")


def ask(text, headers=None):
    with Connection(PROCESS, question(text), headers=headers) as connection:
        return list(connection.frames())


for protocol, start in (("http", http_collector), ("grpc", grpc_collector)):
    received = Received()
    configure(start(received), protocol)

    @check(f"{protocol}: spans have the names, kinds, parents and attributes of the conventions")
    def _():
        trace, client = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
        ask("tool", {"traceparent": f"00-{trace}-{client}-01"})
        found = until("the spans", lambda: len(received.spans()) >= 3 and received.spans())
        spans = {span.name.split()[0]: span for span, _, _ in found}
        server, turn, tool = spans["POST"], spans["invoke_agent"], spans["execute_tool"]
        assert (server.kind, turn.kind, tool.kind) == (
            Span.SPAN_KIND_SERVER,
            Span.SPAN_KIND_CLIENT,
            Span.SPAN_KIND_INTERNAL,
        )
        assert {span.trace_id.hex() for span in spans.values()} == {trace}
        assert server.parent_span_id.hex() == client and turn.parent_span_id == server.span_id
        assert tool.parent_span_id == turn.span_id
        assert all(len(span.span_id) == 8 and any(span.span_id) for span in spans.values())
        assert server.start_time_unix_nano <= turn.start_time_unix_nano <= tool.start_time_unix_nano
        assert tool.start_time_unix_nano <= tool.end_time_unix_nano <= turn.end_time_unix_nano

        of_server, of_turn, of_tool = attributes(server), attributes(turn), attributes(tool)
        assert server.name == f"POST {of_server['http.route']}", server.name
        assert (of_server["http.request.method"], of_server["http.response.status_code"]) == ("POST", 200)
        assert of_server["url.path"] == "/agents/demo/process" and of_server["url.scheme"] == "http"
        assert turn.name == "invoke_agent demo" and of_turn["gen_ai.agent.name"] == "demo"
        assert (of_turn["gen_ai.operation.name"], of_turn["gen_ai.provider.name"]) == ("invoke_agent", "demo")
        assert of_turn["gen_ai.response.finish_reasons"] == ["stop"], of_turn
        assert of_turn["gen_ai.conversation.id"] and of_turn["gen_ai.response.id"]
        assert tool.name == f"execute_tool {of_tool['gen_ai.tool.name']}" and of_tool["gen_ai.tool.call.id"]
        assert of_tool["gen_ai.operation.name"] == "execute_tool"

    @check(f"{protocol}: content has the form of the conventions")
    def _():
        turn = next(span for span, _, _ in received.spans() if span.name == "invoke_agent demo")
        said = attributes(turn)
        assert json.loads(said["gen_ai.input.messages"]) == [
            {"role": "user", "parts": [{"type": "text", "content": "tool"}]}
        ]
        kinds = [part["type"] for message in json.loads(said["gen_ai.output.messages"]) for part in message["parts"]]
        assert "tool_call" in kinds and "tool_call_response" in kinds, kinds

    @check(f"{protocol}: a failure has its code and an error status")
    def _():
        ask("fail")
        turns = lambda: [span for span, _, _ in received.spans() if span.name == "invoke_agent demo"]
        turn = until("the span", lambda: len(turns()) >= 2 and turns()[-1])
        assert turn.status.code == Status.STATUS_CODE_ERROR, turn.status
        assert attributes(turn)["error.type"] == turn.status.message, turn

    @check(f"{protocol}: the resource and the scope say who it is")
    def _():
        _, resource, scope = received.spans()[0]
        who = attributes(resource)
        assert who["service.name"] == "conformance" and who["service.version"] and who["service.instance.id"]
        assert (scope.name, scope.version) == ("interlingua", who["service.version"])

    @check(f"{protocol}: metrics are cumulative histograms with the bounds of the conventions")
    def _():
        for _ in range(3):
            assert run(PROCESS, question("usage")).status == "completed"
        names = {
            "gen_ai.invoke_agent.duration": ("s", 13),
            "gen_ai.client.operation.time_to_first_chunk": ("s", 14),
            "gen_ai.client.token.usage": ("{token}", 14),
        }
        latest = lambda: {metric.name: metric for metric, _, _ in received.metrics()}
        found = until("the metrics", lambda: latest() if set(names) <= set(latest()) else None)
        for name, (unit, bounds) in names.items():
            metric = found[name]
            assert metric.unit == unit, metric
            assert metric.histogram.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE
            seen = set()
            for point in metric.histogram.data_points:
                assert len(point.explicit_bounds) == bounds and len(point.bucket_counts) == bounds + 1
                assert sum(point.bucket_counts) == point.count > 0 and point.min <= point.max <= point.sum
                assert point.start_time_unix_nano < point.time_unix_nano
                of_point = attributes(point)
                assert (of_point["gen_ai.operation.name"], of_point["gen_ai.agent.name"]) == ("invoke_agent", "demo")
                key = tuple(sorted(of_point.items()))
                assert key not in seen, f"{key} twice"
                seen.add(key)

    @check(f"{protocol}: log records are the lines of requests, and warnings with their span")
    def _():
        events = lambda name: [log for log, _, _ in received.logs() if log.event_name == name]
        lines = until("the lines", lambda: len(events("interlingua.access")) >= 5 and events("interlingua.access"))
        of_line = attributes(next(line for line in lines if attributes(line).get("outcome") == "completed"))
        assert of_line["agent"] == "demo" and of_line["status"] == 200 and of_line["route"] == "/agents/demo"
        warnings = until("the warning", lambda: [log for log, _, _ in received.logs() if log.severity_text == "WARN"])
        failed = next(log for log in warnings if log.body.string_value == "turn failed")
        assert failed.span_id in {span.span_id for span, _, _ in received.spans()}

    @check(f"{protocol}: nothing was dropped")
    def _():
        request = urllib.request.Request(f"{ADMIN}/metrics", headers={"authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith("interlingua_otlp_dropped")]
        assert len(lines) == 3 and all(line.endswith(" 0") for line in lines), lines


CONFIG.write_text(WRITTEN)
close()
