//! What is said in one request: messages that many hold and nobody copies.
//!
//! A request's messages are the largest thing a client sends. The run's record, the request that goes to the agent and
//! whatever waits for its turn hold the same ones.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::Message;

/// Messages in order. A clone is the same list; whoever changes one that others hold too changes a copy.
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
        // It is kept as long as the run is, and was grown by doubling.
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
    fn a_clone_is_the_same_list_until_it_is_changed() {
        let one = Input::from(vec![Message::user("a")]);
        let mut other = one.clone();
        assert!(std::ptr::eq(one.as_ptr(), other.as_ptr()));
        other.push(Message::user("b"));
        assert_eq!((one.len(), other.len()), (1, 2));
        assert_eq!(one.into_iter().next(), other.into_iter().next());
    }
}
