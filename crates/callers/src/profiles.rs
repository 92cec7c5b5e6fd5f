//! Rights of callers: the tables of `[callers]`, and the choice of the table for a caller.

use std::collections::HashSet;
use std::sync::Arc;

use interlingua_config::{CallerKind, CallerLimits, CallerProfile, ConsoleRole};

/// The table for callers without a table of their own.
const DEFAULT: &str = "default";
/// The table for callers of routes without authentication.
const ANONYMOUS: &str = "anonymous";

/// Rights and limits of a caller.
#[derive(Debug, Default)]
pub struct Profile {
    /// The agents it may use. `None`: all.
    agents: Option<HashSet<String>>,
    /// The protocols it may use. `None`: all.
    protocols: Option<HashSet<String>>,
    /// Rights in the console. `None`: the caller cannot sign in.
    console: Option<ConsoleRole>,
    pub(super) limits: Arc<CallerLimits>,
}

impl Profile {
    /// True if the caller may use a protocol.
    #[must_use]
    pub fn has_protocol(&self, protocol: &str) -> bool {
        self.protocols.as_ref().is_none_or(|protocols| protocols.contains(protocol))
    }

    /// True if the caller may use an agent.
    #[must_use]
    pub fn has_agent(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.contains(agent))
    }

    /// Rights in the console. `None`: the caller cannot sign in.
    #[must_use]
    pub const fn console(&self) -> Option<ConsoleRole> {
        self.console
    }

    /// True if the caller may use all agents.
    #[must_use]
    pub fn has_all_agents(&self) -> bool {
        self.agents.is_none()
    }
}

/// A name, and the credentials that proved it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProvenName<'a> {
    pub(super) name: &'a str,
    /// `None`: credentials of no client proved it.
    pub(super) kind: Option<CallerKind>,
    /// The issuer of its token; empty for other kinds.
    pub(super) issuer: &'a str,
    /// The scopes of its token.
    pub(super) scopes: &'a [String],
}

/// All tables, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    tables: Vec<(CallerProfile, Arc<Profile>)>,
    /// Without a table: everything, within the default limits.
    open: Arc<Profile>,
}

impl Profiles {
    pub(super) fn new(tables: &[CallerProfile]) -> Self {
        let set = |names: &Option<Vec<String>>| names.as_ref().map(|names| names.iter().cloned().collect());
        let profile = |table: &CallerProfile| {
            Arc::new(Profile {
                agents: set(&table.agents),
                protocols: set(&table.protocols),
                console: table.console,
                limits: Arc::new(table.limits.clone()),
            })
        };
        let tables = tables.iter().map(|table| (table.clone(), profile(table))).collect();
        Self { tables, open: Arc::default() }
    }

    /// The profile of a caller that proved its name: the table of the name, else the first one whose scopes it has,
    /// else `default`. A table with a kind or an issuer is skipped for all other callers.
    pub(super) fn find(&self, proven: ProvenName<'_>) -> Arc<Profile> {
        let is_for = |table: &CallerProfile| {
            table.kind.is_none_or(|kind| proven.kind == Some(kind))
                && table.issuer.as_ref().is_none_or(|issuer| issuer == proven.issuer)
        };
        let has_scopes = |table: &CallerProfile| {
            !table.scopes.is_empty() && table.scopes.iter().all(|scope| proven.scopes.contains(scope))
        };
        let find = |matches: &dyn Fn(&CallerProfile) -> bool| {
            self.tables.iter().find(|(table, _)| is_for(table) && matches(table)).map(|(_, profile)| profile)
        };

        // An issuer must not be able to name its way into the tables that are for everyone else.
        let own = if matches!(proven.name, DEFAULT | ANONYMOUS) {
            None
        } else {
            find(&|table| table.scopes.is_empty() && table.name == proven.name)
        };
        let by_scopes = || find(&has_scopes);
        let found = own.or_else(by_scopes).or_else(|| self.named(DEFAULT));
        Arc::clone(found.unwrap_or(&self.open))
    }

    /// The profile of callers of routes without authentication.
    pub(super) fn anonymous(&self) -> Arc<Profile> {
        Arc::clone(self.named(ANONYMOUS).unwrap_or(&self.open))
    }

