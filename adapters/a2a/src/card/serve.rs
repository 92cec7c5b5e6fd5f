//! Serves cards over HTTP: format, URL and caching (docs/protocols/a2a.md#agent-card). Not here: the extended card,
//! which is a regular operation (`crate::serve`).

use std::sync::Arc;

use interlingua_core::call::{Call, Reply};
use interlingua_core::event::Millis;
use interlingua_core::exchange::{Exchange, Next};
use interlingua_core::time::{format_http_date, parse_http_date};
use interlingua_core::well_known::FetchedDocument;
use interlingua_core::{Extra, Fault, Json, Out, Request};

use super::{CardBuilder, CardOptions, UpstreamCard, Variant, upstream};
use crate::Route;
use crate::dialect::{Binding, Dialect, Generation, RequestedVersion};
use crate::errors::{self, ErrorReport, Problem, RestError};
use crate::options::{CardFrom, CardWithoutVersion};

/// Cache lifetime of a card, in seconds.
const MAX_AGE: u32 = 300;
/// Cache lifetime in seconds of a card without its upstream's fields, which may be available soon.
const INCOMPLETE_MAX_AGE: u32 = 30;

impl Route {
    /// URL of the mount: the configured one, else that of the request.
    pub(crate) fn url(&self, base_url: &str) -> String {
        match &self.public_url {
            Some(url) => url.clone(),
            None => base_url.trim_end_matches('/').to_owned(),
        }
    }

    /// The lookup needed before building a card; `Call::Nothing` if none.
    pub(crate) fn upstream_card_call(&self) -> Call {
        match self.options.card_from {
            Some(CardFrom::Upstream) => Call::FetchedDocument(upstream::well_known_document(&self.agents[0].name)),
            None => Call::Nothing,
        }
    }

    /// Builds a card of the route's agent. `fetched`: the upstream's card, if there is one.
    pub(crate) fn card(
        &self,
        variant: Variant,
        url: &str,
        extended: Option<&CardOptions>,
        fetched: Option<&FetchedDocument>,
    ) -> Extra {
        let upstream = fetched.map(|fetched| UpstreamCard::from_stored(&fetched.document));

        let material = CardBuilder {
            agent: &self.agents[0],
            options: &self.options,
            schemes: &self.schemes,
            extended,
            upstream: upstream.as_ref(),
        };
        let mut card = material.card(variant, url, self.extended_card().is_some());
        // Only pure 1.0 cards: a verifier would canonicalize 0.3 fields that it does not know.
        if let Some(signer) = self.signer.as_ref().filter(|_| variant == Variant::V1) {
            signer.sign(&mut card);
        }
        card
    }

    /// Contents of the extended card. `None` if it is not configured or callers cannot authenticate.
    pub(crate) fn extended_card(&self) -> Option<&CardOptions> {
        self.options.extended_card.as_ref().filter(|_| !self.schemes.is_empty())
    }

    /// The card format for the requested version (docs/protocols/a2a.md#version-and-binding-of-a-request).
    fn variant(&self, requested: RequestedVersion) -> Variant {
        let serves_v03 = self.options.versions.contains(&Generation::V03);
        match (requested, self.options.card_without_version) {
            _ if !serves_v03 => Variant::V1,
            (RequestedVersion::V1, _) | (_, CardWithoutVersion::V1) => Variant::V1,
            (_, CardWithoutVersion::Hybrid) => Variant::Hybrid,
            (_, CardWithoutVersion::V03) => Variant::V03,
        }
    }
}

/// `GET /.well-known/agent-card.json`
pub(crate) struct Card {
    route: Arc<Route>,
    variant: Variant,
    url: String,
    now: Millis,
    if_none_match: Option<String>,
    if_modified_since: Option<String>,
}

impl Card {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            variant: Variant::Hybrid,
            url: String::new(),
            now: 0,
            if_none_match: None,
            if_modified_since: None,
        }
    }

    /// True if the client's cached card is current.
    fn is_not_modified(&self, tag: &str, changed_at: u64) -> bool {
        match (&self.if_none_match, &self.if_modified_since) {
            (Some(tags), _) => tags.split(',').any(|known| {
                let known = known.trim();
                known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
            }),
            // HTTP dates have a resolution of one second.
            (None, Some(date)) => parse_http_date(date).is_some_and(|known| known / 1000 >= changed_at / 1000),
            (None, None) => false,
        }
    }
}

impl Exchange for Card {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let requested = RequestedVersion::from_request(request);
        if requested == RequestedVersion::Other {
            return Err(errors::fault(Problem::VersionNotSupported, "the requested version is not served"));
        }

        self.variant = self.route.variant(requested);
        self.url = self.route.url(request.base_url);
        self.now = request.now;
        self.if_none_match = request.header("if-none-match").map(str::to_owned);
        self.if_modified_since = request.header("if-modified-since").map(str::to_owned);
        Ok(self.route.upstream_card_call())
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let (fetched, complete) = match reply {
            Reply::FetchedDocument(fetched) => (fetched, fetched.is_some()),
            _ => (None, true),
        };

        let card = Json::from_serialize(&self.route.card(self.variant, &self.url, None, fetched));
        // Round up to the next second: the card may have changed within the second that an older card's date names.
        let changed_at = fetched.map_or(0, |fetched| (fetched.since / 1000 + 1) * 1000);
        let changed_at = changed_at.max(self.route.agents[0].since);

        let tag = etag(card.text());
        // A URL from this request: a shared cache would serve it to other clients, and another host has another card.
        let is_fixed = self.route.public_url.is_some();
        let (scope, host) = if is_fixed { ("public", "") } else { ("private", ", Host") };
        let max_age = if complete { MAX_AGE } else { INCOMPLETE_MAX_AGE };
        out.header("cache-control", format!("{scope}, max-age={max_age}"));

        if changed_at <= self.now {
            out.header("last-modified", format_http_date(changed_at));
        }
        out.header("vary", format!("A2A-Version, Accept-Encoding{host}"));

        let not_modified = self.is_not_modified(&tag, changed_at);
        out.header("etag", tag);
        if not_modified {
            out.status(304);
        } else {
            out.json(&card);
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let dialect = Dialect { binding: Binding::Rest, generation: Generation::V1 };
        let report = ErrorReport::new(fault, None, &self.route.options.versions);
        report.headers(out);
        out.status(report.http(dialect));
        out.json(&RestError(&report, dialect));
    }
}

/// ETag of a body: a non-cryptographic hash.
fn etag(body: &str) -> String {
    // 64-bit FNV-1a.
    let hash = body
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
}
