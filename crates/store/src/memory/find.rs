//! Finds a page of runs. Ended runs are indexed by the time of their last change, so that the latest changes cost no
//! more than their number; other runs are checked one by one, and only the runs of the page are described.
//!
//! Not here: the storage of runs ([`super`]).

use std::ops::Bound;
use std::sync::Mutex;

use interlingua_core::call::{Cursor, RunInfo, RunState, Tags};
use interlingua_core::event::{End, Millis};
use interlingua_core::id::RunId;

use super::super::local::lock;
use super::super::{Query, RunHead, RunPage, code_prefixes};
use super::{Run, Runs};

/// A run with what a query judges it by.
struct Candidate {
    id: RunId,
    run: Run,
    state: RunState,
    changed_at: Millis,
}

/// The page that a query asks for.
pub(super) fn page(runs: &Mutex<Runs>, query: &Query) -> RunPage {
    let filter = &query.filter;
    let mut found: Vec<Candidate> =
        candidates(&lock(runs), query).into_iter().filter_map(|(id, run)| judged(id, run, query)).collect();
    if let Some(text) = &query.text {
        let codes = code_prefixes(text);
        found.retain(|one| has_text(&head(one), text) || codes.as_ref().is_some_and(|codes| has_code(one, codes)));
    }
    let total = found.len();

    let place = |one: &Candidate| (filter.order.time(one.run.created_at, one.changed_at), one.id);
    if let Some(Cursor { at, id }) = filter.cursor {
        let follows = |place| if filter.order.is_ascending() { place > (at, id) } else { place < (at, id) };
        found.retain(|one| follows(place(one)));
    }
    found.sort_unstable_by_key(place);
    if !filter.order.is_ascending() {
        found.reverse();
    }

    let limit = if filter.limit == 0 { Query::LIMIT } else { filter.limit };
    let more = found.len() > limit;
    found.truncate(limit);
    let heads: Vec<RunHead> = found.iter().map(head).collect();
    let next = heads.last().filter(|_| more).map(|head| head.cursor(filter.order));
    RunPage { runs: heads, total, next }
}

/// The runs that may fit, by what never changes. States and tags are behind the runs' own locks, so they are read once
/// the lock of the store is released.
fn candidates(runs: &Runs, query: &Query) -> Vec<(RunId, Run)> {
    let filter = &query.filter;
    let wanted = |run: &Run| {
        (query.agents.is_empty() || query.agents.iter().any(|agent| **agent == *run.agent))
            && query.owner.as_ref().is_none_or(|owner| **owner == *run.owner)
            && !run.data.is_hidden()
            && filter.session.as_ref().is_none_or(|session| **session == *run.session)
            && filter.protocol.as_ref().is_none_or(|protocol| **protocol == *run.protocol)
            && !run.is_expired(&query.expired_before)
    };
    let of_id = |id: &RunId| Some((*id, runs.by_id.get(id).filter(|run| wanted(run))?.clone()));
    match filter.changed_since {
        Some(since) => {
            let from = Bound::Included((since, RunId(uuid::Uuid::nil())));
            let ended = runs.all.ended().range((from, Bound::Unbounded)).map(|(_, id)| id);
            ended.chain(&runs.active).filter_map(of_id).collect()
        }
        None => runs.by_id.iter().filter(|(_, run)| wanted(run)).map(|(id, run)| (*id, run.clone())).collect(),
    }
}

/// The run, if what changes fits too.
fn judged(id: RunId, run: Run, query: &Query) -> Option<Candidate> {
    let filter = &query.filter;
    let fits = |info: &RunInfo| {
        (filter.tags.is_empty() || has_tags(info, &filter.tags))
            && (filter.states.is_empty() || filter.states.contains(&info.state))
            && filter.changed_since.is_none_or(|since| info.changed_at >= since)
    };
    let (state, changed_at) = run.data.with_info(|info| fits(info).then_some((info.state, info.changed_at)))?;
    Some(Candidate { id, run, state, changed_at })
}

/// A run as a list shows it. State and time are those by which it was judged.
fn head(one: &Candidate) -> RunHead {
    let Candidate { id, run, state, changed_at } = one;
    run.data.with(|record, info| RunHead {
        id: *id,
        agent: run.agent.to_string(),
        session: run.session.to_string(),
        state: *state,
        created_at: run.created_at,
        changed_at: *changed_at,
        size: record.size() as u64,
        protocol: info.protocol.clone(),
        owner: info.owner.clone(),
        events: record.len(),
        preview: record.run().preview(),
    })
}

fn has_tags(info: &RunInfo, tags: &Tags) -> bool {
    tags.iter().all(|(name, value)| info.tags.get(name) == Some(value))
}

/// True if a run failed with an error code that begins with one of these texts.
fn has_code(one: &Candidate, codes: &[String]) -> bool {
    let failed = matches!(one.state, RunState::Ended(end) if end != End::Completed);
    failed
        && one.run.data.with(|record, _| {
            let mut errors = record.run().turns.iter().filter_map(|turn| turn.error.as_ref());
            errors.any(|error| codes.iter().any(|wanted| error.code.starts_with(wanted.as_str())))
        })
}

fn has_text(head: &RunHead, text: &str) -> bool {
    let wanted = text.to_ascii_lowercase();
    let has = |value: &str| value.to_ascii_lowercase().contains(&wanted);
    has(&head.preview) || has(&head.session) || has(&head.owner) || RunId::parse(text) == Some(head.id)
}
