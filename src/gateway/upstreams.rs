//! The settings of agents that are called over HTTP, from the configuration.
//!
//! Not here: their use ([`interlingua_upstream::http`]), and the files they are read from ([`interlingua_config`]).

use std::sync::Arc;

use interlingua_config as config;
use interlingua_upstream::http::{ConnectionSettings, HealthCheck, HttpSettings, Proxy};
use interlingua_upstream::pool::{Affinity, BudgetSettings, CheckThresholds, EjectSettings, PoolSettings};
use interlingua_upstream::{Identity, OwnListeners};

/// `issuer`: the gateway's name in tokens for agents.
pub(super) fn http_settings(agent: &config::Agent, issuer: &str, own_listeners: &OwnListeners) -> HttpSettings {
    let upstream = &agent.upstream;
    HttpSettings {
        agent: agent.name.clone(),
        own_listeners: own_listeners.clone(),
        pool: pool_settings(upstream),
        health: upstream.health.as_ref().map(health_check),
        headers: upstream.headers.iter().map(|header| (header.name.clone(), header.value.clone())).collect(),
        connection: ConnectionSettings {
            connect: upstream.timeouts.connect,
            tls: upstream.tls.as_ref().map(|tls| tls.trust.clone()),
            server_name: upstream.tls.as_ref().and_then(|tls| tls.server_name.clone()),
            proxy: upstream.proxy.as_ref().map(|proxy| {
                let config::Proxy { url, credentials } = proxy.clone();
                Proxy { url, credentials }
            }),
        },
        first_byte: upstream.timeouts.first_byte,
        idle: upstream.timeouts.idle,
        total: upstream.timeouts.total,
        retries: upstream.retries,
        max_event: upstream.max_event,
        forward: upstream.forward.clone(),
        identity: match &upstream.identity {
            config::Identity::None => Identity::None,
            config::Identity::Derived => Identity::Derived,
            config::Identity::Jwt(key) => Identity::Jwt { key: Arc::clone(key), issuer: issuer.to_owned() },
        },
    }
}

fn pool_settings(upstream: &config::Upstream) -> PoolSettings {
    PoolSettings {
        affinity: match upstream.affinity {
            config::Affinity::None => Affinity::None,
            config::Affinity::Session => Affinity::Session,
            config::Affinity::Strict => Affinity::Strict,
        },
        eject: EjectSettings {
            failures: upstream.eject.failures,
            share: upstream.eject.share,
            pause: upstream.eject.pause,
            longest: upstream.eject.longest,
            most: upstream.eject.most,
        },
        budget: BudgetSettings { share: upstream.retry_budget.share, least: upstream.retry_budget.least },
        runs: upstream.limits.runs,
        queue: upstream.limits.queue,
        wait: upstream.limits.wait,
        checks: None,
    }
}

fn health_check(health: &config::HealthCheck) -> HealthCheck {
    HealthCheck {
        path: health.path.clone(),
        every: health.every,
        timeout: health.timeout,
        thresholds: CheckThresholds { healthy: health.healthy, unhealthy: health.unhealthy },
    }
}
