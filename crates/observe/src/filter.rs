//! The filter of the log, which operators change while the gateway is running.

use std::sync::{Arc, Mutex, PoisonError};

/// Sets a filter. The error says what is wrong with it.
type Set = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// The filter of the log. Clones are one filter.
#[derive(Clone)]
pub struct LogFilter {
    current: Arc<Mutex<String>>,
    set: Arc<Set>,
}

impl LogFilter {
    /// A filter that `set` changes.
    pub fn new(current: &str, set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self { current: Arc::new(Mutex::new(current.to_owned())), set: Arc::new(set) }
    }

    /// The filter of a log that someone else has set up: it cannot be changed.
    #[must_use]
    pub fn fixed() -> Self {
        Self::new("", |_| Err("the log of this process has no filter that can be changed".to_owned()))
    }

    /// The filter in force.
    #[must_use]
    pub fn current(&self) -> String {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the filter: a level, or directives such as `info,interlingua::engine=debug`.
    ///
    /// # Errors
    /// If it is not a filter; the one before stays.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        (self.set)(filter)?;
        filter.clone_into(&mut current);
        Ok(())
    }
}
