//! Limits of one principal's data, independent of other principals. Not here: the choice of the data to delete when all
//! principals together exceed a limit ([`super::fair`]).

use std::fmt;
use std::sync::Arc;

/// Limits of one principal's data, over all its routes and tenants. [`u64::MAX`]: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerBounds {
    /// Runs.
    pub runs: u64,
    /// Runs on each route that has retention rules of its own.
    pub route_runs: u64,
    /// Documents in each of the collections of [`super::Retention`].
    pub documents: u64,
    /// Approximate size of its runs and documents in bytes.
    pub bytes: u64,
}

impl OwnerBounds {
    /// No limits.
    pub const NONE: Self = Self { runs: u64::MAX, route_runs: u64::MAX, documents: u64::MAX, bytes: u64::MAX };
}

/// The bounds of a principal by its key: the part of an owner's key before the first `/`. By default no one has any.
#[derive(Clone, Default)]
pub struct OwnerBoundsOf(Option<Arc<FindBounds>>);

/// Finds the bounds of an owner by its base key.
type FindBounds = dyn Fn(&str) -> OwnerBounds + Send + Sync;

impl OwnerBoundsOf {
    /// Bounds that this function knows. It has to be quick: stores ask it for each principal in each round.
    #[must_use]
    pub fn new(of: impl Fn(&str) -> OwnerBounds + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// The bounds of a principal.
    #[must_use]
    pub fn for_principal(&self, principal: &str) -> OwnerBounds {
        self.0.as_ref().map_or(OwnerBounds::NONE, |of| of(principal))
    }

    /// True if no one has bounds of their own.
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for OwnerBoundsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerBoundsOf(..)")
    }
}
