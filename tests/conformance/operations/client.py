"""Metrics as Prometheus itself reads them, in both formats, with its own parsers."""

import pathlib
import re
import time
import urllib.request

from checks import GATEWAY_URL, check, close
from native import question, run
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

PROCESS = f"{GATEWAY_URL}/agents/demo/process"
STARTED = re.search(r"operators find metrics and state at ([^ ]+): ", pathlib.Path("gateway.log").read_text())
ADMIN = f"http://{STARTED.group(1)}"
KEY_FILE = re.search(r"the admin key of this start is in (\S+)", pathlib.Path("gateway.log").read_text())
KEY = pathlib.Path(KEY_FILE.group(1)).read_text().strip()

# Name and type of every family that a dashboard may rely on.
FAMILIES = {
    "interlingua_runs": "counter",
    "interlingua_runs_active": "gauge",
    "interlingua_run_duration_seconds": "histogram",
    "interlingua_time_to_first_event_seconds": "histogram",
    "interlingua_event_gap_seconds": "histogram",
    "interlingua_streams_open": "gauge",
    "interlingua_followers": "gauge",
    "interlingua_connections": "gauge",
    "interlingua_requests": "counter",
    "interlingua_auth_failures": "counter",
    "interlingua_limited": "counter",
    "interlingua_queue_depth": "gauge",
    "interlingua_store_seconds": "histogram",
    "interlingua_store_failures": "counter",
    "interlingua_store_bytes": "gauge",
    "interlingua_store_owed": "gauge",
    "interlingua_push_attempts": "counter",
    "interlingua_push_given_up": "counter",
    "interlingua_reloads": "counter",
    "interlingua_otlp_dropped": "counter",
    "process_cpu_seconds": "counter",
    "process_resident_memory_bytes": "gauge",
}


def scrape(accept):
    request = urllib.request.Request(f"{ADMIN}/metrics", headers={"accept": accept, "authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.headers["content-type"], answer.read().decode()


def families(text, parse):
    return {family.name: family for family in parse(text)}


def value(family, **labels):
    found = [sample.value for sample in family.samples if labels.items() <= sample.labels.items()]
    return found[0] if found else None


@check("OpenMetrics is what its parser accepts, with the documented names and types")
def _():
    for text in ("hello", "fail", "reasoning"):
        run(PROCESS, question(text))
    media, text = scrape("application/openmetrics-text; version=1.0.0")
    assert media.startswith("application/openmetrics-text; version=1.0.0"), media
    known = families(text, openmetrics.text_string_to_metric_families)
    types = {name: known[name].type for name in FAMILIES if name in known}
    assert types == FAMILIES, {name: FAMILIES[name] for name in FAMILIES if types.get(name) != FAMILIES[name]}
    assert known["interlingua_run_duration_seconds"].unit == "seconds"
    assert known["interlingua_store_bytes"].unit == "bytes"


@check("the older format has the same families and values")
def _():
    media, text = scrape("text/plain")
    assert media.startswith("text/plain; version=0.0.4"), media
    known = families(text, parser.text_string_to_metric_families)
    types = {name: known[name].type for name in FAMILIES if name in known}
    assert types == FAMILIES, {name: FAMILIES[name] for name in FAMILIES if types.get(name) != FAMILIES[name]}


@check("runs are counted once each, by how they ended")
def _():
    read = lambda: families(scrape("text/plain")[1], parser.text_string_to_metric_families)["interlingua_runs"]
    before = value(read(), agent="demo", outcome="completed") or 0
    for _ in range(5):
        assert run(PROCESS, question("hello")).status == "completed"
    deadline = time.monotonic() + 5
    while value(read(), agent="demo", outcome="completed") != before + 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert value(read(), agent="demo", outcome="completed") == before + 5, read().samples


@check("a histogram's buckets rise, and the last one is its count")
def _():
    known = families(scrape("text/plain")[1], parser.text_string_to_metric_families)
    samples = known["interlingua_run_duration_seconds"].samples
    labels = {"agent": "demo", "outcome": "completed"}
    of = lambda name: [sample for sample in samples if sample.name.endswith(name) and labels.items() <= sample.labels.items()]
    counts = [sample.value for sample in of("_bucket")]
    assert counts == sorted(counts) and counts[-1] == of("_count")[0].value > 0, counts


close()
