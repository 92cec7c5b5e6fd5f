//! Log lines about refused web pages of other origins. Their developers otherwise see only an error of the browser.
//!
//! Not here: which origins are refused (`guard.rs`).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use actix_web::dev::RequestHead;

use super::ServedRoute;

/// Maximum number of lines per process, because anyone can send any origin.
const MAX_LINES: usize = 64;
/// The longest logged origin, in bytes.
const MAX_ORIGIN: usize = 256;

/// The logged pages, by origin and route.
#[derive(Default)]
pub(super) struct RefusedPages(Mutex<HashSet<(String, String)>>);

impl RefusedPages {
    /// Logs a refused request of a page, once for each origin and route. Requests without an origin or a route are not
    /// logged.
    pub(super) fn log(&self, head: &RequestHead, route: Option<&ServedRoute>) {
        let origin = head.headers.get("origin").and_then(|origin| origin.to_str().ok());
        let (Some(origin), Some(route)) = (origin.filter(|origin| origin.len() <= MAX_ORIGIN), route) else { return };
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_LINES || !logged.insert((origin.to_owned(), route.path.clone())) {
            return;
        }
        drop(logged);

        tracing::warn!(
            origin,
            route = route.path,
            protocol = route.scope.protocol,
            "a web page of another origin was refused: to let it use this route, add its origin to the route's cors"
        );
    }
}
