//! What an operator may write into a card, judged at the start: each complaint names the option. What is written empty
//! is refused, since nobody could tell it from what was left out; so is what readers would not get as it was meant.
//!
//! Not here: options that no card shows (`crate::options`).

use std::collections::{BTreeMap, HashSet};

use interlingua_core::public_address::{Policy, Refused};
use serde_json::Value;

use super::{CardOptions, CardSigning, Requirement, Scheme, Skill};
use crate::options::{Extension, Options};

/// The largest whole number that every reader of JSON reads as it is written.
const LARGEST: u64 = (1 << 53) - 1;
/// So many tables and lists an extension's parameters may be nested in. Readers of ProtoJSON give up at 100, counted
/// from the card.
const MAX_DEPTH: usize = 64;

/// Everything of the options that cards show.
pub(crate) fn check(options: &Options) -> Result<(), String> {
    if let Some(url) = &options.public_url {
        let url = url.replace("{agent}", "agent");
        link("public_url", &url)?;
        if url.contains(['?', '#']) {
            return Err(wrong("public_url", "must have no query and no fragment"));
        }
    }
    let schemes = &options.card.security_schemes;
    card("card", &options.card, ("card.security_schemes", schemes))?;
    if let Some(extended) = &options.extended_card {
        // What it leaves out it has from the card.
        let own = !extended.security_schemes.is_empty();
        let name = if own { "extended_card.security_schemes" } else { "card.security_schemes" };
        let known = (name, if own { &extended.security_schemes } else { schemes });
        card("extended_card", extended, known)?;
        if extended.security.is_empty() {
            requirements("card.security", &options.card.security, known)?;
        }
        if extended.skills.is_empty() {
            skills("card.skills", &options.card.skills, known)?;
        }
    }
    if let Some(CardSigning { key_id, jku, .. }) = &options.card_signing {
        text("card_signing.key_id", key_id)?;
        jku.as_ref().map_or(Ok(()), |url| link("card_signing.jku", url))?;
    }
    extensions(&options.extensions)
}

/// The ways to sign in that requirements may name, and the option that declares them.
type Known<'a> = (&'a str, &'a BTreeMap<String, Scheme>);

fn card(path: &str, card: &CardOptions, known: Known<'_>) -> Result<(), String> {
    for (name, told) in [("name", &card.name), ("description", &card.description), ("version", &card.version)] {
        told.as_ref().map_or(Ok(()), |told| text(&format!("{path}.{name}"), told))?;
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
            return Err(wrong(&format!("{path}.security_schemes"), "gives every one a name"));
        }
        scheme.check(&format!("{path}.security_schemes.{name}"))?;
    }
    requirements(&format!("{path}.security"), &card.security, known)?;
    skills(&format!("{path}.skills"), &card.skills, known)
}

fn skills(path: &str, skills: &[Skill], known: Known<'_>) -> Result<(), String> {
    let mut ids = HashSet::new();
    for (place, skill) in skills.iter().enumerate() {
        let at = |name: &str| format!("{path}[{place}].{name}");
        text(&at("id"), &skill.id)?;
        text(&at("name"), &skill.name)?;
        text(&at("description"), &skill.description)?;
        if skill.tags.is_empty() {
            return Err(wrong(&at("tags"), "must hold at least one"));
        }
        texts(&at("tags"), &skill.tags)?;
        texts(&at("examples"), &skill.examples)?;
        modes(&at("input_modes"), &skill.input_modes)?;
        modes(&at("output_modes"), &skill.output_modes)?;
        requirements(&at("security"), &skill.security, known)?;
        if !ids.insert(skill.id.as_str()) {
            return Err(wrong(&at("id"), &format!("is \"{}\" like that of another skill", skill.id)));
        }
    }
    Ok(())
}

