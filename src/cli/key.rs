//! `interlingua key`: makes, lists and revokes API keys, which a running gateway notices within a second; and prints
//! the public keys of the gateway's own tokens.
//!
//! Not here: what a key is ([`interlingua_config::keys`]).

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use interlingua_core::duration::Period;
use interlingua_core::event::Millis;
use jiff::Timestamp;
use serde_json::json;

use super::error_line::error_line;
use crate::gateway::Gateway;
use interlingua_base::clock;
use interlingua_config::keys::{self, KeyEntry, NewKey};
use interlingua_config::{Identity, Settings};

#[derive(clap::Subcommand, Debug)]
pub(super) enum Key {
    /// Make a key for a caller, and print it once
    New {
        /// The caller's name, as in `[callers.NAME]` of the configuration
        caller: String,
        /// Validity of the key, such as 90d; by default until it is revoked
        #[arg(long, value_name = "TIME", value_parser = period)]
        expires: Option<Period>,
    },
    /// List the keys, without their secrets
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key
    Revoke {
        /// The id of the key: the part between the first two underscores
        id: String,
    },
    /// Print the public keys of the tokens that agents get with `identity = "jwt"`, as a JSON Web Key Set
    Public {
        /// Only that of this agent
        agent: Option<String>,
    },
}

fn period(text: &str) -> Result<Period, String> {
    let period = Period::parse(text).map_err(|error| error.replace('\n', ": "))?;
    if period.0.is_zero() { Err("a key has to be valid for some time".to_owned()) } else { Ok(period) }
}

impl Key {
    /// Runs the command on the key file of this configuration. The error is the exit code, if the configuration names
    /// none.
    pub(super) fn run(&self, gateway: &Gateway, config: &Path) -> Result<anyhow::Result<()>, i32> {
        if let Self::Public { agent } = self {
            let settings = super::load(gateway, config)?;
            return Ok(public(&settings, agent.as_deref()));
        }
        let file = match key_file(config) {
            Ok(file) => file,
            Err(error) => {
                eprintln!("error: {}", error_line(&error));
                return Err(2);
            }
        };
        Ok(match self {
            Self::New { caller, expires } => new(config, &file, caller, *expires),
            Self::List { json } => list(&file, *json),
            Self::Revoke { id } => revoke(&file, id),
            // Needs no key file: done above.
            Self::Public { .. } => Ok(()),
        })
    }
}

/// The key file that a configuration names. Errors elsewhere in the configuration do not matter here.
fn key_file(config: &Path) -> anyhow::Result<PathBuf> {
    let table = read(config)?;
    let file = table.get("auth").and_then(|auth| auth.get("keys")).and_then(toml::Value::as_str);
    let file = file.filter(|file| !file.is_empty());
    let file =
        file.with_context(|| format!("{} has no key file: set keys = \"keys.toml\" in [auth]", config.display()))?;
    Ok(config.parent().unwrap_or(Path::new("")).join(file))
}

fn read(config: &Path) -> anyhow::Result<toml::Table> {
    let shown = config.display();
    let text = std::fs::read_to_string(config).with_context(|| format!("cannot read {shown}"))?;
    // The library's message would quote the line, which may hold a secret.
    text.parse().map_err(|_| anyhow::anyhow!("{shown} is not valid TOML: see `interlingua check`"))
}

fn new(config: &Path, file: &Path, caller: &str, expires: Option<Period>) -> anyhow::Result<()> {
    anyhow::ensure!(
        keys::is_caller_name(caller),
        "{caller:?} cannot be the name of a caller: use letters, digits, \"-\", \"_\" and \".\", not \"default\" or \"anonymous\""
    );
    let key = NewKey::generate().map_err(anyhow::Error::msg)?;
    let now = clock::machine();
    let end = expires.map(|period| now + u64::try_from(period.0.as_millis()).unwrap_or(u64::MAX / 2));
    keys::append(file, &key, caller, now, end).map_err(anyhow::Error::msg)?;

    // Only the key goes to standard output, so that a script can take it.
    super::print(&key.text)?;
    let until = expires.map_or_else(String::new, |period| format!(", valid for {period}"));
    eprintln!("key {} of {caller}{until}: its hash is in {}", key.id, file.display());
    eprintln!("store the key now: it is not shown again. A running gateway accepts it within a second");
    if may_nothing(config, caller) {
        eprintln!("warning: [callers.default] allows no agents, and there is no [callers.{caller}]");
    }
    Ok(())
}

/// True if the caller has no table of its own, and the table for all others allows nothing.
fn may_nothing(config: &Path, caller: &str) -> bool {
    let Ok(table) = read(config) else { return false };
    let callers = table.get("callers");
    let of = |name: &str| callers.and_then(|callers| callers.get(name));
    let is_empty = |key: &str| {
        let list = of("default").and_then(|table| table.get(key)).and_then(toml::Value::as_array);
        list.is_some_and(Vec::is_empty)
    };
    of(caller).is_none() && (is_empty("agents") || is_empty("protocols"))
}

fn list(file: &Path, as_json: bool) -> anyhow::Result<()> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let entries = keys::parse(&text).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    let now = clock::machine();

    if as_json {
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| {
                json!({
                    "id": entry.id_text(), "caller": entry.caller, "created": time(entry.created),
                    "expires": entry.expires.map(time), "revoked": entry.revoked.map(time),
                    "state": entry.state(now).as_str(),
                })
            })
            .collect();
        return super::print(&serde_json::to_string_pretty(&entries)?);
    }

    let width = entries.iter().map(|entry| entry.caller.len()).max().unwrap_or(0).max("CALLER".len());
    let mut out = std::io::stdout().lock();
    let row = |entry: &KeyEntry| {
        let expires = entry.expires.map_or_else(|| "never".to_owned(), time);
        let (id, created) = (entry.id_text(), time(entry.created));
        format!("{id}  {:width$}  {created}  {expires:20}  {}", entry.caller, entry.state(now).as_str())
    };
    let head = format!("{:12}  {:width$}  {:20}  {:20}  STATE", "ID", "CALLER", "CREATED", "EXPIRES");
    for line in std::iter::once(head).chain(entries.iter().map(row)) {
        // A closed pipe is not an error.
        if writeln!(out, "{line}").is_err() {
            break;
        }
    }
    Ok(())
}

fn public(settings: &Settings, agent: Option<&str>) -> anyhow::Result<()> {
    let wanted = settings.agents.iter().filter(|one| agent.is_none_or(|agent| one.name == agent));
    let mut keys = Vec::new();
    for one in wanted {
        if let Identity::Jwt(key) = &one.upstream.identity
            && !keys.contains(&key.public())
        {
            keys.push(key.public());
        }
    }
    match agent {
        Some(agent) => anyhow::ensure!(!keys.is_empty(), "there is no agent {agent:?} with identity = \"jwt\""),
        None => anyhow::ensure!(!keys.is_empty(), "no agent has identity = \"jwt\""),
    }
    super::print(&serde_json::to_string_pretty(&json!({ "keys": keys }))?)
}

fn revoke(file: &Path, id: &str) -> anyhow::Result<()> {
    let (caller, was_revoked) = keys::revoke(file, id, clock::machine()).map_err(anyhow::Error::msg)?;
    let done = if was_revoked { "was revoked before" } else { "is revoked" };
    eprintln!("key {id} of {caller} {done}. A running gateway refuses it within a second");
    Ok(())
}

fn time(time: Millis) -> String {
    let time = i64::try_from(time).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    time.unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
