//! Pages of lists (section 1): `limit`, `order`, `after`.

use interlingua_core::{Fault, FaultKind, Out, Request};

use super::items::Shown;
use crate::wire::List;

/// Which page.
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
    /// Everything, oldest first: what was added by one request.
    pub(crate) const fn whole() -> Self {
        Self { limit: usize::MAX, ascending: true, after: None }
    }

    /// Reads the query.
    ///
    /// # Errors
    /// The parameter at fault.
    pub(crate) fn read(request: &Request<'_>) -> Result<Self, Fault> {
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

    /// True if what comes first is what was said first.
    pub(crate) const fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// How many stored messages are looked at for it, to begin with: an item may be two.
    pub(crate) const fn messages(&self) -> usize {
        self.limit.saturating_mul(2).saturating_add(2)
    }

    /// True if these items from its end are all it takes to write it.
    pub(crate) fn is_served_by(&self, items: &[Shown]) -> bool {
        let from = match &self.after {
            None => 0,
            Some(after) => {
                let at = items.iter().position(|item| item.id == *after);
                let Some(at) = at else { return false };
                1 + if self.ascending { at } else { items.len() - 1 - at }
            }
        };
        items.len() - from > self.limit
    }

    /// Writes the page. `items` are in the order they were said.
    ///
    /// # Errors
    /// The item after which the page begins is not there.
    pub(crate) fn write(&self, mut items: Vec<Shown>, out: &mut Out) -> Result<(), Fault> {
        if !self.ascending {
            items.reverse();
        }
        let from = match &self.after {
            None => 0,
            Some(after) => {
                let at = items.iter().position(|item| item.id == *after);
                at.ok_or_else(|| Fault::invalid("after", format!("no item of this list has the id '{after}'")))? + 1
            }
        };
        let rest = &items[from..];
        let shown = &rest[..rest.len().min(self.limit)];
        let data: Vec<_> = shown.iter().map(|item| item.json.clone()).collect();
        let first = shown.first().map(|item| item.id.as_str());
        let last = shown.last().map(|item| item.id.as_str());
        out.json(&List::new(&data, first, last, rest.len() > shown.len()));
        Ok(())
    }
}
