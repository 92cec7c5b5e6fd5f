//! Pagination of lists (section 1): `limit`, `order`, `after`.

use interlingua_core::{Fault, FaultKind, Out, Request};

use super::items::RenderedItem;
use crate::wire::List;

/// The page a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    limit: usize,
    ascending: bool,
    after: Option<String>,
}

impl Default for Page {
    fn default() -> Self {
        Self { limit: 20, ascending: false, after: None }
    }
}

impl Page {
    /// All items, oldest first.
    pub(crate) const fn all() -> Self {
        Self { limit: usize::MAX, ascending: true, after: None }
    }

    /// Parses the query.
    ///
    /// # Errors
    /// The invalid parameter.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Self, Fault> {
        let mut page = Self::default();
        if let Some(limit) = request.query("limit") {
            let wrong = |kind| Fault::new(kind, "must be a number from 1 to 100").with_field("limit");
            page.limit = limit.parse().map_err(|_| wrong(FaultKind::WrongType))?;
            if !(1..=100).contains(&page.limit) {
                return Err(wrong(FaultKind::Invalid));
            }
        }

        match request.query("order").as_deref() {
            None | Some("desc") => {}
            Some("asc") => page.ascending = true,
            Some(_) => return Err(Fault::invalid("order", "must be 'asc' or 'desc'")),
        }

        page.after = request.query("after").filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned);
        Ok(page)
    }

    /// True if the oldest item comes first.
    pub(crate) const fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Number of stored messages to read first. An item may consist of two.
    pub(crate) const fn initial_message_count(&self) -> usize {
        self.limit.saturating_mul(2).saturating_add(2)
    }

    /// True if the page can be written from these items, which are one end of the list.
    pub(crate) fn is_covered_by(&self, items: &[RenderedItem]) -> bool {
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let index = items.iter().position(|item| item.id == *after);
                let Some(index) = index else { return false };
                1 + if self.ascending { index } else { items.len() - 1 - index }
            }
        };

        items.len() - start > self.limit
    }

    /// Writes the page. `items` are in chronological order.
    ///
    /// # Errors
    /// The item of `after` is not in the list.
    pub(crate) fn write(&self, mut items: Vec<RenderedItem>, out: &mut Out) -> Result<(), Fault> {
        if !self.ascending {
            items.reverse();
        }
        let start = match &self.after {
            None => 0,
            Some(after) => {
                let index = items.iter().position(|item| item.id == *after);
                index.ok_or_else(|| Fault::invalid("after", format!("no item with id '{after}' in this list")))? + 1
            }
        };

        let rest = &items[start..];
        let page = &rest[..rest.len().min(self.limit)];

        let data: Vec<_> = page.iter().map(|item| item.json.clone()).collect();
        let first = page.first().map(|item| item.id.as_str());
        let last = page.last().map(|item| item.id.as_str());
        out.json(&List::new(&data, first, last, rest.len() > page.len()));
        Ok(())
    }
}
