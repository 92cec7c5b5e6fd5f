//! Log lines about web pages of other origins that were refused: their developers see only an error of the browser.
//!
//! Not here: which origins are refused (`guard.rs`).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use actix_web::dev::RequestHead;

use super::ServedRoute;

/// The most lines of a process: strangers choose the origins.
const MAX_LINES: usize = 64;
/// The longest origin of a line, in bytes.
const MAX_ORIGIN: usize = 256;

/// The pages that were logged, by origin and route.
#[derive(Default)]
pub(super) struct RefusedPages(Mutex<HashSet<(String, String)>>);

impl RefusedPages {
    /// Logs a refused request of a page, once for each origin and route.
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
