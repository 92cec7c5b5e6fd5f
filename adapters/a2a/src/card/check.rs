//! Validates card options at startup. Each error names the option. Empty values are rejected, since clients cannot
//! distinguish them from absent ones; so are values that clients would misread.
//!
//! Not here: options that do not appear in cards (`crate::options`).

use std::collections::{BTreeMap, HashSet};

use interlingua_core::public_address::{Policy, Refused};
use serde_json::Value;

use super::{CardOptions, CardSigning, Requirement, Scheme, Skill};
use crate::options::{Extension, Options};

/// Largest integer that every JSON parser reads exactly.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;
/// Maximum nesting of an extension's parameters. ProtoJSON parsers stop at 100 levels, counted from the card.
const MAX_DEPTH: usize = 64;

/// Checks all options that appear in cards.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    if let Some(url) = &options.public_url {
        let url = url.replace("{agent}", "agent");
        link("public_url", &url)?;
        if url.contains(['?', '#']) {
            return Err(error("public_url", "must not have a query or fragment"));
        }
    }

    let schemes = &options.card.security_schemes;
    card("card", &options.card, ("card.security_schemes", schemes))?;

    if let Some(extended) = &options.extended_card {
        // Missing fields of the extended card come from the card.
        let own = !extended.security_schemes.is_empty();
        let name = if own { "extended_card.security_schemes" } else { "card.security_schemes" };
        let declared = (name, if own { &extended.security_schemes } else { schemes });
        card("extended_card", extended, declared)?;
        if extended.security.is_empty() {
            requirements("card.security", &options.card.security, declared)?;
        }
        if extended.skills.is_empty() {
            skills("card.skills", &options.card.skills, declared)?;
        }
    }

    if let Some(CardSigning { key_id, jku, .. }) = &options.card_signing {
        text("card_signing.key_id", key_id)?;
        jku.as_ref().map_or(Ok(()), |url| link("card_signing.jku", url))?;
    }

    extensions(&options.extensions)
}

/// The schemes that requirements may name, with the path of the option that declares them.
type DeclaredSchemes<'a> = (&'a str, &'a BTreeMap<String, Scheme>);

fn card(path: &str, card: &CardOptions, declared: DeclaredSchemes<'_>) -> Result<(), String> {
    for (name, value) in [("name", &card.name), ("description", &card.description), ("version", &card.version)] {
        value.as_ref().map_or(Ok(()), |value| text(&format!("{path}.{name}"), value))?;
    }

    if let Some(provider) = &card.provider {
        text(&format!("{path}.provider.organization"), &provider.organization)?;
        link(&format!("{path}.provider.url"), &provider.url)?;
    }
    card.documentation_url.as_ref().map_or(Ok(()), |url| link(&format!("{path}.documentation_url"), url))?;
    if let Some(icon) = card.icon_url.as_ref().filter(|icon| !icon.starts_with("data:image/")) {
        link(&format!("{path}.icon_url"), icon)?;
    }

    modes(&format!("{path}.input_modes"), &card.input_modes)?;
    modes(&format!("{path}.output_modes"), &card.output_modes)?;
    for (name, scheme) in &card.security_schemes {
        if name.is_empty() {
            return Err(error(&format!("{path}.security_schemes"), "must not contain an empty name"));
        }
        scheme.check(&format!("{path}.security_schemes.{name}"))?;
    }

    requirements(&format!("{path}.security"), &card.security, declared)?;
    skills(&format!("{path}.skills"), &card.skills, declared)
}

fn skills(path: &str, skills: &[Skill], declared: DeclaredSchemes<'_>) -> Result<(), String> {
    let mut ids = HashSet::new();
    for (index, skill) in skills.iter().enumerate() {
        let path_of = |name: &str| format!("{path}[{index}].{name}");
        text(&path_of("id"), &skill.id)?;
        text(&path_of("name"), &skill.name)?;
        text(&path_of("description"), &skill.description)?;

        if skill.tags.is_empty() {
            return Err(error(&path_of("tags"), "must have at least one entry"));
        }
        texts(&path_of("tags"), &skill.tags)?;
        texts(&path_of("examples"), &skill.examples)?;
        modes(&path_of("input_modes"), &skill.input_modes)?;
        modes(&path_of("output_modes"), &skill.output_modes)?;
        requirements(&path_of("security"), &skill.security, declared)?;

        if !ids.insert(skill.id.as_str()) {
            return Err(error(
                &path_of("id"),
                &format!("must be unique: \"{}\" is already the id of another skill", skill.id),
            ));
        }
    }
    Ok(())
}

