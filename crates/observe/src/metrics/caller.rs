//! The label that says who called: only if the operator wants it, and with a bounded number of values.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};

/// The most callers that have a label of their own. The rest of them are counted together.
const MAX_CALLERS: usize = 1000;
/// All callers beyond that.
const OTHER: &str = "other";
/// The label of callers without a proven name.
const ANONYMOUS: &str = "anonymous";

/// The label of a caller. `None`: there is no such label.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallerLabel(Option<Arc<str>>);

impl EncodeLabelSet for CallerLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.as_deref().map_or(Ok(()), |caller| ("caller", caller).encode(encoder.encode_label()))
    }
}

/// The callers that have labels of their own.
#[derive(Default)]
pub(super) struct Callers {
    is_on: AtomicBool,
    known: Mutex<HashSet<Arc<str>>>,
}

impl Callers {
    /// Whether callers have labels from now on.
    pub(super) fn set(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
    }

    pub(super) fn label(&self, caller: Option<&Arc<str>>) -> CallerLabel {
        if !self.is_on.load(Ordering::Relaxed) {
            return CallerLabel(None);
        }
        let Some(caller) = caller else { return CallerLabel(Some(ANONYMOUS.into())) };

        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(caller) {
            if known.len() >= MAX_CALLERS {
                return CallerLabel(Some(OTHER.into()));
            }
            known.insert(Arc::clone(caller));
        }
        CallerLabel(Some(Arc::clone(caller)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_told_apart_up_to_a_bound() {
        let callers = Callers::default();
        let label = |name: &str| callers.label(Some(&Arc::from(name))).0;
        assert_eq!(label("a"), None);

        callers.set(true);
        for number in 0..MAX_CALLERS {
            let name = format!("c{number}");
            assert_eq!(label(&name).as_deref(), Some(name.as_str()));
        }
        assert_eq!(label("one more").as_deref(), Some(OTHER));
        assert_eq!(label("c0").as_deref(), Some("c0"));
        assert_eq!(callers.label(None).0.as_deref(), Some(ANONYMOUS));
    }
}
