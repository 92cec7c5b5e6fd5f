//! Rate limits with a burst. Not here: the caller or route that a limit belongs to ([`super::usage`]).

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use interlingua_base::rate::Rate;
use interlingua_core::{Fault, FaultKind, LimitState};

/// Counts what happens, and refuses what exceeds a rate. One atomic, however many share it.
pub struct Limiter {
    rate: Rate,
    burst: NonZeroU32,
    clock: DefaultClock,
    state: RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>,
}

impl Limiter {
    /// A limiter that nothing has passed yet. `burst`: how many may come at once; by default as many as fit into a
    /// second, at least one.
    #[must_use]
    pub fn new(rate: Rate, burst: Option<u32>) -> Self {
        let burst = burst_of(rate, burst);
        let quota = Quota::with_period(rate.interval()).unwrap_or_else(|| Quota::per_second(burst));
        let clock = DefaultClock::default();
        let state = RateLimiter::direct_with_clock(quota.allow_burst(burst), clock.clone())
            .with_middleware::<StateInformationMiddleware>();
        Self { rate, burst, clock, state }
    }

    /// True if it was made with these settings.
    #[must_use]
    pub fn is(&self, rate: Rate, burst: Option<u32>) -> bool {
        self.rate == rate && self.burst == burst_of(rate, burst)
    }

    /// Counts one more `name`, such as `requests`, and reports what is left.
    ///
    /// # Errors
    /// [`FaultKind::RateLimited`] with the time until the next one may come.
    pub fn check(&self, name: &'static str) -> Result<LimitState, Fault> {
        match self.take() {
            Ok(remaining) => Ok(self.limit_state(name, remaining)),
            Err(wait) => {
                let message = format!("too many {name}: the limit is {}", self.rate);
                let mut fault = Fault::new(FaultKind::RateLimited, message);
                fault.retry_after = Some(wait);
                fault.limit = Some(Box::new(self.limit_state(name, 0)));
                Err(fault)
            }
        }
    }

    /// Waits until one more may come, and counts it.
    pub async fn wait(&self) {
        while let Err(wait) = self.take() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes one unit. Returns the number of units left, or the time until the next unit is available.
    fn take(&self) -> Result<u32, Duration> {
        let taken = self.state.check();
        taken.map(|left| left.remaining_burst_capacity()).map_err(|refused| refused.wait_time_from(self.clock.now()))
    }

    fn limit_state(&self, name: &'static str, remaining: u32) -> LimitState {
        let missing = self.burst.get().saturating_sub(remaining);
        LimitState {
            name,
            quota: self.burst.get().into(),
            window: self.rate.interval() * self.burst.get(),
            remaining: remaining.into(),
            reset: self.rate.interval() * missing,
        }
    }
}

/// The burst: by default one second of the rate.
fn burst_of(rate: Rate, burst: Option<u32>) -> NonZeroU32 {
    burst.and_then(NonZeroU32::new).unwrap_or_else(|| rate.per_second())
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Limiter({}, burst {})", self.rate, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Rate {
        Rate::parse(text).expect("a rate")
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_counts() {
        let limiter = Limiter::new(rate("60/m"), Some(3));
        let first = limiter.check("requests").expect("the first of three");
        assert_eq!((first.name, first.quota, first.remaining), ("requests", 3, 2));
        assert_eq!((first.window, first.reset), (Duration::from_secs(3), Duration::from_secs(1)));
        limiter.check("requests").expect("the second");
        limiter.check("requests").expect("the third");

        let refused = limiter.check("requests").expect_err("the fourth");
        assert_eq!(refused.kind, FaultKind::RateLimited);
        let wait = refused.retry_after.expect("a time");
        assert!(wait > Duration::from_millis(500) && wait <= Duration::from_secs(1), "{wait:?}");
        let limit = refused.limit.expect("the limit");
        assert_eq!((limit.remaining, limit.reset), (0, Duration::from_secs(3)));
    }

    #[test]
    fn a_slow_rate_allows_one_at_once() {
        let limiter = Limiter::new(rate("2/d"), None);
        limiter.check("requests").expect("the first");
        let wait = limiter.check("requests").expect_err("the second").retry_after.expect("a time");
        assert!(wait > Duration::from_secs(40_000), "{wait:?}");
        assert!(limiter.is(rate("2/d"), None) && limiter.is(rate("2/d"), Some(1)) && !limiter.is(rate("3/d"), None));
    }

    #[tokio::test]
    async fn who_waits_is_let_through_in_time() {
        let limiter = Limiter::new(rate("20/s"), Some(1));
        let began_at = std::time::Instant::now();
        for _ in 0..4 {
            limiter.wait().await;
        }
        let took = began_at.elapsed();
        assert!(took >= Duration::from_millis(140) && took < Duration::from_secs(2), "{took:?}");
    }
}
