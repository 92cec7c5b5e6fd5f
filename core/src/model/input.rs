//! The messages of one request, shared without copying.
//!
//! Messages are the largest part of a request. The run's record, the upstream request and queued turns share one list.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Message;

/// Messages in order. Clones share one list; mutating a shared list copies it first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input(Arc<Vec<Message>>);

impl Deref for Input {
    type Target = Vec<Message>;
    fn deref(&self) -> &Vec<Message> {
        &self.0
    }
}

impl DerefMut for Input {
    fn deref_mut(&mut self) -> &mut Vec<Message> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<Message>> for Input {
    fn from(mut messages: Vec<Message>) -> Self {
        // The list lives as long as the run. Growth by doubling left spare capacity.
        messages.shrink_to_fit();
        Self(Arc::new(messages))
    }
}

impl FromIterator<Message> for Input {
    fn from_iter<I: IntoIterator<Item = Message>>(messages: I) -> Self {
        messages.into_iter().collect::<Vec<_>>().into()
    }
}

impl IntoIterator for Input {
    type Item = Message;
    type IntoIter = std::vec::IntoIter<Message>;
    fn into_iter(self) -> Self::IntoIter {
        Arc::unwrap_or_clone(self.0).into_iter()
    }
}

impl<'a> IntoIterator for &'a Input {
    type Item = &'a Message;
    type IntoIter = std::slice::Iter<'a, Message>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Serialize for Input {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_a_list_until_one_is_changed() {
        let one = Input::from(vec![Message::user("a")]);
        let mut other = one.clone();
        assert!(std::ptr::eq(one.as_ptr(), other.as_ptr()));
        other.push(Message::user("b"));
        assert_eq!((one.len(), other.len()), (1, 2));
        assert_eq!(one.into_iter().next(), other.into_iter().next());
    }
}
