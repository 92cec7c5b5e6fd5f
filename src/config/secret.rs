//! Secrets: named in the file by `{ env }` or `{ file }`, read from the surroundings, never shown.
//!
//! Nothing in the configuration room but this file looks at the environment or opens a file.

use std::fmt;
use std::io::{self, Read as _};
use std::ops::Range;
use std::path::Path;

use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use toml::de::{DeValue, ValueDeserializer};

use super::diagnostics::Diagnostic;
use super::document::Located;
use super::mask;
use super::tree::Written;

/// The largest file a secret is read from, in bytes.
const MAX_SECRET: usize = 64 << 10;

/// What the configuration may look at outside of itself.
///
/// Tests and the fuzzer hand in their own; the gateway takes [`Env::process`].
#[derive(Clone, Copy)]
pub struct Env<'a> {
    /// Looks up an environment variable; `None` where it is not set or not UTF-8.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Reads a file of at most so many bytes.
    pub file: &'a dyn Fn(&Path, usize) -> io::Result<Vec<u8>>,
}

impl Env<'static> {
    /// The environment and the files of this process.
    pub fn process() -> Self {
        Self { env: &|name| std::env::var(name).ok(), file: &read_file }
    }
}

impl fmt::Debug for Env<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Env")
    }
}

fn read_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a full file from one that is too large.
    std::fs::File::open(path)?.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

/// A secret, by reference: `{ env = "NAME" }` or `{ file = "path" }`.
#[derive(Deserialize, JsonSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SecretTable {
    /// The environment variable that holds the secret.
    pub(super) env: Option<Located<String>>,
    /// The file that holds the secret, relative to the folder of this file; white space around
    /// it is dropped.
    pub(super) file: Option<Located<String>>,
    /// What is put before it, such as `"Bearer "`.
    pub(super) prefix: Option<String>,
}

impl SecretTable {
    /// Reads the secret. `place` is that of the table; no error repeats anything of the secret.
    pub(super) fn read(
        &self,
        place: &Range<usize>,
        folder: &Path,
        surroundings: &Env<'_>,
    ) -> Result<SecretString, Diagnostic> {
        let (text, place) = match (&self.env, &self.file) {
            (Some(env), None) => (from_env(env, surroundings)?, &env.place),
            (None, Some(file)) => (from_file(file, folder, surroundings)?, &file.place),
            (Some(_), Some(file)) => {
                return Err(Diagnostic::error("a secret has two sources")
                    .at(&file.place)
                    .label("give either \"env\" or \"file\""));
            }
            (None, None) => {
                return Err(Diagnostic::error("a secret has no source")
                    .at(place)
                    .label("write { env = \"NAME\" } or { file = \"path\" }"));
            }
        };
        if text.is_empty() {
            return Err(Diagnostic::error("a secret is empty").at(place));
        }
        crate::secrets::remember(&text);
        Ok(format!("{}{text}", self.prefix.as_deref().unwrap_or_default()).into())
    }
}

/// Puts the secrets that are named in a protocol's options in their places: under keys that say so, whatever stands
/// around them. The types of options then hold plain text, and know nothing of where it came from.
pub(super) fn reveal(written: &mut Written<'_>, folder: &Path, surroundings: &Env<'_>, found: &mut Vec<Diagnostic>) {
    match written.get_mut() {
        DeValue::Table(table) => {
            for (key, value) in table.iter_mut() {
                if !(mask::is_secret_name(key.get_ref()) && is_reference(value)) {
                    reveal(value, folder, surroundings, found);
                    continue;
                }
                let place = value.span();
                let read = SecretTable::deserialize(ValueDeserializer::from(value.clone()))
                    .map_err(|error| Diagnostic::error(error.message()).at(&place))
                    .and_then(|table| table.read(&place, folder, surroundings));
                let text = match read {
                    Ok(secret) => secret.expose_secret().to_owned(),
                    Err(mistake) => {
                        found.push(mistake);
                        String::new()
                    }
                };
                *value.get_mut() = DeValue::String(text.into());
            }
        }
        DeValue::Array(values) => {
            values.iter_mut().for_each(|value| reveal(value, folder, surroundings, found));
        }
        _ => {}
    }
}

/// Whether a value is a table that names a secret.
fn is_reference(value: &Written<'_>) -> bool {
    let DeValue::Table(table) = value.get_ref() else { return false };
    let known = |key: &str| matches!(key, "env" | "file" | "prefix");
    !table.is_empty() && table.keys().all(|key| known(key.get_ref()))
}

fn from_env(name: &Located<String>, around: &Env<'_>) -> Result<String, Diagnostic> {
    if !mask::is_variable_name(&name.value) {
        // Perhaps the secret itself was written here: it is not repeated.
        return Err(Diagnostic::error("this is not the name of an environment variable")
            .at(&name.place)
            .label("put the secret into a variable and its name here"));
    }
    (around.env)(&name.value).ok_or_else(|| {
        Diagnostic::error(format!("environment variable {:?} is not set", name.value))
            .at(&name.place)
            .label("set it before the gateway starts")
    })
}

fn from_file(path: &Located<String>, folder: &Path, around: &Env<'_>) -> Result<String, Diagnostic> {
    let bytes = (around.file)(&folder.join(&path.value), MAX_SECRET).map_err(|error| {
        Diagnostic::error(format!("cannot read secret file {:?}", path.value))
            .at(&path.place)
            .label(error.to_string())
            .help("relative paths start at the folder of this file")
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Diagnostic::error(format!("secret file {:?} is not text", path.value)).at(&path.place))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_options_are_put_in_their_places() {
        let source = r#"key = { env = "K" }
list = [{ api_key = { env = "K", prefix = "x " } }]
env = { env = "K" }
max_tokens = 3
"#;
        let table = toml::de::DeTable::parse(source).expect("TOML");
        let mut written = toml::Spanned::new(0..source.len(), DeValue::Table(table.into_inner()));
        let around = Env { env: &|name| (name == "K").then(|| "s3cr3t".into()), file: &|_, _| unreachable!() };
        let mut found = Vec::new();
        reveal(&mut written, Path::new(""), &around, &mut found);
        let read = toml::Table::deserialize(ValueDeserializer::from(written)).expect("a table");
        assert_eq!(read["key"].as_str(), Some("s3cr3t"));
        assert_eq!(read["list"][0]["api_key"].as_str(), Some("x s3cr3t"));
        // Only where the key says that a secret stands there.
        assert!(read["env"].is_table() && found.is_empty());
    }
}
