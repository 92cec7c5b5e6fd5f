//! The location of a value in its body: a linked list from the value to the root, formatted as a path for errors.
//!
//! Not here: parsing ([`super`]).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::rc::Rc;

/// One step of a path, and the location of the parent.
#[derive(Clone, Debug, Default)]
pub(super) struct Location<'a> {
    pub(super) parent: Option<Rc<Location<'a>>>,
    pub(super) step: Step<'a>,
}

/// The last step of a path.
#[derive(Clone, Debug, Default)]
pub(super) enum Step<'a> {
    /// The root.
    #[default]
    Root,
    /// A value from elsewhere, with its own path.
    Path(Box<str>),
    /// An element of an array.
    Index(usize),
    /// A field of an object.
    Name(Cow<'a, str>),
}

impl Location<'_> {
    pub(super) fn from_path(path: String) -> Self {
        Self { parent: None, step: Step::Path(path.into()) }
    }

    /// Formats the path, such as `input[2].content[0].text`. Empty for the root.
    pub(super) fn path(&self) -> String {
        let ancestors: Vec<&Location<'_>> =
            std::iter::successors(Some(self), |location| location.parent.as_deref()).collect();
        let mut path = String::new();
        for location in ancestors.into_iter().rev() {
            match &location.step {
                Step::Root => {}
                Step::Path(own) => path.push_str(own),
                // Writing to a string cannot fail.
                Step::Index(index) => drop(write!(path, "[{index}]")),
                Step::Name(name) => add_name(&mut path, name),
            }
        }
        path
    }
}

/// Appends a field name to a path.
pub(super) fn add_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}