fn requirements(path: &str, needed: &[Requirement], (declared, schemes): Known<'_>) -> Result<(), String> {
    for (place, entry) in needed.iter().enumerate() {
        let path = format!("{path}[{place}]");
        if entry.is_empty() {
            return Err(wrong(&path, "names no scheme: leave it out where nobody has to sign in"));
        }
        for (name, scopes) in entry {
            if !schemes.contains_key(name) {
                return Err(wrong(&path, &format!("names \"{name}\", which \"{declared}\" does not declare")));
            }
            texts(&format!("{path}.{name}"), scopes)?;
        }
    }
    Ok(())
}

fn extensions(extensions: &[Extension]) -> Result<(), String> {
    let mut known = HashSet::new();
    for (place, extension) in extensions.iter().enumerate() {
        let at = |name: &str| format!("extensions[{place}].{name}");
        let uri = extension.uri.as_str();
        if uri.is_empty() || !uri.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(wrong(&at("uri"), "must be a URI: it is listed in headers, between commas"));
        }
        if !known.insert(uri) {
            return Err(wrong(&at("uri"), &format!("is \"{uri}\" like that of another extension")));
        }
        extension.description.as_ref().map_or(Ok(()), |told| text(&at("description"), told))?;
        match &extension.params {
            None => {}
            Some(params @ Value::Object(_)) => parameters(&at("params"), params, MAX_DEPTH)?,
            Some(_) => return Err(wrong(&at("params"), "must be a table")),
        }
    }
    Ok(())
}

/// Parameters reach clients as a `Struct` of protobuf, whose numbers are floating-point.
fn parameters(path: &str, value: &Value, levels: usize) -> Result<(), String> {
    if levels == 0 {
        return Err(wrong(path, &format!("is nested in more than {MAX_DEPTH} tables and lists")));
    }
    match value {
        Value::Null => Err(wrong(path, "is no value: numbers must be finite")),
        Value::Number(number) if !number.is_f64() => {
            let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
            if size.is_some_and(|size| size <= LARGEST) {
                return Ok(());
            }
            Err(wrong(
                path,
                &format!("is a whole number beyond {LARGEST}, which clients may round: write it as a text"),
            ))
        }
        Value::Object(fields) => {
            fields.iter().try_for_each(|(name, value)| parameters(&format!("{path}.{name}"), value, levels - 1))
        }
        Value::Array(values) => {
            let mut values = values.iter().enumerate();
            values.try_for_each(|(place, value)| parameters(&format!("{path}[{place}]"), value, levels - 1))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn texts(path: &str, told: &[String]) -> Result<(), String> {
    told.iter().enumerate().try_for_each(|(place, told)| text(&format!("{path}[{place}]"), told))
}

/// Something is said.
pub(super) fn text(path: &str, told: &str) -> Result<(), String> {
    if told.trim().is_empty() { Err(wrong(path, "must not be empty")) } else { Ok(()) }
}

/// A URL that clients can go to, public or not.
pub(super) fn link(path: &str, url: &str) -> Result<(), String> {
    let anybody = Policy { allow_http: true, ..Policy::default() };
    match anybody.destination(url) {
        Ok(_) | Err(Refused::Host) => Ok(()),
        Err(Refused::UserInfo) => Err(wrong(path, "must not hold a user or a password")),
        // Other schemes, other ports, other things.
        Err(_) => Err(wrong(path, &format!("must be an absolute http or https URL, not \"{url}\""))),
    }
}

/// Media types, or the first word of one, as cards have them.
fn modes(path: &str, modes: &[String]) -> Result<(), String> {
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte))
    };
    for (place, mode) in modes.iter().enumerate() {
        let essence = mode.split(';').next().unwrap_or("").trim_end();
        let (kind, subtype) = essence.split_once('/').map_or((essence, None), |(kind, rest)| (kind, Some(rest)));
        if !is_token(kind) || !subtype.is_none_or(is_token) {
            let why = format!("must be a media type such as \"text/plain\", not \"{mode}\"");
            return Err(wrong(&format!("{path}[{place}]"), &why));
        }
    }
    Ok(())
}

/// A complaint about an option.
pub(super) fn wrong(path: &str, why: &str) -> String {
    format!("\"{path}\" of an \"a2a\" route {why}")
}
