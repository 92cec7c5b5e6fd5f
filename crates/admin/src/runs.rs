//! Lists runs, filtered by the parameters of a query.

use interlingua_core::call::{Cursor, Filter, Order, RunState};
use interlingua_core::{End, Fault, RunId};

use super::AdminState;
use super::views::{Page, Summary};
use interlingua_engine::RunQuery;
use interlingua_store::Query;

/// Maximum and default number of runs in one response.
const MAX_RUNS: usize = 200;

/// A page of summaries: `{"data", "total", "next"}`.
///
/// # Errors
/// Unknown parameters, invalid values, and errors of the store.
pub(super) async fn list(state: &AdminState, query: &str, texts: bool) -> Result<Page<Summary>, Fault> {
    let wanted = parse(query, texts)?;
    let found = state.admin.engine.operator().list(wanted).await?;
    let data = found.runs.iter().map(|run| Summary::new(run, texts)).collect();
    let next = found.next.map(|cursor| format!("{}_{}", cursor.at, cursor.id));
    Ok(Page { data, total: Some(found.total), next })
}

fn parse(query: &str, texts: bool) -> Result<RunQuery, Fault> {
    let mut filter = Filter { limit: MAX_RUNS, order: Order::LatestChange, ..Filter::default() };
    let mut wanted = RunQuery::default();
    for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
        let value = value.into_owned();
        match &*name {
            _ if value.is_empty() => {}
            "agent" => wanted.query.agents = vec![value],
            "protocol" => filter.protocol = Some(value),
            "state" if value == "pending" => wanted.pending = true,
            "state" => filter.states = vec![parse_state(&value)?],
            "session" => filter.session = Some(value),
            "owner" => wanted.query.owner = Some(value),
            "since" => filter.changed_since = Some(number("since", &value)?),
            // A search would reveal texts to a person without the right to read them.
            "text" if texts => wanted.query.text = Some(id_in(&value).map_or(value, |id| id.to_string())),
            "text" => return Err(Fault::invalid("text", "your role may not search in texts")),
            "cursor" => filter.cursor = Some(parse_cursor(&value)?),
            "limit" => {
                let limit = usize::try_from(number("limit", &value)?).unwrap_or(usize::MAX);
                if !(1..=MAX_RUNS).contains(&limit) {
                    return Err(Fault::invalid("limit", format!("must be between 1 and {MAX_RUNS}")));
                }
                filter.limit = limit;
            }
            other => return Err(Fault::invalid(other.to_owned(), "is not a parameter of this path")),
        }
    }
    wanted.query = Query { filter, ..wanted.query };
    Ok(wanted)
}

/// Finds the run id in an id of any protocol, such as `chatcmpl-` and 32 hexadecimal digits.
fn id_in(text: &str) -> Option<RunId> {
    /// Longer texts are not ids, in bytes.
    const MAX_ID: usize = 128;
    if text.len() > MAX_ID || !text.is_ascii() {
        return None;
    }
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_hexdigit);
    (0..text.len()).find_map(|from| {
        [36, 32].into_iter().find_map(|length| {
            let is_part = is_digit(from.checked_sub(1)) || is_digit(Some(from + length));
            text.get(from..from + length).filter(|_| !is_part).and_then(RunId::parse)
        })
    })
}

fn number(field: &'static str, value: &str) -> Result<u64, Fault> {
    value.parse().map_err(|_| Fault::invalid(field, "is not a number"))
}

fn parse_state(value: &str) -> Result<RunState, Fault> {
    let state = match value {
        "queued" | "running" => RunState::parse(value),
        ended => End::parse(ended).map(RunState::Ended),
    };
    let states = "queued, running, pending, completed, incomplete, failed, rejected or canceled";
    state.ok_or_else(|| Fault::invalid("state", format!("must be {states}")))
}

/// Parses a cursor: the time and the id of the last run of a page.
fn parse_cursor(value: &str) -> Result<Cursor, Fault> {
    let parsed =
        value.split_once('_').and_then(|(at, id)| Some(Cursor { at: at.parse().ok()?, id: RunId::parse(id)? }));
    parsed.ok_or_else(|| Fault::invalid("cursor", "is not the start of a page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_whole_or_refused_by_name() {
        let id = "01a208c9-285b-77b2-bc95-9cb2f4b1904e";
        let wanted = parse(&format!("agent=demo&state=failed&text=mail&limit=5&cursor=17_{id}"), true).expect("valid");
        assert_eq!(wanted.query.agents, ["demo"]);
        assert_eq!(wanted.query.filter.states, [RunState::Ended(End::Failed)]);
        assert_eq!(wanted.query.filter.cursor.map(|cursor| cursor.at), Some(17));
        assert!(parse("state=pending", true).expect("valid").pending);
        for (query, field) in [
            ("stat=failed", "stat"),
            ("state=done", "state"),
            ("limit=0", "limit"),
            ("limit=201", "limit"),
            ("since=x", "since"),
            ("cursor=17", "cursor"),
        ] {
            assert_eq!(parse(query, true).expect_err(query).field.as_deref(), Some(field));
        }
        for written in ["chatcmpl-01a208c9285b77b2bc959cb2f4b1904e", "msg_01a208c9285b77b2bc959cb2f4b1904e_3", id] {
            let wanted = parse(&format!("text={written}"), true).expect("valid");
            assert_eq!(wanted.query.text.as_deref(), Some(id), "{written}");
        }
        let other = parse("text=chatcmpl-01a208c9285b77b2bc959cb2f4b1904e0", true).expect("valid");
        assert_ne!(other.query.text.as_deref(), Some(id), "33 digits are no id");
        assert_eq!(parse("text=a", false).expect_err("no texts").field.as_deref(), Some("text"));
    }
}
