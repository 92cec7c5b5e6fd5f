//! The reaction of a turn to a failure: another request, resuming the task, or the end of the turn.

use interlingua_core::{Fault, FaultKind};

use super::turn::{A2aTurn, MAX_RESUMES, Step};
use crate::dialect::{Binding, Generation, Operation};
use crate::errors::Problem;

impl A2aTurn {
    /// Decides the reaction to an error of the agent or of the connection.
    ///
    /// # Errors
    /// The error that the agent reported, or else the fault, if no reaction can help.
    pub(super) fn recover(&mut self, problem: Option<Problem>, fault: Fault) -> Result<(), Fault> {
        self.try_recovery(problem, fault).map_err(|fault| self.reported.take().unwrap_or(fault))
    }

    fn try_recovery(&mut self, problem: Option<Problem>, fault: Fault) -> Result<(), Fault> {
        self.reader.forget_shape();
        // With JSON-RPC there is one URL for everything: if it is missing, all methods are missing.
        let problem = problem.or_else(|| if self.is_rest() { by_status(&fault) } else { None });
        match self.asked {
            Operation::Send | Operation::Stream if self.reader.items == 0 => self.send_differently(problem, fault),
            Operation::Cancel => match problem {
                // It ended before it could be canceled: the task says how.
                Some(Problem::TaskNotCancelable) => {
                    self.step = Some(Step::Poll);
                    Ok(())
                }
                _ => Err(fault),
            },
            _ => self.take_up(problem, fault),
        }
    }

    /// The message was not accepted: perhaps it is, sent in another way. Each is tried once.
    fn send_differently(&mut self, problem: Option<Problem>, fault: Fault) -> Result<(), Fault> {
        let is_stream = self.asked == Operation::Stream;
        let goes_on = self.reader.task.is_some();
        match problem {
            Some(Problem::TaskNotFound | Problem::UnsupportedOperation)
                if goes_on && !self.outgoing.is_answer && !self.tried_without_task =>
            {
                // The agent has forgotten the task, or it ended meanwhile: the message begins another.
                self.tried_without_task = true;
                self.reader.abandon_task();
            }
            Some(Problem::VersionNotSupported | Problem::MethodNotFound) if self.may_switch_version() => {
                self.tried_version = true;
                self.switch_version();
            }
            Some(Problem::UnsupportedOperation | Problem::MethodNotFound | Problem::MethodNotAllowed) if is_stream => {
                // The other version did not help either: the card was right about that, and wrong about streams.
                if problem == Some(Problem::MethodNotFound) && self.tried_version {
                    self.switch_version();
                }
                if let Some(interface) = &mut self.interface {
                    interface.streaming = false;
                }
            }
            _ => return Err(fault),
        }
        self.step = Some(Step::Send);
        Ok(())
    }

    fn may_switch_version(&self) -> bool {
        !self.tried_version && self.options.version.is_none()
    }

    /// The other version, remembered for the turns to come.
    fn switch_version(&mut self) {
        let Some(interface) = &mut self.interface else { return };
        let generation = match interface.dialect.generation {
            Generation::V1 => Generation::V03,
            Generation::V03 => Generation::V1,
        };
        interface.dialect.generation = generation;
        self.reader.session.version = Some(generation.as_str().to_owned());
    }

    /// The task is known, and the way to it broke.
    fn take_up(&mut self, problem: Option<Problem>, fault: Fault) -> Result<(), Fault> {
        if self.reader.task.is_none() || !may_pass(&fault) {
            return Err(fault);
        }
        if self.asked == Operation::Subscribe {
            match problem {
                Some(Problem::MethodNotAllowed) if !self.subscribes_by_get && !self.is_v03() => {
                    self.subscribes_by_get = true;
                    self.step = Some(Step::Subscribe);
                    return Ok(());
                }
                // It has ended, or the agent serves no subscriptions.
                Some(
                    Problem::UnsupportedOperation
                    | Problem::MethodNotFound
                    | Problem::MethodNotAllowed
                    | Problem::TaskNotFound,
                ) => {
                    self.can_subscribe = false;
                    self.step = Some(Step::Poll);
                    return Ok(());
                }
                _ => {}
            }
        }
        if problem == Some(Problem::TaskNotFound) || self.resumes >= MAX_RESUMES {
            return Err(truncated(&fault));
        }
        // The pause in the text of a model's error is not that of the task.
        let after = fault.retry_after.filter(|_| fault.upstream_status.is_some());
        // The task may be gone: then the agent's own words are all that is known.
        let is_of_agent = !matches!(
            fault.kind,
            FaultKind::UpstreamTruncated | FaultKind::UpstreamTimeout | FaultKind::UpstreamUnreachable
        );
        self.note_progress();
        if is_of_agent && self.asked.is_streaming() && fault.upstream_status.is_none() {
            self.reported.get_or_insert(fault);
        }
        self.resume(after);
        Ok(())
    }

    /// In 0.3 it is a GET anyway.
    fn is_v03(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.dialect.is_v03())
    }

    fn is_rest(&self) -> bool {
        self.interface.as_ref().is_some_and(|interface| interface.dialect.binding == Binding::Rest)
    }
}

/// The error of a status alone, for servers that answer an unknown path with a page.
fn by_status(fault: &Fault) -> Option<Problem> {
    match fault.upstream_status? {
        404 | 501 => Some(Problem::MethodNotFound),
        405 => Some(Problem::MethodNotAllowed),
        _ => None,
    }
}

/// True for failures that may be over in a moment. Limits of the gateway's own and refused credentials are not.
fn may_pass(fault: &Fault) -> bool {
    match fault.kind {
        FaultKind::UpstreamTruncated
        | FaultKind::UpstreamUnreachable
        | FaultKind::UpstreamMisconfigured
        | FaultKind::UpstreamOverloaded
        | FaultKind::UpstreamRateLimited
        | FaultKind::UpstreamRefused
        | FaultKind::AgentFailed
        | FaultKind::NotFound
        | FaultKind::Unsupported => true,
        // A proxy gave up waiting; the agent may still be working.
        FaultKind::UpstreamTimeout => fault.upstream_status.is_some(),
        _ => false,
    }
}

/// The answer is lost, and why.
fn truncated(fault: &Fault) -> Fault {
    Fault::new(FaultKind::UpstreamTruncated, "the agent broke off its answer and could not be asked for the rest")
        .with_detail(fault)
}
