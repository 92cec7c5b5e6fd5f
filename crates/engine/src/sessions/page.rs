//! Selection and order of the sessions on one page of a list.
//!
//! Not here: the states of their runs ([`crate::operator::session_calls`]).

use std::collections::BTreeMap;

use interlingua_core::call::{Order, SessionCursor, SessionFilter, SessionPage, SessionView};

/// Selects the sessions of one page. Holds at most one page of them.
pub(crate) struct PageSelection<'a> {
    filter: &'a SessionFilter,
    selected: BTreeMap<SessionCursor, SessionView>,
    total: usize,
    has_more: bool,
}

impl<'a> PageSelection<'a> {
    pub(crate) const fn new(filter: &'a SessionFilter) -> Self {
        Self { filter, selected: BTreeMap::new(), total: 0, has_more: false }
    }

    /// Adds a session if it matches the filter and belongs on the page.
    pub(crate) fn add(&mut self, session: SessionView) {
        let SessionFilter { labels, order, limit, cursor, .. } = self.filter;
        if !labels.iter().all(|(name, value)| session.labels.get(name) == Some(value)) {
            return;
        }

        self.total += 1;
        let position = position_of(&session, *order);
        let is_before = cursor.as_ref().is_some_and(|cursor| match order.is_ascending() {
            true => position <= *cursor,
            false => position >= *cursor,
        });
        if is_before {
            return;
        }
        self.selected.insert(position, session);
        if *limit > 0 && self.selected.len() > *limit {
            let _ = if order.is_ascending() { self.selected.pop_last() } else { self.selected.pop_first() };
            self.has_more = true;
        }
    }

    pub(crate) fn finish(self) -> SessionPage {
        let is_ascending = self.filter.order.is_ascending();
        let last = if is_ascending { self.selected.keys().next_back() } else { self.selected.keys().next() };
        let next = last.filter(|_| self.has_more).cloned();
        let mut sessions: Vec<SessionView> = self.selected.into_values().collect();
        if !is_ascending {
            sessions.reverse();
        }
        SessionPage { sessions, total: self.total, next }
    }
}

fn position_of(session: &SessionView, order: Order) -> SessionCursor {
    let at = order.time(session.created_at, session.updated_at);
    SessionCursor { at, agent: session.agent.clone(), id: session.id.clone() }
}
