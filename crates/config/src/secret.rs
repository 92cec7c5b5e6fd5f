//! Secrets: written in the file as `{ env }` or `{ file }`, read through [`Env`], never printed.
//!
//! No other file of the configuration module reads environment variables or opens files.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use toml::de::{DeValue, ValueDeserializer};
use url::Url;

use super::diagnostics::Diagnostic;
use super::located::WithSpan;
use super::mask;
use super::tree::TomlValue;
use interlingua_base::files::READABLE_BY_OTHERS;
use interlingua_base::secrets::{MIN_LEN, SecretForms};

/// The largest secret file accepted, in bytes.
const MAX_SECRET_LEN: usize = 64 << 10;

/// Access to environment variables and files.
///
/// Tests and the fuzzer pass their own; the gateway uses [`Env::process`].
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Looks up an environment variable; `None` if it is not set or not UTF-8.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Reads a file. Fails if it is larger than the given number of bytes.
    pub file: &'a dyn Fn(&Path, usize) -> io::Result<Vec<u8>>,
    /// The permission bits of a file; `None` if they are unknown.
    pub mode: &'a dyn Fn(&Path) -> Option<u32>,
}

impl Env<'static> {
    /// The environment and the files of this process.
    pub fn process() -> Self {
        Self { env: &|name| std::env::var(name).ok(), file: &read_file, mode: &interlingua_base::files::mode }
    }
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Env")
    }
}

/// An [`Env`], and the secrets that were read through it or found in the configuration.
pub(super) struct Sources<'a> {
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
    pub(super) file: &'a dyn Fn(&Path, usize) -> io::Result<Vec<u8>>,
    pub(super) mode: &'a dyn Fn(&Path) -> Option<u32>,
    secrets: RefCell<SecretForms>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(env: &Env<'a>) -> Self {
        Self { env: env.env, file: env.file, mode: env.mode, secrets: RefCell::default() }
    }

    /// Masks this secret in diagnostics, and in log lines once the configuration is active.
    pub(super) fn remember(&self, secret: &str) {
        self.secrets.borrow_mut().add(secret);
    }

    /// Masks the secrets of a URL. Returns whether its query contains one.
    pub(super) fn remember_url(&self, url: &Url) -> bool {
        self.secrets.borrow_mut().add_url(url)
    }

    pub(super) fn into_secrets(self) -> SecretForms {
        self.secrets.into_inner()
    }
}

fn read_file(path: &Path, max_len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Read one byte more than allowed, to distinguish a file of maximum size from one that is too large.
    std::fs::File::open(path)?.take(max_len as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_len {
        return Err(io::Error::other(format!("larger than {max_len} bytes")));
    }
    Ok(bytes)
}

/// A secret, by reference: `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SecretTable {
    /// The environment variable that holds the secret.
    pub(super) env: Option<WithSpan<String>>,
    /// The file that holds the secret, relative to the folder of this file. Surrounding white space is removed.
    pub(super) file: Option<WithSpan<String>>,
    /// A prefix to put in front of the secret, such as `"Bearer "`.
    pub(super) prefix: Option<String>,
}

impl SecretTable {
    /// Reads the secret. `span` is that of the table. `found` gets a warning if the secret is too short to be masked,
    /// or if other users can read its file. No diagnostic contains any part of the secret.
    pub(super) fn read(
        &self,
        span: &Range<usize>,
        folder: &Path,
        env: &Sources<'_>,
        found: &mut Vec<Diagnostic>,
    ) -> Result<SecretString, Diagnostic> {
        let (text, span) = match (&self.env, &self.file) {
            (Some(name), None) => (from_env(name, env)?, &name.span),
            (None, Some(path)) => (from_file(path, folder, env, found)?, &path.span),
            (Some(_), Some(file)) => {
                return Err(Diagnostic::error("a secret has two sources")
                    .at(&file.span)
                    .label("give either \"env\" or \"file\""));
            }
            (None, None) => {
                return Err(Diagnostic::error("a secret has no source")
                    .at(span)
                    .label("write { env = \"NAME\" } or { file = \"path\" }"));
            }
        };
        if text.is_empty() {
            return Err(Diagnostic::error("a secret is empty").at(span));
        }

        if text.len() < MIN_LEN {
            let warning = Diagnostic::warning("a secret is too short to be masked in errors and logs");
            let label = format!("it should have at least {MIN_LEN} bytes");
            found.push(warning.at(span).label(label));
        }
        env.remember(&text);
        Ok(format!("{}{text}", self.prefix.as_deref().unwrap_or_default()).into())
    }
}

