//! The checks of the `limits` of callers, agents and routes.

use interlingua_base::rate::Rate;

use super::access::{AgentLimitsTable, CallerLimitsTable, RouteLimitsTable};
use super::diagnostics::Diagnostic;
use super::located::WithSpan;
use super::settings::{CallerLimits, RequestLimits};
use super::validator::Validator;

/// The largest count that a limit may have.
const MAX_NUMBER: u64 = 1_000_000_000;

pub(super) fn of_caller(table: &CallerLimitsTable, validator: &mut Validator<'_, '_>) -> CallerLimits {
    let default = CallerLimits::default();
    let burst = burst(table.rate.as_ref(), table.burst.as_ref(), validator);
    let mut number = |written: &Option<WithSpan<u64>>, key: &str, default: usize| {
        let number = written.as_ref().map(|number| validator.between(number, key, 0, MAX_NUMBER));
        number.map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let runs = number(&table.runs, "runs", default.runs);
    let streams = number(&table.streams, "streams", default.streams);
    let queued = number(&table.queued, "queued", default.queued);
    let sockets = number(&table.sockets, "sockets", default.sockets);
    let receivers = number(&table.receivers, "receivers", default.receivers);
    let mut positive = |written: &Option<WithSpan<u64>>, key: &str| {
        written.as_ref().map(|number| validator.between(number, key, 1, u64::MAX))
    };

    CallerLimits {
        rate: table.rate.as_ref().map(|rate| rate.value),
        burst,
        runs,
        streams,
        queued,
        sockets,
        stored: table.stored.as_ref().map(|stored| stored.value.bytes() as u64),
        stored_runs: positive(&table.stored_runs, "stored_runs"),
        tasks: positive(&table.tasks, "tasks"),
        conversations: positive(&table.conversations, "conversations"),
        receivers,
        pushes: table.pushes.as_ref().map_or(default.pushes, |pushes| pushes.value),
        tokens_per_day: positive(&table.tokens_per_day, "tokens_per_day"),
    }
}

pub(super) fn of_agent(table: &AgentLimitsTable, validator: &mut Validator<'_, '_>) -> RequestLimits {
    let runs = table.runs.as_ref().map(|runs| validator.between(runs, "runs", 1, MAX_NUMBER));
    RequestLimits {
        rate: table.rate.as_ref().map(|rate| rate.value),
        burst: burst(table.rate.as_ref(), table.burst.as_ref(), validator),
        runs: runs.map(|runs| usize::try_from(runs).unwrap_or(usize::MAX)),
    }
}

pub(super) fn of_route(table: &RouteLimitsTable, validator: &mut Validator<'_, '_>) -> RequestLimits {
    RequestLimits {
        rate: table.rate.as_ref().map(|rate| rate.value),
        burst: burst(table.rate.as_ref(), table.burst.as_ref(), validator),
        runs: None,
    }
}

fn burst(
    rate: Option<&WithSpan<Rate>>,
    burst: Option<&WithSpan<u64>>,
    validator: &mut Validator<'_, '_>,
) -> Option<u32> {
    let burst = burst?;
    let number = validator.between(burst, "burst", 1, 1_000_000);
    match rate {
        None => {
            let diagnostic = Diagnostic::error("\"burst\" needs a \"rate\"").at(&burst.span);
            validator.report(diagnostic.label("add rate = \"50/s\", or leave it out"));
        }
        Some(rate) if number < u64::from(rate.value.per_second().get()) => validator.report(
            Diagnostic::warning("\"burst\" is smaller than one second of \"rate\"")
                .at(&burst.span)
                .label(format!("a rate of \"{}\" is reached only by evenly spread requests", rate.value)),
        ),
        Some(_) => {}
    }
    u32::try_from(number).ok()
}
