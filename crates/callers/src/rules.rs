//! The rules of one moment: which credentials are valid, and what their callers may do. They change as a whole.

use std::sync::Arc;

use arc_swap::ArcSwap;
use interlingua_core::event::Millis;
use tokio::sync::watch;

use super::key_table::KeyTable;
use super::profiles::Profiles;
use interlingua_config::{Auth, CallerProfile};

/// The rules of one moment.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// A number for each set of rules: callers look up their profile again when it changes.
    pub(super) generation: u64,
    pub(super) auth: Auth,
    pub(super) keys: Arc<KeyTable>,
    pub(super) profiles: Arc<Profiles>,
}

impl Rules {
    /// True if tokens of this issuer are accepted.
    pub(super) fn has_issuer(&self, name: &str) -> bool {
        self.auth.jwt.iter().any(|issuer| issuer.issuer == name)
    }
}

/// The rules that are in force, for all who have to know.
pub(super) struct SharedRules {
    current: ArcSwap<Rules>,
    changes: watch::Sender<u64>,
}

impl SharedRules {
    pub(super) fn new(auth: &Auth, tables: &[CallerProfile]) -> Arc<Self> {
        let rules = Rules {
            generation: 0,
            auth: auth.clone(),
            keys: Arc::default(),
            profiles: Arc::new(Profiles::new(tables)),
        };
        Arc::new(Self { current: ArcSwap::from_pointee(rules), changes: watch::Sender::new(0) })
    }

    pub(super) fn load(&self) -> arc_swap::Guard<Arc<Rules>> {
        self.current.load()
    }

    /// Puts other rules in force, made from those that are.
    pub(super) fn change(&self, change: impl Fn(&Rules) -> Rules) {
        self.current.rcu(|rules| Rules { generation: rules.generation + 1, ..change(rules) });
        self.changes.send_replace(self.load().generation);
    }

    /// Has a new value after each change.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The duration until a time. Both times are in milliseconds since 1970.
pub(super) fn until(time: Millis, now: Millis) -> std::time::Duration {
    std::time::Duration::from_millis(time.saturating_sub(now))
}
