//! Ways to sign in, as cards declare them: written once, spelled for either generation (section 4).

use std::collections::BTreeMap;

use interlingua_core::{Extra, Json};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Variant;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pkce_required: Option<bool>,
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
    /// The scheme's fields: 0.3 says the kind by a word, 1.0 by the member; hybrid cards hold both. None: the card's
    /// generation cannot say it.
    pub(super) fn fields(&self, variant: Variant) -> Option<Extra> {
        let (word, member, fields, description) = self.parts();
        let sayable = !matches!(self, Self::Oauth2 { flows: Flows::DeviceCode(_), .. });
        let old = variant.has(Generation::V03) && sayable;
        if !old && !variant.has(Generation::V1) {
            return None;
        }
        let mut written = Extra::new();
        if old {
            written.push("type", Json::of(word));
            for (new_name, value) in &fields {
                // The one field with two names.
                let name = if *new_name == "location" { "in" } else { new_name };
                written.push(name, value.clone());
            }
            if let Some(description) = description {
                written.push("description", Json::of(description));
            }
        }
        if variant.has(Generation::V1) {
            let mut inner: Extra = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            if let Some(description) = description {
                inner.push("description", Json::of(description));
            }
            written.push(member, Json::of(&inner));
        }
        Some(written)
    }

    fn parts(&self) -> (&'static str, &'static str, Vec<(&'static str, Json)>, Option<&str>) {
        match self {
            Self::ApiKey { location, name, description } => {
                let fields = vec![("location", Json::of(location)), ("name", Json::of(name))];
                ("apiKey", "apiKeySecurityScheme", fields, description.as_deref())
            }
            Self::Http { scheme, bearer_format, description } => {
                let mut fields = vec![("scheme", Json::of(scheme))];
                fields.extend(bearer_format.as_ref().map(|format| ("bearerFormat", Json::of(format))));
                ("http", "httpAuthSecurityScheme", fields, description.as_deref())
            }
            Self::Oauth2 { flows, metadata_url, description } => {
                let (name, flow) = flows.named();
                let mut fields = vec![("flows", Json::of(&json!({ name: flow })))];
                fields.extend(metadata_url.as_ref().map(|url| ("oauth2MetadataUrl", Json::of(url))));
                ("oauth2", "oauth2SecurityScheme", fields, description.as_deref())
            }
            Self::OpenIdConnect { url, description } => {
                let fields = vec![("openIdConnectUrl", Json::of(url))];
                ("openIdConnect", "openIdConnectSecurityScheme", fields, description.as_deref())
            }
            Self::MutualTls { description } => ("mutualTLS", "mtlsSecurityScheme", Vec::new(), description.as_deref()),
        }
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
