//! The data of a call, as connectors report it.

use crate::agent_event::{CallPart, ContentEvent, ContentValue, to_extra};
use crate::json::Extra;

/// The data of a call, parsed.
pub(super) struct CallData<'a> {
    pub(super) part: CallPart<'a>,
    /// Fields it holds besides.
    pub(super) rest: Extra,
}

impl<'a> CallData<'a> {
    /// None if the data is no object.
    pub(super) fn of(event: &ContentEvent<'a>) -> Option<Self> {
        match &event.value {
            ContentValue::Call(part) => Some(Self { part: part.clone(), rest: Extra::new() }),
            ContentValue::Data(Some(raw)) => {
                let (part, rest) = CallPart::parse(raw)?;
                Some(Self { part, rest: to_extra(&rest) })
            }
            _ => None,
        }
    }
}
