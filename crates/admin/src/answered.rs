//! Answers to a run's questions: in its own later turns, or in later runs of its session.
//!
//! Not here: open items ([`super::pending`]), and parsing of answers (`interlingua_core::answer`).

use std::collections::HashSet;

use interlingua_core::answer::{Answer, AnswerBody, native};
use interlingua_core::call::RunView;
use interlingua_core::pending::Decision;
use interlingua_core::{Fault, FaultKind, RunId};

use super::AdminState;
use super::views::AnsweredItem;
use interlingua_engine::{RunHandle, RunSummary};

/// Maximum number of later runs to search.
const MAX_RUNS: usize = 4;

/// Finds the answers to the questions of a run. `siblings`: the runs of its session.
///
/// # Errors
/// The store cannot be read. Runs that are damaged are left out.
pub(super) async fn answers(
    state: &AdminState,
    run: &RunHandle,
    siblings: &[RunSummary],
    texts: bool,
) -> Result<Vec<AnsweredItem>, Fault> {
    let (mut asked, mut found) = (HashSet::new(), Vec::new());
    run.view_safe(|view| {
        for turn in 0..view.run().turns.len() {
            collect(state, view, turn, &mut asked, &mut found, run.id());
            asked.extend(view.run().pending_of(turn).into_iter().map(|item| item.id));
        }
    });

    let mut later: Vec<RunId> = siblings.iter().map(|run| run.id).filter(|id| *id > run.id()).collect();
    later.sort_unstable();
    for id in later.into_iter().take(MAX_RUNS) {
        if asked.is_empty() {
            break;
        }
        let next = match state.admin.engine.operator().find(id).await {
            Ok(next) => next,
            // It was deleted meanwhile, or is damaged.
            Err(fault) if matches!(fault.kind, FaultKind::NotFound | FaultKind::Internal) => continue,
            Err(fault) => return Err(fault),
        };
        next.view_safe(|view| {
            for turn in 0..view.run().turns.len() {
                collect(state, view, turn, &mut asked, &mut found, run.id());
            }
        });
    }
    if !texts {
        found.iter_mut().for_each(|answered| (answered.arguments, answered.text) = (None, None));
    }
    Ok(found)
}

/// The answers in a turn's input to questions that are still open.
fn collect(
    state: &AdminState,
    view: RunView<'_>,
    turn: usize,
    asked: &mut HashSet<String>,
    found: &mut Vec<AnsweredItem>,
    asker: RunId,
) {
    let Some(turn) = view.run().turns.get(turn) else { return };
    for answer in turn.input.iter().flat_map(native) {
        if asked.remove(&answer.id) {
            let by = state.deciders.who(asker, &answer.id);
            found.push(to_answered_item(answer, view.run().id, by));
        }
    }
}

fn to_answered_item(answer: Answer, run: RunId, by: Option<String>) -> AnsweredItem {
    let (decision, arguments, text) = match answer.given {
        AnswerBody::Decided { decision, arguments, text, payload } => {
            (Some(decision), arguments, text.or_else(|| payload.map(|payload| payload.text().to_owned())))
        }
        AnswerBody::Text(text) => (Some(Decision::Respond), None, Some(text)),
        AnswerBody::Payload(payload) => (None, None, Some(payload.text().to_owned())),
    };
    AnsweredItem { id: answer.id, decision: decision.map(Decision::as_str), arguments, text, run, by }
}
