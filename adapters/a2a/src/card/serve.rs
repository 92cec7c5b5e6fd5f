//! Cards as they are asked for: which form, which URL, and what caches need (section 4). The extended card is an
//! operation like any other and asked for in `serve`.

use std::sync::Arc;

use interlingua_core::call::{Call, Reply};
use interlingua_core::event::Millis;
use interlingua_core::event::Step;
use interlingua_core::exchange::{Exchange, Flow, Next};
use interlingua_core::well_known::FetchedDocument;
use interlingua_core::{Extra, Fault, Json, Out, Request};

use super::{CardOptions, Material, Upstream, Variant, upstream};
use crate::Route;
use crate::dialect::{Asked, Binding, Dialect, Generation};
use crate::errors::{self, Problem, RestError, Told};
use crate::options::{CardFrom, CardWithoutVersion};
use crate::time::{http_date, read_http_date};

/// How long caches may keep a card, in seconds.
const MAX_AGE: u32 = 300;
/// The same for a card that lacks what the agent's own server would say: it may be there soon.
const INCOMPLETE_MAX_AGE: u32 = 30;

impl Route {
    /// The URL of the mount as this client sees it.
    pub(crate) fn url(&self, base_url: &str) -> String {
        match &self.public_url {
            Some(url) => url.clone(),
            None => base_url.trim_end_matches('/').to_owned(),
        }
    }

    /// What has to be asked before a card of the route's agent can be written.
    pub(crate) fn card_call(&self) -> Call {
        match self.options.card_from {
            Some(CardFrom::Upstream) => Call::FetchedDocument(upstream::wanted(&self.agents[0].name)),
            None => Call::Nothing,
        }
    }

    /// A card of the route's agent.
    pub(crate) fn card(
        &self,
        variant: Variant,
        url: &str,
        extended: Option<&CardOptions>,
        published: Option<&FetchedDocument>,
    ) -> Extra {
        let upstream = published.map(|published| Upstream::read(&published.document));
        let material =
            Material { agent: &self.agents[0], options: &self.options, extended, upstream: upstream.as_ref() };
        let mut card = material.card(variant, url, self.extended_card().is_some());
        // A verifier would canonicalise fields of the other generation that it does not know.
        if let Some(signer) = self.signer.as_ref().filter(|_| variant == Variant::V1) {
            signer.sign(&mut card);
        }
        card
    }

    /// What the card says besides to those who have signed in. None: there is no extended card, or nobody can sign in.
    pub(crate) fn extended_card(&self) -> Option<&CardOptions> {
        self.options.extended_card.as_ref().filter(|_| self.authenticates)
    }

    /// The form for whoever asks so (section 3).
    fn variant(&self, asked: Asked) -> Variant {
        let old = self.options.versions.contains(&Generation::V03);
        match (asked, self.options.card_without_version) {
            _ if !old => Variant::V1,
            (Asked::V1, _) | (_, CardWithoutVersion::V1) => Variant::V1,
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
    known_tags: Option<String>,
    known_since: Option<String>,
}

impl Card {
    pub(crate) fn new(route: &Arc<Route>) -> Self {
        Self {
            route: Arc::clone(route),
            variant: Variant::Hybrid,
            url: String::new(),
            now: 0,
            known_tags: None,
            known_since: None,
        }
    }

    /// Whether what the client has is the same.
    fn is_known(&self, tag: &str, since: u64) -> bool {
        match (&self.known_tags, &self.known_since) {
            (Some(tags), _) => tags.split(',').any(|known| {
                let known = known.trim();
                known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag
            }),
            // Headers have seconds.
            (None, Some(date)) => read_http_date(date).is_some_and(|known| known / 1000 >= since / 1000),
            (None, None) => false,
        }
    }
}

impl Exchange for Card {
    fn decode(&mut self, request: &Request<'_>) -> Result<Call, Fault> {
        let asked = Asked::of(request);
        if asked == Asked::Other {
            return Err(errors::fault(Problem::VersionNotSupported, "the requested version is not served here"));
        }
        self.variant = self.route.variant(asked);
        self.url = self.route.url(request.base_url);
        self.now = request.now;
        self.known_tags = request.header("if-none-match").map(str::to_owned);
        self.known_since = request.header("if-modified-since").map(str::to_owned);
        Ok(self.route.card_call())
    }

    fn reply(&mut self, reply: Reply<'_>, out: &mut Out) -> Result<Next, Fault> {
        let (published, complete) = match reply {
            Reply::FetchedDocument(published) => (published, published.is_some()),
            _ => (None, true),
        };
        let card = Json::from_serialize(&self.route.card(self.variant, &self.url, None, published));
        // The second after the one in which it became so: a date of that very second may be an older card's.
        let since = published.map_or(0, |published| (published.since / 1000 + 1) * 1000);
        let since = since.max(self.route.agents[0].since);
        let tag = tag(card.text());
        if self.route.public_url.is_some() {
            let max_age = if complete { MAX_AGE } else { INCOMPLETE_MAX_AGE };
            out.header("cache-control", format!("public, max-age={max_age}"));
        } else {
            // Its URL is the one this client asked for. A shared cache would hand it to others, whoever asked first.
            out.header("cache-control", "private, no-store");
        }
        if since <= self.now {
            out.header("last-modified", http_date(since));
        }
        out.header("vary", "A2A-Version, Accept-Encoding");
        let known = self.is_known(&tag, since);
        out.header("etag", tag);
        if known {
            out.status(304);
        } else {
            out.json(&card);
        }
        Ok(Next::Done)
    }

    fn fail(&mut self, fault: &Fault, out: &mut Out) {
        let dialect = Dialect { binding: Binding::Rest, generation: Generation::V1 };
        let told = Told::new(fault, None, &self.route.options.versions);
        told.headers(out);
        out.status(told.http(dialect));
        out.json(&RestError(&told, dialect));
    }

    fn encode(&mut self, _: Step<'_>, _: &mut Out) -> Flow {
        Flow::Close
    }
}

/// A tag for a body: it tells apart, it protects nothing.
fn tag(body: &str) -> String {
    // FNV-1a, of 64 bits.
    let hash = body
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("\"{hash:016x}\"")
}
