//! ListTasks: filters, pages, and a cursor that stays valid while tasks change (docs/protocols/a2a.md#listing-tasks).

use interlingua_core::call::{Call, Cursor, Filter, Page};
use interlingua_core::tree::Node;
use interlingua_core::{Fault, Out, RunId};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::A2aExchange;
use super::params::Params;
use crate::Route;
use crate::dialect::WireFormat;
use crate::encode::task::{self, TaskDetail};
use crate::encode::updates::Updates;
use crate::wire::{EncodedValue, base64, read};

const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: i64 = 100;

/// The parameters of a list request that the response needs.
pub(super) struct ListOperation {
    page_size: usize,
    detail: TaskDetail,
}

impl A2aExchange {
    pub(super) fn start_list(&mut self, params: &Params<'_>) -> Result<Call, Fault> {
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
                let at = interlingua_core::time::parse_rfc3339(&text);
                at.ok_or_else(|| Fault::invalid("statusTimestampAfter", "must be a time like 2026-11-20T10:00:00Z"))
            })
            .transpose()?;

        let cursor = params.text("pageToken")?.map(|token| parse_cursor(&token)).transpose()?;

        let artifacts = params.boolean("includeArtifacts")?.unwrap_or(false);
        let detail = TaskDetail { history: params.history_length()?, artifacts, empty_artifacts: true };

        self.state = super::OperationState::List(ListOperation { page_size, detail });
        Ok(Call::List(Filter {
            session: params.text("contextId")?,
            protocol: Some(crate::NAME.to_owned()),
            states: status.map(|state| task::run_states(&self.route, state)).unwrap_or_default(),
            changed_since: since,
            limit: page_size,
            cursor,
            ..Filter::default()
        }))
    }

    pub(super) fn write_list(&self, operation: &ListOperation, page: &Page<'_>, out: &mut Out) {
        let tasks = Tasks {
            route: &self.route,
            agent: &self.agent,
            page,
            detail: operation.detail,
            form: self.writer.dialect.wire_format(),
            updates: &|| Updates::new(&self.route),
        };
        if self.writer.dialect.is_v03() {
            // 0.3 returns a bare list.
            self.writer.result(&tasks, out);
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
            page_size: operation.page_size,
            total_size: page.total,
        };
        self.writer.result(&answer, out);
    }
}

/// The tasks of a page, converted while they are serialized.
struct Tasks<'a> {
    route: &'a Route,
    agent: &'a str,
    page: &'a Page<'a>,
    detail: TaskDetail,
    form: WireFormat,
    updates: &'a dyn Fn() -> Updates,
}

impl Serialize for Tasks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for view in self.page.runs.iter().filter(|view| self.route.is_visible(**view, self.agent)) {
            let task = task::task(&mut (self.updates)(), self.route, *view, self.detail);
            list.serialize_element(&EncodedValue(&task, self.form))?;
        }
        list.end()
    }
}

/// Encodes a cursor: the last task's status time and id.
fn write_cursor(cursor: Cursor) -> String {
    base64::encode_url(format!("{}.{}", cursor.at, cursor.id.0.simple()).as_bytes())
}

fn parse_cursor(token: &str) -> Result<Cursor, Fault> {
    let read = || {
        let text = String::from_utf8(base64::decode(token)?).ok()?;
        let (at, id) = text.split_once('.')?;
        Some(Cursor { at: at.parse().ok()?, id: RunId::parse(id)? })
    };
    read().ok_or_else(|| Fault::invalid("pageToken", "is not a valid page token"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips_and_other_tokens_are_rejected() {
        let cursor = Cursor { at: 1_795_168_800_123, id: interlingua_core_testkit::RUN };
        assert_eq!(parse_cursor(&write_cursor(cursor)).expect("a cursor"), cursor);
        for token in ["x", "", "!!", "MTIzNA", "LjEyMw=="] {
            assert!(parse_cursor(token).is_err(), "{token}");
        }
    }
}
