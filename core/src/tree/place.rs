//! Where a value stands in its body: a chain from the inside out, written out as a path when a complaint needs it.
//!
//! Not here: reading ([`super`]).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::rc::Rc;

/// A place in a list or an object, and that one's place.
#[derive(Clone, Debug, Default)]
pub(super) struct Place<'a> {
    pub(super) parent: Option<Rc<Place<'a>>>,
    pub(super) step: Step<'a>,
}

/// The last step of a path.
#[derive(Clone, Debug, Default)]
pub(super) enum Step<'a> {
    /// The whole body.
    #[default]
    Whole,
    /// What was found elsewhere, under a path of its own.
    Path(Box<str>),
    /// An element of a list.
    Index(usize),
    /// A field of an object.
    Name(Cow<'a, str>),
}

impl Place<'_> {
    pub(super) fn at(path: String) -> Self {
        Self { parent: None, step: Step::Path(path.into()) }
    }

    /// `input[2].content[0].text`. Empty for the whole body.
    pub(super) fn path(&self) -> String {
        let outward: Vec<&Place<'_>> = std::iter::successors(Some(self), |place| place.parent.as_deref()).collect();
        let mut path = String::new();
        for place in outward.into_iter().rev() {
            match &place.step {
                Step::Whole => {}
                Step::Path(own) => path.push_str(own),
                // Writing to a string cannot fail.
                Step::Index(index) => drop(write!(path, "[{index}]")),
                Step::Name(name) => add_name(&mut path, name),
            }
        }
        path
    }
}

/// Adds a field's name to a path.
pub(super) fn add_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
