//! Security schemes of cards: configured once, encoded for both versions (docs/protocols/a2a.md#agent-card).

use std::collections::BTreeMap;

use interlingua_core::{AuthScheme, Extra, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::values;
use super::variant::Variant;
use crate::dialect::Generation;

/// A security scheme.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Scheme {
    /// An API key in a header, the query or a cookie.
    ApiKey {
        /// `header`, `query` or `cookie`.
        location: String,
        /// Name of the header, parameter or cookie.
        name: String,
        /// Description for people.
        #[serde(default)]
        description: Option<String>,
    },
    /// HTTP authentication.
    Http {
        /// HTTP authentication scheme: `bearer`, `basic` …
        scheme: String,
        /// Format of a bearer token, such as `JWT`.
        #[serde(default)]
        bearer_format: Option<String>,
        /// Description for people.
        #[serde(default)]
        description: Option<String>,
    },
    /// OAuth 2.
    Oauth2 {
        /// Exactly one of the kinds.
        flows: Flows,
        /// URL of the server metadata.
        #[serde(default)]
        metadata_url: Option<String>,
        /// Description for people.
        #[serde(default)]
        description: Option<String>,
    },
    /// OpenID Connect.
    OpenIdConnect {
        /// URL of the server metadata.
        url: String,
        /// Description for people.
        #[serde(default)]
        description: Option<String>,
    },
    /// A client certificate (mutual TLS).
    MutualTls {
        /// Description for people.
        #[serde(default)]
        description: Option<String>,
    },
}

/// An OAuth 2 flow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Flows {
    /// Authorization code, with a browser.
    AuthorizationCode(Flow),
    /// Client credentials, between machines.
    ClientCredentials(Flow),
    /// Device code. 0.3 does not have it.
    DeviceCode(Flow),
    /// Deprecated.
    Implicit(Flow),
    /// Deprecated.
    Password(Flow),
}

/// URLs and scopes of a flow.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, Serialize)]
#[serde(default, deny_unknown_fields, rename_all(serialize = "camelCase"))]
pub struct Flow {
    /// Authorization endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    /// Device authorization endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_authorization_url: Option<String>,
    /// Token endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    /// Token refresh endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refresh_url: Option<String>,
    /// Descriptions by scope.
    pub scopes: BTreeMap<String, String>,
    /// True if PKCE is required.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pkce_required: bool,
}

/// Schemes that are required together: scopes by scheme name.
pub type Requirement = BTreeMap<String, Vec<String>>;

/// The schemes of a route that authenticates its callers, by name.
pub(crate) fn of_route(schemes: &[AuthScheme]) -> BTreeMap<String, Scheme> {
    let mut named = BTreeMap::new();
    for scheme in schemes {
        let (name, scheme) = match scheme {
            AuthScheme::ApiKey => {
                ("apiKey", Scheme::ApiKey { location: "header".into(), name: "x-api-key".into(), description: None })
            }
            AuthScheme::Bearer { jwt_only } => {
                let bearer_format = jwt_only.then(|| "JWT".to_owned());
                ("bearer", Scheme::Http { scheme: "bearer".into(), bearer_format, description: None })
            }
            AuthScheme::OpenId { url } => ("oidc", Scheme::OpenIdConnect { url: url.clone(), description: None }),
            AuthScheme::Certificate => ("mtls", Scheme::MutualTls { description: None }),
            AuthScheme::Issuer { .. } => continue,
        };

        // Only issuers may be several.
        let numbered = || (2..).map(|number| format!("{name}{number}"));
        let free = std::iter::once(name.to_owned()).chain(numbered()).find(|name| !named.contains_key(name));
        named.extend(free.map(|name| (name, scheme)));
    }
    named
}