fn requirements(path: &str, needed: &[Requirement], (option, schemes): DeclaredSchemes<'_>) -> Result<(), String> {
    for (index, entry) in needed.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if entry.is_empty() {
            return Err(error(&path, "names no scheme: leave the entry out if no authentication is required"));
        }
        for (name, scopes) in entry {
            if !schemes.contains_key(name) {
                return Err(error(&path, &format!("names \"{name}\", which \"{option}\" does not declare")));
            }
            texts(&format!("{path}.{name}"), scopes)?;
        }
    }
    Ok(())
}

fn extensions(extensions: &[Extension]) -> Result<(), String> {
    let mut seen = HashSet::new();
    for (index, extension) in extensions.iter().enumerate() {
        let path_of = |name: &str| format!("extensions[{index}].{name}");
        let uri = extension.uri.as_str();
        if uri.is_empty() || !uri.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(error(&path_of("uri"), "must be a URI without commas: headers list it separated by commas"));
        }
        if !seen.insert(uri) {
            return Err(error(
                &path_of("uri"),
                &format!("must be unique: \"{uri}\" is already the URI of another extension"),
            ));
        }

        extension.description.as_ref().map_or(Ok(()), |value| text(&path_of("description"), value))?;

        match &extension.params {
            None => {}
            Some(value @ Value::Object(_)) => check_params(&path_of("params"), value, MAX_DEPTH)?,
            Some(_) => return Err(error(&path_of("params"), "must be a table")),
        }
    }
    Ok(())
}

/// Checks extension parameters. Clients read them as a protobuf `Struct`, whose numbers are floating-point.
fn check_params(path: &str, value: &Value, levels: usize) -> Result<(), String> {
    if levels == 0 {
        return Err(error(path, &format!("is nested deeper than {MAX_DEPTH} levels")));
    }
    match value {
        Value::Null => Err(error(path, "must not be null: numbers must be finite")),
        Value::Number(number) if !number.is_f64() => {
            let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
            if size.is_some_and(|size| size <= MAX_SAFE_INTEGER) {
                return Ok(());
            }
            Err(error(path, &format!("is an integer beyond {MAX_SAFE_INTEGER}, which clients may round: use a string")))
        }
        Value::Object(fields) => {
            fields.iter().try_for_each(|(name, value)| check_params(&format!("{path}.{name}"), value, levels - 1))
        }
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(index, value)| check_params(&format!("{path}[{index}]"), value, levels - 1))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn texts(path: &str, values: &[String]) -> Result<(), String> {
    values.iter().enumerate().try_for_each(|(index, value)| text(&format!("{path}[{index}]"), value))
}

/// Checks that a text is not blank.
pub(super) fn text(path: &str, value: &str) -> Result<(), String> {
    if value.trim().is_empty() { Err(error(path, "must not be empty")) } else { Ok(()) }
}

/// Checks for an absolute http or https URL, public or not.
pub(super) fn link(path: &str, url: &str) -> Result<(), String> {
    let policy = Policy { allow_http: true, ..Policy::default() };
    match policy.destination(url) {
        Ok(_) | Err(Refused::Host) => Ok(()),
        Err(Refused::UserInfo) => Err(error(path, "must not contain a user name or password")),
        // Other schemes, invalid ports, not a URL.
        Err(_) => Err(error(path, &format!("must be an absolute http or https URL, not \"{url}\""))),
    }
}

/// Checks media types. A top-level type such as `text` is allowed too, as in many cards.
fn modes(path: &str, modes: &[String]) -> Result<(), String> {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte))
    };
    for (index, mode) in modes.iter().enumerate() {
        let essence = mode.split(';').next().unwrap_or("").trim_end();
        let (kind, subtype) = essence.split_once('/').map_or((essence, None), |(kind, rest)| (kind, Some(rest)));
        if !is_token(kind) || !subtype.is_none_or(is_token) {
            let why = format!("must be a media type such as \"text/plain\", not \"{mode}\"");
            return Err(error(&format!("{path}[{index}]"), &why));
        }
    }
    Ok(())
}

/// Formats an error about an option.
pub(super) fn error(path: &str, why: &str) -> String {
    format!("\"{path}\" of an \"a2a\" route {why}")
}
