//! A run as the task that clients see.

use interlingua_core::event::Millis;
use interlingua_core::pending::Pending;
use interlingua_core::time::format_rfc3339_millis;
use interlingua_core::{End, RunView};
use serde_json::{Map, Value, json};

use super::loader::DismissalCounts;
use super::phase::Phase;
use crate::forms::{self, Modes};
use crate::options::Options;
use crate::progress;
use crate::result::{Outcome, ResultContext, call_result};
use crate::revision::Revision;

/// The task that a call is answered with, with its `resultType`.
pub(crate) fn created(view: RunView<'_>, options: &Options, now: Millis) -> Value {
    let mut task = fields(&[view], options, now);
    task.insert("resultType".to_owned(), Value::from("task"));
    Value::Object(task)
}

/// A task with what it has to show: its questions, its result or its error. `runs`: the run of the task, then the runs
/// that answered it. Never empty.
pub(crate) fn current(
    runs: &[RunView<'_>],
    context: &ResultContext<'_>,
    modes: Modes,
    dismissed: &DismissalCounts,
    now: Millis,
) -> Value {
    let mut task = fields(runs, context.options, now);
    let Some(last) = runs.last().copied() else { return Value::Object(task) };
    match Phase::of(last) {
        Phase::Working => {
            task.insert("statusMessage".to_owned(), Value::from(status_message(last)));
        }
        Phase::Asks => {
            let suffix = |item: &Pending| suffix(runs, item, dismissed);
            let none = std::collections::BTreeMap::new();
            let requests = forms::request_all(last.pending, Revision::July2026, modes, &none, &suffix);
            if requests.is_empty() {
                let message = "The task waits for an answer, and this client shows no forms.";
                task.insert("statusMessage".to_owned(), Value::from(message));
            }
            task.insert("inputRequests".to_owned(), Value::Object(requests));
        }
        Phase::Ended(End::Canceled) => {}
        Phase::Ended(_) => match call_result(context, runs, Outcome::Ended) {
            Ok(result) => {
                task.insert("result".to_owned(), result);
            }
            Err(error) => {
                task.insert("status".to_owned(), Value::from("failed"));
                task.insert("statusMessage".to_owned(), Value::from(error.message.as_str()));
                task.insert("error".to_owned(), error.to_value());
            }
        },
    }
    Value::Object(task)
}

/// The fields that every task has.
fn fields(runs: &[RunView<'_>], options: &Options, now: Millis) -> Map<String, Value> {
    let mut task = Map::new();
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return task };
    let phase = Phase::of(*last);
    let created_at = first.run().created_at;
    let changed_at = first.info.changed_at.max(last.info.changed_at);

    // It never expires before the end of its run.
    let kept_from = if matches!(phase, Phase::Ended(_)) { changed_at } else { created_at };
    let ttl = millis(options.task_ttl.0);
    let age = now.saturating_sub(created_at);
    let used = kept_from.saturating_sub(created_at);
    let is_late = !matches!(phase, Phase::Ended(_)) && age >= ttl;
    let ttl = if is_late { age } else { used }.saturating_add(ttl);

    let mut set = |name: &str, value: Value| task.insert(name.to_owned(), value);
    set("taskId", Value::from(first.run().id.to_string()));
    set("status", Value::from(phase.status()));
    set("createdAt", Value::from(format_rfc3339_millis(created_at)));
    set("lastUpdatedAt", Value::from(format_rfc3339_millis(changed_at)));
    set("ttlMs", json!(ttl));
    set("pollIntervalMs", json!(millis(options.poll_interval.0)));
    task
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The latest news of a run, or that its agent works.
fn status_message(view: RunView<'_>) -> String {
    let run = view.run();
    progress::status_message(run).unwrap_or_else(|| format!("{} is working", run.agent))
}

/// The end of the keys of an item: a task never uses a key twice, neither for a question that was closed nor for one
/// that has the id of an earlier question.
pub(super) fn suffix(runs: &[RunView<'_>], item: &Pending, dismissed: &DismissalCounts) -> String {
    let own = forms::key(item);
    let asked_before: usize = runs
        .iter()
        .enumerate()
        .map(|(index, view)| {
            let run = view.run();
            let is_last = index + 1 == runs.len();
            let end = if is_last { forms::asking_turn(*view) } else { run.turns.len() };
            (0..end).filter(|turn| run.pending_of(*turn).iter().any(|asked| forms::key(asked) == own)).count()
        })
        .sum();
    match asked_before + dismissed.of(item) {
        0 => String::new(),
        before => format!("#{}", before + 1),
    }
}
