//! Ways to sign in, as cards declare them: written once, spelled for either generation (section 4).

use std::collections::BTreeMap;

use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Variant, check};
use crate::dialect::Generation;

/// A way to sign in.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scheme {
    /// A key in a header, the query or a cookie.
    ApiKey {
        /// `header`, `query` or `cookie`.
        location: String,
        /// Of the header, parameter or cookie.
        name: String,
        /// For people.
        #[serde(default)]
        description: Option<String>,
    },
    /// HTTP authentication.
    Http {
        /// `bearer`, `basic` …
        scheme: String,
        /// What a bearer token looks like.
        #[serde(default)]
        bearer_format: Option<String>,
        /// For people.
        #[serde(default)]
        description: Option<String>,
    },
    /// OAuth 2.
    Oauth2 {
        /// One of its flows.
        flows: Flows,
        /// Where its metadata is.
        #[serde(default)]
        metadata_url: Option<String>,
        /// For people.
        #[serde(default)]
        description: Option<String>,
    },
    /// OpenID Connect.
    OpenIdConnect {
        /// Where its metadata is.
        url: String,
        /// For people.
        #[serde(default)]
        description: Option<String>,
    },
    /// A client certificate.
    MutualTls {
        /// For people.
        #[serde(default)]
        description: Option<String>,
    },
}

/// A flow of OAuth 2: exactly one.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Flows {
    /// With a browser.
    AuthorizationCode(Flow),
    /// Between machines.
    ClientCredentials(Flow),
    /// On another device. 0.3 has no word for it.
    DeviceCode(Flow),
    /// Deprecated.
    Implicit(Flow),
    /// Deprecated.
    Password(Flow),
}

/// The addresses and scopes of a flow.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all(serialize = "camelCase"))]
pub struct Flow {
    /// Where people sign in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    /// Where devices are signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_authorization_url: Option<String>,
    /// Where tokens come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// Where they are renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_url: Option<String>,
    /// What may be asked for, and what it means.
    pub scopes: BTreeMap<String, String>,
    /// Whether PKCE is required.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pkce_required: bool,
}

/// What has to be signed in with at once: schemes by name, each with the scopes it takes.
pub type Requirement = BTreeMap<String, Vec<String>>;

/// Requirements as 1.0 and as 0.3 write them, as far as a card is of that generation. What names a scheme that 0.3
/// cannot say is left out there.
pub(super) fn requirements<'a>(
    needed: &'a [Requirement],
    schemes: &BTreeMap<String, Scheme>,
    variant: Variant,
) -> (Vec<serde_json::Value>, Vec<&'a Requirement>) {
    let new = |entry: &Requirement| {
        // No scopes are no list: signatures are over what is left of a card once defaults are gone.
        let scopes = |scopes: &[String]| if scopes.is_empty() { json!({}) } else { json!({ "list": scopes }) };
        let schemes: BTreeMap<_, _> = entry.iter().map(|(name, told)| (name, scopes(told))).collect();
        json!({ "schemes": schemes })
    };
    let sayable = |entry: &&Requirement| entry.keys().all(|name| schemes.get(name).is_some_and(Scheme::is_old));
    (
        if variant.has(Generation::V1) { needed.iter().map(new).collect() } else { Vec::new() },
        if variant.has(Generation::V03) { needed.iter().filter(sayable).collect() } else { Vec::new() },
    )
}

impl Flows {
    fn named(&self) -> (&'static str, &Flow) {
        match self {
            Self::AuthorizationCode(flow) => ("authorizationCode", flow),
            Self::ClientCredentials(flow) => ("clientCredentials", flow),
            Self::DeviceCode(flow) => ("deviceCode", flow),
            Self::Implicit(flow) => ("implicit", flow),
            Self::Password(flow) => ("password", flow),
        }
    }
}

impl Scheme {
    /// Whether 0.3 has words for it.
    const fn is_old(&self) -> bool {
        !matches!(self, Self::Oauth2 { flows: Flows::DeviceCode(_), .. })
    }

    /// The scheme's fields: 0.3 says the kind by a word, 1.0 by the member; hybrid cards hold both. None: the card's
    /// generation cannot say it.
    pub(super) fn fields(&self, variant: Variant) -> Option<Extra> {
        let (word, member, fields, description) = self.parts();
        let old = variant.has(Generation::V03) && self.is_old();
        if !old && !variant.has(Generation::V1) {
            return None;
        }
        let mut written = Extra::new();
        if old {
            written.push("type", Json::from_serialize(word));
            for (new_name, value) in &fields {
                // The one field with two names.
                let name = if *new_name == "location" { "in" } else { new_name };
                written.push(name, value.clone());
            }
            if let Some(description) = description {
                written.push("description", Json::from_serialize(description));
            }
        }
        if variant.has(Generation::V1) {
            let mut inner: Extra = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            if let Some(description) = description {
                inner.push("description", Json::from_serialize(description));
            }
            written.push(member, Json::from_serialize(&inner));
        }
        Some(written)
    }

