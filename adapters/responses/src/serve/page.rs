//! Pagination of lists (docs/protocols/responses.md#list-pages): `limit`, `order`, `after`.

use interlingua_adapter_kit::openai_list::{List, PageQuery};
use interlingua_core::{Fault, Out, Request};

use super::items::RenderedItem;

/// The page a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page(PageQuery);

impl Default for Page {
    fn default() -> Self {
        Self(PageQuery { limit: PageQuery::LIMIT, ascending: false, after: None })
    }
}

impl Page {
    /// All items, oldest first.
    pub(crate) const fn all() -> Self {
        Self(PageQuery { limit: usize::MAX, ascending: true, after: None })
    }

    /// Parses the query.
    ///
    /// # Errors
    /// The invalid parameter.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Self, Fault> {
        PageQuery::parse(request, false).map(Self)
    }

    /// True if the oldest item comes first.
    pub(crate) const fn is_ascending(&self) -> bool {
        self.0.ascending
    }

    /// Number of stored messages to read first. An item may consist of two.
    pub(crate) const fn initial_message_count(&self) -> usize {
        self.0.limit.saturating_mul(2).saturating_add(2)
    }

    /// True if the page can be written from these items, which are one end of the list.
    pub(crate) fn is_covered_by(&self, items: &[RenderedItem]) -> bool {
        let start = match &self.0.after {
            None => 0,
            Some(after) => {
                let index = items.iter().position(|item| item.id == *after);
                let Some(index) = index else { return false };
                1 + if self.0.ascending { index } else { items.len() - 1 - index }
            }
        };

        items.len() - start > self.0.limit
    }

    /// Writes the page. `items` are in chronological order.
    ///
    /// # Errors
    /// The item of `after` is not in the list.
    pub(crate) fn write(&self, items: Vec<RenderedItem>, out: &mut Out) -> Result<(), Fault> {
        let (page, has_more) = self.0.cut(items, |item| &item.id)?;

        let data: Vec<_> = page.iter().map(|item| item.json.clone()).collect();
        let first = page.first().map(|item| item.id.as_str());
        let last = page.last().map(|item| item.id.as_str());
        out.json(&List::new(&data, first, last, has_more));
        Ok(())
    }
}