/// Requirements in the formats of 1.0 and 0.3; empty for a version that the card does not have. 0.3 omits requirements
/// with a scheme it lacks.
pub(super) fn requirements<'a>(
    requirements: &'a [Requirement],
    schemes: &BTreeMap<String, Scheme>,
    variant: Variant,
) -> (Vec<serde_json::Value>, Vec<&'a Requirement>) {
    let to_v1 = |entry: &Requirement| {
        // Without scopes the list is omitted: signatures cover the card without default values.
        let scopes = |scopes: &[String]| if scopes.is_empty() { json!({}) } else { json!({ "list": scopes }) };
        let schemes: BTreeMap<_, _> = entry.iter().map(|(name, scope_list)| (name, scopes(scope_list))).collect();
        json!({ "schemes": schemes })
    };

    let is_expressible = |entry: &&Requirement| entry.keys().all(|name| schemes.get(name).is_some_and(Scheme::is_v03));
    (
        if variant.has(Generation::V1) { requirements.iter().map(to_v1).collect() } else { Vec::new() },
        if variant.has(Generation::V03) { requirements.iter().filter(is_expressible).collect() } else { Vec::new() },
    )
}

impl Flows {
    fn name_and_flow(&self) -> (&'static str, &Flow) {
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
    /// True if 0.3 supports the scheme.
    const fn is_v03(&self) -> bool {
        !matches!(self, Self::Oauth2 { flows: Flows::DeviceCode(_), .. })
    }

    /// The encoded scheme. 0.3 has the kind in `type`, 1.0 as the name of the member; hybrid cards hold both. `None`:
    /// the card's version does not support the scheme.
    pub(super) fn fields(&self, variant: Variant) -> Option<Extra> {
        let (kind, member, fields, description) = self.parts();
        let v03 = variant.has(Generation::V03) && self.is_v03();
        if !v03 && !variant.has(Generation::V1) {
            return None;
        }

        let mut written = Extra::new();
        if v03 {
            written.push("type", Json::from_serialize(kind));
            for (new_name, value) in &fields {
                // The only field whose name differs between the versions.
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
                let (name, flow) = flows.name_and_flow();
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
    /// Checks what the types cannot express. `path` is the option's path for errors.
    pub(super) fn check(&self, path: &str) -> Result<(), String> {
        let check_text = |name: &str, text: &str| values::text(&format!("{path}.{name}"), text);
        let check_link = |name: &str, url: &str| values::link(&format!("{path}.{name}"), url);
        let description = match self {
            Self::ApiKey { location, name, description } => {
                if !matches!(location.as_str(), "query" | "header" | "cookie") {
                    let why = format!("must be \"query\", \"header\" or \"cookie\", not \"{location}\"");
                    return Err(values::error(&format!("{path}.location"), &why));
                }
                check_text("name", name)?;
                description
            }
            Self::Http { scheme, bearer_format, description } => {
                check_text("scheme", scheme)?;
                bearer_format.as_ref().map_or(Ok(()), |format| check_text("bearer_format", format))?;
                description
            }
            Self::Oauth2 { flows, metadata_url, description } => {
                flows.check(&format!("{path}.flows"))?;
                metadata_url.as_ref().map_or(Ok(()), |url| check_link("metadata_url", url))?;
                description
            }
            Self::OpenIdConnect { url, description } => {
                check_link("url", url)?;
                description
            }
            Self::MutualTls { description } => description,
        };

        description.as_ref().map_or(Ok(()), |text| check_text("description", text))
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
        let (_, flow) = self.name_and_flow();
        for (field, url) in [
            ("authorization_url", &flow.authorization_url),
            ("device_authorization_url", &flow.device_authorization_url),
            ("token_url", &flow.token_url),
        ] {
            let path = format!("{path}.{name}.{field}");
            match url {
                Some(url) if needs.contains(&field) => values::link(&path, url)?,
                Some(_) => return Err(values::error(&path, "is not part of this flow: leave it out")),
                None if needs.contains(&field) => return Err(values::error(&path, "is missing")),
                None => {}
            }
        }

        if flow.pkce_required && !matches!(self, Self::AuthorizationCode(_)) {
            return Err(values::error(&format!("{path}.{name}.pkce_required"), "is not part of this flow"));
        }
        flow.refresh_url.as_ref().map_or(Ok(()), |url| values::link(&format!("{path}.{name}.refresh_url"), url))
    }
}