    fn parts(&self) -> (&'static str, &'static str, Vec<(&'static str, Json)>, Option<&str>) {
        match self {
            Self::ApiKey { location, name, description } => {
                let fields = vec![("location", Json::from_serialize(location)), ("name", Json::from_serialize(name))];
                ("apiKey", "apiKeySecurityScheme", fields, description.as_deref())
            }
            Self::Http { scheme, bearer_format, description } => {
                let mut fields = vec![("scheme", Json::from_serialize(scheme))];
                fields.extend(bearer_format.as_ref().map(|format| ("bearerFormat", Json::from_serialize(format))));
                ("http", "httpAuthSecurityScheme", fields, description.as_deref())
            }
            Self::Oauth2 { flows, metadata_url, description } => {
                let (name, flow) = flows.named();
                let mut fields = vec![("flows", Json::from_serialize(&json!({ name: flow })))];
                fields.extend(metadata_url.as_ref().map(|url| ("oauth2MetadataUrl", Json::from_serialize(url))));
                ("oauth2", "oauth2SecurityScheme", fields, description.as_deref())
            }
            Self::OpenIdConnect { url, description } => {
                let fields = vec![("openIdConnectUrl", Json::from_serialize(url))];
                ("openIdConnect", "openIdConnectSecurityScheme", fields, description.as_deref())
            }
            Self::MutualTls { description } => ("mutualTLS", "mtlsSecurityScheme", Vec::new(), description.as_deref()),
        }
    }
}

impl Scheme {
    /// What is wrong with it that a type cannot say. `path` names it.
    pub(super) fn check(&self, path: &str) -> Result<(), String> {
        let told = |name: &str, text: &str| check::text(&format!("{path}.{name}"), text);
        let link = |name: &str, url: &str| check::link(&format!("{path}.{name}"), url);
        let description = match self {
            Self::ApiKey { location, name, description } => {
                if !matches!(location.as_str(), "query" | "header" | "cookie") {
                    let why = format!("must be \"query\", \"header\" or \"cookie\", not \"{location}\"");
                    return Err(check::wrong(&format!("{path}.location"), &why));
                }
                told("name", name)?;
                description
            }
            Self::Http { scheme, bearer_format, description } => {
                told("scheme", scheme)?;
                bearer_format.as_ref().map_or(Ok(()), |format| told("bearer_format", format))?;
                description
            }
            Self::Oauth2 { flows, metadata_url, description } => {
                flows.check(&format!("{path}.flows"))?;
                metadata_url.as_ref().map_or(Ok(()), |url| link("metadata_url", url))?;
                description
            }
            Self::OpenIdConnect { url, description } => {
                link("url", url)?;
                description
            }
            Self::MutualTls { description } => description,
        };
        description.as_ref().map_or(Ok(()), |text| told("description", text))
    }
}

impl Flows {
    fn check(&self, path: &str) -> Result<(), String> {
        let (name, needs): (&str, &[&str]) = match self {
            Self::AuthorizationCode(_) => ("authorization_code", &["authorization_url", "token_url"]),
            Self::ClientCredentials(_) => ("client_credentials", &["token_url"]),
            Self::DeviceCode(_) => ("device_code", &["device_authorization_url", "token_url"]),
            Self::Implicit(_) => ("implicit", &["authorization_url"]),
            Self::Password(_) => ("password", &["token_url"]),
        };
        let (_, flow) = self.named();
        for (field, told) in [
            ("authorization_url", &flow.authorization_url),
            ("device_authorization_url", &flow.device_authorization_url),
            ("token_url", &flow.token_url),
        ] {
            let at = format!("{path}.{name}.{field}");
            match told {
                Some(url) if needs.contains(&field) => check::link(&at, url)?,
                Some(_) => return Err(check::wrong(&at, "does not belong to this flow: leave it out")),
                None if needs.contains(&field) => return Err(check::wrong(&at, "is missing")),
                None => {}
            }
        }
        if flow.pkce_required && !matches!(self, Self::AuthorizationCode(_)) {
            return Err(check::wrong(&format!("{path}.{name}.pkce_required"), "does not belong to this flow"));
        }
        flow.refresh_url.as_ref().map_or(Ok(()), |url| check::link(&format!("{path}.{name}.refresh_url"), url))
    }
}

/// JSON Schema of a scheme's options.
pub(super) fn schema() -> serde_json::Value {
    json!({
        "type": "object",
        "required": ["type"],
        "properties": { "type": { "enum": ["api_key", "http", "oauth2", "open_id_connect", "mutual_tls"] } }
    })
}
