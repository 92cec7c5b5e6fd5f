//! A hash of all settings of an agent, including its secrets. A reload keeps an agent whose fingerprint is unchanged.
//! The fingerprint is never printed.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::secret::Sources;

/// A SHA-256 over the settings of an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The hash covers secrets.
        formatter.write_str("Fingerprint")
    }
}

/// The largest file that is hashed, in bytes.
const MAX_FILE_LEN: usize = 1 << 20;

/// The fingerprint of each agent, by name.
pub(super) fn of_agents(tree: &DeTable<'_>, folder: &Path, env: &Sources<'_>) -> HashMap<String, Fingerprint> {
    let Some(DeValue::Table(agents)) = tree.get("agents").map(Spanned::get_ref) else { return HashMap::new() };
    let server = tree.get("server").and_then(|server| server.get_ref().get("public_url"));
    let public_url = server.and_then(|url| url.get_ref().as_str());
    let one = |agent: &DeValue<'_>| {
        let mut hash = Sha256::new();
        add(agent, folder, env, &mut hash);
        // Tokens contain the name of the gateway.
        if is_signed(agent) {
            add_text(public_url.unwrap_or_default(), &mut hash);
        }
        Fingerprint(hash.finalize().into())
    };
    agents.iter().map(|(name, agent)| (name.get_ref().to_string(), one(agent.get_ref()))).collect()
}

/// Whether the agent receives tokens.
fn is_signed(agent: &DeValue<'_>) -> bool {
    let upstream = agent.get("upstream").map(Spanned::get_ref);
    upstream.and_then(|upstream| upstream.get("identity")).and_then(|kind| kind.get_ref().as_str()) == Some("jwt")
}

/// Hashes a value with its type and the end of each part.
fn add(value: &DeValue<'_>, folder: &Path, env: &Sources<'_>, hash: &mut Sha256) {
    match value {
        DeValue::Table(table) => {
            hash.update(b"{");
            for (key, value) in table {
                add_text(key.get_ref(), hash);
                add(value.get_ref(), folder, env, hash);
                if let DeValue::String(named) = value.get_ref() {
                    add_named(key.get_ref(), named, folder, env, hash);
                }
            }
            hash.update(b"}");
        }
        DeValue::Array(values) => {
            hash.update(b"[");
            values.iter().for_each(|value| add(value.get_ref(), folder, env, hash));
            hash.update(b"]");
        }
        other => add_text(&format!("{other:?}"), hash),
    }
}

/// Hashes the variable, or the contents of the file, that a value names.
fn add_named(key: &str, named: &str, folder: &Path, env: &Sources<'_>, hash: &mut Sha256) {
    match key {
        "env" => add_text(&(env.env)(named).unwrap_or_default(), hash),
        "file" | "ca" | "cert" | "key" => {
            let bytes = (env.file)(&folder.join(named), MAX_FILE_LEN).unwrap_or_default();
            hash.update(bytes.len().to_be_bytes());
            hash.update(bytes);
        }
        _ => {}
    }
}

fn add_text(text: &str, hash: &mut Sha256) {
    hash.update(text.len().to_be_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(source: &str, secret: &str) -> Option<Fingerprint> {
        let tree = DeTable::parse(source).expect("TOML");
        let (variable, file) = (secret.to_owned(), secret.to_owned());
        let env = crate::Env {
            env: &move |_| Some(variable.clone()),
            file: &move |_, _| Ok(file.clone().into_bytes()),
            ..crate::Env::process()
        };
        of_agents(tree.get_ref(), Path::new(""), &Sources::new(&env)).get("a").copied()
    }

    #[test]
    fn everything_of_an_agent_counts_and_nothing_else() {
        let source = "[agents.a.upstream]\nurl = \"http://x\"\nretries = 2\nheaders = { x = { env = \"V\" } }\n";
        let known = fingerprint(source, "1");
        assert!(known.is_some());
        let same = format!("# A comment.\n[server]\nlisten = \"127.0.0.1:1\"\n{source}\n[agents.b]\nversion = \"2\"\n");
        assert_eq!(fingerprint(&same, "1"), known);

        assert_ne!(fingerprint(source, "2"), known, "a secret was rotated");
        for changed in [source.replace("//x", "//y"), source.replace('2', "3"), source.replace("retries", "other")] {
            assert_ne!(fingerprint(&changed, "1"), known, "{changed}");
        }
        let at = |host: &str| format!("{source}identity = \"jwt\"\n[server]\npublic_url = \"http://{host}\"\n");
        assert_ne!(fingerprint(&at("a"), "1"), fingerprint(&at("b"), "1"), "the tokens name another gateway");
        let in_file = source.replace("env = ", "file = ");
        assert_ne!(fingerprint(&in_file, "1"), fingerprint(&in_file, "2"));
    }
}