    /// Everything, within the default limits.
    pub(super) fn open(&self) -> Arc<Profile> {
        Arc::clone(&self.open)
    }

    fn named(&self, name: &str) -> Option<&Arc<Profile>> {
        let table = self.tables.iter().find(|(table, _)| table.scopes.is_empty() && table.name == name);
        table.map(|(_, profile)| profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, scopes: &[&str], agents: Option<&[&str]>) -> CallerProfile {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CallerProfile {
            name: name.to_owned(),
            scopes: owned(scopes),
            agents: agents.map(owned),
            kind: None,
            issuer: None,
            protocols: None,
            console: None,
            limits: CallerLimits::default(),
        }
    }

    fn by_key(name: &str) -> ProvenName<'_> {
        ProvenName { name, kind: Some(CallerKind::Keys), issuer: "", scopes: &[] }
    }

    fn by_token<'a>(name: &'a str, issuer: &'a str, scopes: &'a [String]) -> ProvenName<'a> {
        ProvenName { name, kind: Some(CallerKind::Jwt), issuer, scopes }
    }

    #[test]
    fn the_table_of_the_name_counts_then_scopes_then_default() {
        let profiles = Profiles::new(&[
            table("anonymous", &[], Some(&[])),
            table("both", &["read", "write"], Some(&["editor"])),
            table("one", &["read"], Some(&["reader"])),
            table("ann", &[], Some(&["hers"])),
            table("default", &[], Some(&["public"])),
        ]);
        let has = |name: &str, scopes: &[&str], agent: &str| {
            let scopes: Vec<String> = scopes.iter().map(|scope| (*scope).to_owned()).collect();
            profiles.find(by_token(name, "https://id", &scopes)).has_agent(agent)
        };
        assert!(has("ann", &["read", "write"], "hers") && !has("ann", &["read"], "reader"));
        assert!(has("bob", &["write", "read"], "editor") && has("bob", &["read", "x"], "reader"));
        assert!(has("bob", &["write"], "public") && has("bob", &[], "public"));
        // Names of tables with scopes, or of the table for everyone else, name no caller.
        assert!(has("one", &[], "public") && has("anonymous", &[], "public") && has("default", &[], "public"));
        assert!(!profiles.anonymous().has_agent("public"));
    }

    #[test]
    fn a_table_with_a_kind_or_an_issuer_is_for_callers_of_that_kind_and_issuer_only() {
        let kind = |table, kind| CallerProfile { kind: Some(kind), ..table };
        let issuer = |table, issuer: &str| CallerProfile { issuer: Some(issuer.to_owned()), ..table };
        let profiles = Profiles::new(&[
            kind(table("ann", &[], Some(&["hers"])), CallerKind::Keys),
            kind(issuer(table("bob", &[], Some(&["his"])), "https://id"), CallerKind::Jwt),
            issuer(table("admins", &["admin"], Some(&["all"])), "https://id"),
            table("default", &[], Some(&["public"])),
        ]);
        let agent_of = |proven| {
            let profile = profiles.find(proven);
            ["hers", "his", "all", "public"].into_iter().find(|agent| profile.has_agent(agent))
        };
        let admin = ["admin".to_owned()];
        let certificate = ProvenName { name: "ann", kind: Some(CallerKind::Certificates), issuer: "", scopes: &[] };
        for (proven, expected) in [
            (by_key("ann"), "hers"),
            (by_token("ann", "https://id", &[]), "public"),
            (certificate, "public"),
            (by_token("bob", "https://id", &[]), "his"),
            (by_token("bob", "https://other", &[]), "public"),
            (by_key("bob"), "public"),
            (by_token("cid", "https://id", &admin), "all"),
            (by_token("cid", "https://other", &admin), "public"),
        ] {
            assert_eq!(agent_of(proven), Some(expected), "{proven:?}");
        }
    }

    #[test]
    fn without_tables_everyone_may_do_everything() {
        let profile = Profiles::new(&[]).find(by_key("ann"));
        assert!(profile.has_all_agents() && profile.has_agent("any") && profile.has_protocol("any"));
        assert_eq!(*profile.limits, CallerLimits::default());
    }
}