/// Replaces references to secrets in a protocol's options by the secrets, at any depth, under keys that mark secrets.
/// The types of options then contain plain strings.
pub(super) fn insert_secrets(raw: &mut TomlValue<'_>, folder: &Path, env: &Sources<'_>, found: &mut Vec<Diagnostic>) {
    match raw.get_mut() {
        DeValue::Table(table) => {
            for (key, value) in table.iter_mut() {
                if !(mask::is_secret_name(key.get_ref()) && is_reference(value)) {
                    insert_secrets(value, folder, env, found);
                    continue;
                }

                let span = value.span();
                let read = SecretTable::deserialize(ValueDeserializer::from(value.clone()))
                    .map_err(|error| Diagnostic::error(error.message()).at(&span))
                    .and_then(|table| table.read(&span, folder, env, found));
                let text = match read {
                    Ok(secret) => secret.expose_secret().to_owned(),
                    Err(error) => {
                        found.push(error);
                        String::new()
                    }
                };
                *value.get_mut() = DeValue::String(text.into());
            }
        }
        DeValue::Array(values) => {
            values.iter_mut().for_each(|value| insert_secrets(value, folder, env, found));
        }
        _ => {}
    }
}

/// True if a value is a table that refers to a secret.
fn is_reference(value: &TomlValue<'_>) -> bool {
    let DeValue::Table(table) = value.get_ref() else { return false };
    let known = |key: &str| matches!(key, "env" | "file" | "prefix");
    !table.is_empty() && table.keys().all(|key| known(key.get_ref()))
}

fn from_env(name: &WithSpan<String>, env: &Sources<'_>) -> Result<String, Diagnostic> {
    if !mask::is_variable_name(&name.value) {
        // The text may be the secret itself, so it is not repeated.
        return Err(Diagnostic::error("this is not the name of an environment variable")
            .at(&name.span)
            .label("put the secret into a variable, and the name of the variable here"));
    }

    (env.env)(&name.value).ok_or_else(|| {
        Diagnostic::error(format!("environment variable {:?} is not set", name.value))
            .at(&name.span)
            .label("set it before the gateway starts")
    })
}

fn from_file(
    path: &WithSpan<String>,
    folder: &Path,
    env: &Sources<'_>,
    found: &mut Vec<Diagnostic>,
) -> Result<String, Diagnostic> {
    let file = folder.join(&path.value);
    let bytes = (env.file)(&file, MAX_SECRET_LEN).map_err(|error| {
        Diagnostic::error(format!("cannot read secret file {:?}", path.value))
            .at(&path.span)
            .label(error.to_string())
            .help("relative paths start at the folder of this file")
    })?;
    found.extend(readable_by_others(&file, path, env));

    let text = String::from_utf8(bytes)
        .map_err(|_| Diagnostic::error(format!("secret file {:?} is not text", path.value)).at(&path.span))?;
    Ok(text.trim().to_owned())
}

/// The warning about a file with a secret that other users can read. `None`: only its owner can read it, or its
/// permissions are unknown.
pub(super) fn readable_by_others(file: &Path, written: &WithSpan<String>, env: &Sources<'_>) -> Option<Diagnostic> {
    let mode = (env.mode)(file).filter(|mode| mode & READABLE_BY_OTHERS != 0)?;
    let message = format!("{:?} can be read by every user of this machine", written.value);
    let label = format!("take the permission away: chmod {:o}", mode & 0o770);
    Some(Diagnostic::warning(message).at(&written.span).label(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_in_options_are_replaced_by_secrets() {
        let source = r#"key = { env = "K" }
list = [{ api_key = { env = "K", prefix = "x " } }]
env = { env = "K" }
max_tokens = 3
"#;
        let table = toml::de::DeTable::parse(source).expect("TOML");
        let mut raw = toml::Spanned::new(0..source.len(), DeValue::Table(table.into_inner()));
        let env =
            Env { env: &|name| (name == "K").then(|| "s3cr3t".into()), file: &|_, _| unreachable!(), mode: &|_| None };
        let mut found = Vec::new();
        insert_secrets(&mut raw, Path::new(""), &Sources::new(&env), &mut found);
        let read = toml::Table::deserialize(ValueDeserializer::from(raw)).expect("a table");
        assert_eq!(read["key"].as_str(), Some("s3cr3t"));
        assert_eq!(read["list"][0]["api_key"].as_str(), Some("x s3cr3t"));

        // Only under keys that mark a secret.
        assert!(read["env"].is_table() && found.is_empty());

        let table = toml::de::DeTable::parse("key = { env = \"K\" }").expect("TOML");
        let mut raw = toml::Spanned::new(0..19, DeValue::Table(table.into_inner()));
        let short = Env { env: &|_| Some("12345".into()), ..env };
        insert_secrets(&mut raw, Path::new(""), &Sources::new(&short), &mut found);
        assert_eq!(found.len(), 1, "a secret that cannot be masked is reported");
    }
}
