//! The configuration as operators see it: no secrets, no values of headers, no queries of URLs.

use std::time::Duration;

use serde_json::{Value, json};

use interlingua_base::secrets::Masks;
use interlingua_config::{Agent, Collector, Diagnostics, Identity, Methods, Mount, Origins, Settings, Severity};

/// The errors or the warnings of a file, each with its position.
pub(super) fn diagnostics(diagnostics: &Diagnostics, severity: Severity) -> impl Iterator<Item = Value> {
    let shown = diagnostics.with_positions().filter(move |(one, _)| one.severity() == severity);
    shown.map(|(one, place)| {
        json!({ "line": place.map(|place| place.0), "column": place.map(|place| place.1), "message": one.message() })
    })
}

/// All settings in force.
pub(super) fn settings(settings: &Settings) -> Value {
    let (server, store, observe) = (&settings.server, &settings.store, &settings.observe);
    let (timeouts, limits) = (&server.timeouts, &server.limits);
    let proxies: Vec<String> = server.trusted_proxies.iter().map(ToString::to_string).collect();
    let hosts = server.allowed_hosts.as_ref().map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "server": {
            "listen": server.listen.to_string(),
            "public_url": server.public_url,
            "workers": server.workers,
            "max_body": server.max_body,
            "timeouts_ms": {
                "head": millis(timeouts.head), "body": millis(timeouts.body),
                "write": millis(timeouts.write), "idle": millis(timeouts.idle),
            },
            "limits": {
                "connections": limits.connections,
                "connections_per_address": limits.connections_per_address,
                "bodies": limits.bodies,
                "json_depth": limits.json_depth,
                "json_values": limits.json_values,
            },
            "shutdown_delay_ms": millis(server.shutdown_delay),
            "drain_ms": millis(server.drain),
            "trusted_proxies": proxies,
            "forwarded": server.forwarded,
            "allowed_hosts": hosts,
        },
        "store": {
            "kind": store.kind,
            "path": store.path.display().to_string(),
            "retention": {
                "age_ms": millis(store.retention.age), "runs": store.retention.runs, "bytes": store.retention.bytes,
            },
        },
        "agents": agents(settings),
        "routes": routes(settings),
        "admin": settings.admin.as_ref().map(|admin| {
            let client_ca = admin.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
            json!({
                "listen": admin.listen.to_string(), "key": admin.key.is_some(), "tls": admin.tls.is_some(),
                "client_ca": client_ca, "console": admin.access.console, "texts": admin.access.texts,
                "metrics": admin.access.metrics,
            })
        }),
        "observe": {
            "access_log": observe.access_log.as_ref().map(|log| json!({
                "path": log.path.as_ref().map(|path| path.display().to_string()),
                "format": if log.json { "json" } else { "pretty" },
                "session": if log.hash_sessions { "hashed" } else { "plain" },
            })),
            "audit": observe.audit.as_ref().map(|path| path.display().to_string()),
            "traces": observe.traces.as_ref().map(|traces| json!({
                "collector": collector(&traces.collector), "sample": traces.sample, "content": traces.content,
            })),
            "metrics": observe.metrics.as_ref().map(|reports| json!({
                "collector": collector(&reports.collector), "every_ms": millis(reports.every),
            })),
            "logs": observe.logs.as_ref().map(collector),
            "service_name": observe.service_name,
            "caller_label": observe.caller_label,
        },
    })
}

fn collector(collector: &Collector) -> Value {
    let endpoint = &collector.endpoint;
    let headers: Vec<&str> = collector.headers.iter().map(|(name, _)| name.as_str()).collect();
    json!({
        // Its query may hold a secret.
        "endpoint": format!("{}{}", endpoint.origin().ascii_serialization(), endpoint.path()),
        "protocol": if collector.grpc { "grpc" } else { "http" },
        "headers": headers,
    })
}

/// The agents in force.
pub(super) fn agents(settings: &Settings) -> Value {
    settings.agents.iter().map(|agent| self::agent(agent)).collect()
}

fn agent(agent: &Agent) -> Value {
    let upstream = &agent.upstream;
    let timeouts = &upstream.timeouts;
    let headers: Vec<&str> = upstream.headers.iter().map(|header| header.name.as_str()).collect();
    json!({
        "name": agent.name,
        "description": agent.description,
        "version": agent.version,
        "history": agent.history,
        "parallel_turns": agent.parallel_turns,
        "max_run_bytes": agent.max_run_bytes,
        "upstream": {
            "protocol": upstream.protocol,
            "endpoints": upstream.endpoints.iter().map(|endpoint| {
                json!({ "url": endpoint.shown(), "weight": endpoint.weight })
            }).collect::<Value>(),
            "affinity": upstream.affinity,
            "headers": headers,
            "forward": upstream.forward,
            "identity": identity(&upstream.identity),
            "tls": upstream.tls.as_ref().map(|tls| json!({
                "ca": tls.has_ca, "certificate": tls.has_certificate, "server_name": tls.server_name,
            })),
            "proxy": upstream.proxy.as_ref().map(|proxy| proxy.url.as_str()),
            "retries": upstream.retries,
            "max_event": upstream.max_event,
            "timeouts_ms": {
                "connect": millis(timeouts.connect), "first_byte": millis(timeouts.first_byte),
                "idle": millis(timeouts.idle), "total": millis(timeouts.total),
            },
        },
    })
}

/// The identity that an agent receives, with the key that verifies it.
fn identity(identity: &Identity) -> Value {
    let key = match identity {
        Identity::Jwt(key) => Some(key.public()),
        Identity::None | Identity::Derived => None,
    };
    json!({ "kind": identity.kind(), "public_key": key })
}

/// The routes in force, with what answers without authentication.
pub(super) fn routes(settings: &Settings) -> Value {
    settings.mounts().iter().map(|mount| route(mount, &settings.secrets)).collect()
}

fn route(mount: &Mount, secrets: &Masks) -> Value {
    let agents: Vec<&str> = mount.agents.iter().map(|agent| agent.name.as_str()).collect();
    let cors = match &mount.route.cors {
        Some(Origins::Any) => json!(["*"]),
        Some(origins) => json!(format!("{origins:?}")),
        None => Value::Null,
    };
    json!({
        "path": mount.path,
        "protocol": mount.protocol(),
        "agents": agents,
        "auth": methods(mount.route.auth),
        "cors": cors,
        "heartbeat_ms": millis(mount.route.heartbeat),
        "on_disconnect": mount.route.on_disconnect,
        "shared_sessions": mount.route.shared_sessions,
        "options": mount.route.options.shown(secrets),
    })
}

/// The accepted credentials of a route; `none` for a route without authentication.
fn methods(auth: Methods) -> Vec<&'static str> {
    let known = [("keys", auth.keys), ("jwt", auth.jwt), ("certificates", auth.certificates)];
    let named: Vec<&str> = known.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect();
    if named.is_empty() { vec!["none"] } else { named }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
