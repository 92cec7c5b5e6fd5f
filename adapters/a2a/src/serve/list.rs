//! ListTasks: filters, pages, and a cursor that stays where it is while tasks change (section 6).

use interlingua_core::call::{Call, Cursor, Filter, Page};
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Out, RunId};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::Serve;
use super::params::Params;
use crate::Route;
use crate::dialect::Form;
use crate::task::{self, Shown};
use crate::updates::Updates;
use crate::wire::{Spelled, base64, read};

const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: i64 = 100;

/// How a list was asked for.
pub(super) struct Listing {
    page_size: usize,
    shown: Shown,
}

impl Serve {
    pub(super) fn list(&mut self, params: &Params<'_>) -> Result<Call, Fault> {
        let page_size = match params.integer("pageSize")? {
            None => DEFAULT_PAGE,
            Some(size @ 1..=MAX_PAGE) => usize::try_from(size).unwrap_or(DEFAULT_PAGE),
            Some(_) => return Err(Fault::invalid("pageSize", "must be between 1 and 100")),
        };
        let status = match read::field(&params.object, "status") {
            Some(node) => read::state(&node)?,
            None => {
                let word = params.text("status")?;
                let json = word.map(|word| interlingua_core::Json::from_serialize(&word));
                json.as_ref().map(|json| read::state(&Node::with_path("status", json.raw()))).transpose()?.flatten()
            }
        };
        let since = params
            .text("statusTimestampAfter")?
            .map(|text| {
                let at = interlingua_core::pending::time::read(&text);
                at.ok_or_else(|| Fault::invalid("statusTimestampAfter", "must be a time like 2026-11-20T10:00:00Z"))
            })
            .transpose()?;
        let cursor = params.text("pageToken")?.map(|token| read_cursor(&token)).transpose()?;
        let artifacts = params.boolean("includeArtifacts")?.unwrap_or(false);
        let shown = Shown { history: params.history_length()?, artifacts, even_empty: true };
        self.doing = super::Doing::List(Listing { page_size, shown });
        Ok(Call::List(Filter {
            session: params.text("contextId")?,
            protocol: Some(crate::NAME.to_owned()),
            states: status.map(|state| task::run_states(&self.route, state)).unwrap_or_default(),
            changed_since: since,
            limit: page_size,
            cursor,
            heads: false,
        }))
    }

    pub(super) fn write_list(&self, listing: &Listing, page: &Page<'_>, out: &mut Out) {
        let tasks = Tasks {
            route: &self.route,
            agent: &self.agent,
            page,
            shown: listing.shown,
            form: self.write.dialect.form(),
            updates: &|| Updates::new(&self.route),
        };
        if self.write.dialect.is_old() {
            // The text of 0.3 has a bare list.
            self.write.result(&tasks, out);
            return;
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer<'a> {
            tasks: Tasks<'a>,
            next_page_token: String,
            page_size: usize,
            total_size: usize,
        }
        let answer = Answer {
            tasks,
            next_page_token: page.next.map(write_cursor).unwrap_or_default(),
            page_size: listing.page_size,
            total_size: page.total,
        };
        self.write.result(&answer, out);
    }
}

/// The tasks of a page, made as they are written.
struct Tasks<'a> {
    route: &'a Route,
    agent: &'a str,
    page: &'a Page<'a>,
    shown: Shown,
    form: Form,
    updates: &'a dyn Fn() -> Updates,
}

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for view in self.page.runs.iter().filter(|view| self.route.shows(**view, self.agent)) {
            let task = task::task(&mut (self.updates)(), self.route, *view, self.shown);
            list.serialize_element(&Spelled(&task, self.form))?;
        }
        list.end()
    }
}

/// A place in the list: when the last task's status changed, and its id.
fn write_cursor(cursor: Cursor) -> String {
    base64::url(format!("{}.{}", cursor.changed_at, cursor.id.0.simple()).as_bytes())
}

fn read_cursor(token: &str) -> Result<Cursor, Fault> {
    let read = || {
        let text = String::from_utf8(base64::bytes(token)?).ok()?;
        let (at, id) = text.split_once('.')?;
        Some(Cursor { changed_at: at.parse().ok()?, id: RunId::parse(id)? })
    };
    read().ok_or_else(|| Fault::invalid("pageToken", "is no token of a page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_refused() {
        let cursor = Cursor { changed_at: 1_795_168_800_123, id: interlingua_core::testkit::RUN };
        assert_eq!(read_cursor(&write_cursor(cursor)).expect("a cursor"), cursor);
        for token in ["x", "", "!!", "MTIzNA", "LjEyMw=="] {
            assert!(read_cursor(token).is_err(), "{token}");
        }
    }
}
