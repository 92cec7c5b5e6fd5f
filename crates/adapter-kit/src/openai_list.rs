//! Lists of OpenAI's APIs: the query for a page (`limit`, `order`, `after`), and the object that is a page.
//!
//! Not here: what the lists hold, which adapters write.

use serde::Serialize;

use interlingua_core::exchange::Request;
use interlingua_core::fault::{Fault, FaultKind};
use interlingua_core::json::Json;

/// The page a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageQuery {
    /// The most entries of the page, from 1 to 100.
    pub limit: usize,
    /// True if the oldest entry comes first.
    pub ascending: bool,
    /// Id of the entry before the first one of the page.
    pub after: Option<String>,
}

impl PageQuery {
    /// Entries on a page if the client names no number.
    pub const LIMIT: usize = 20;

    /// Parses the query. `ascending`: the order if the client names none.
    ///
    /// # Errors
    /// The invalid parameter.
    pub fn parse(request: &Request<'_>, ascending: bool) -> Result<Self, Fault> {
        let mut page = Self { limit: Self::LIMIT, ascending, after: None };
        if let Some(limit) = request.query("limit") {
            let wrong = |kind| Fault::new(kind, "must be a number from 1 to 100").with_field("limit");
            page.limit = limit.parse().map_err(|_| wrong(FaultKind::WrongType))?;
            if !(1..=100).contains(&page.limit) {
                return Err(wrong(FaultKind::Invalid));
            }
        }

        match request.query("order").as_deref() {
            None => {}
            Some("asc") => page.ascending = true,
            Some("desc") => page.ascending = false,
            Some(_) => return Err(Fault::invalid("order", "must be 'asc' or 'desc'")),
        }

        page.after = request.query("after").filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned);
        Ok(page)
    }

    /// The entries of the page, and true if others follow. `entries`: all of them, the oldest first.
    ///
    /// # Errors
    /// The entry of `after` is not in the list.
    pub fn cut<T>(&self, mut entries: Vec<T>, id: impl Fn(&T) -> &str) -> Result<(Vec<T>, bool), Fault> {
        if !self.ascending {
            entries.reverse();
        }
        if let Some(after) = &self.after {
            let index = entries.iter().position(|entry| id(entry) == after).ok_or_else(|| Self::unknown(after))?;
            entries.drain(..=index);
        }

        let has_more = entries.len() > self.limit;
        entries.truncate(self.limit);
        Ok((entries, has_more))
    }

    /// The fault of a page after an entry that is not in the list.
    #[must_use]
    pub fn unknown(after: &str) -> Fault {
        Fault::invalid("after", format!("no item with id '{after}' in this list"))
    }
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub struct List<'a> {
    object: &'static str,
    data: &'a [Json],
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

impl<'a> List<'a> {
    /// `first_id` and `last_id` are the ids of the first and the last entry of `data`.
    #[must_use]
    pub const fn new(data: &'a [Json], first_id: Option<&'a str>, last_id: Option<&'a str>, has_more: bool) -> Self {
        Self { object: "list", data, first_id, last_id, has_more }
    }
}
