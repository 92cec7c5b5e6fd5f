//! The result of a scenario: measured values and their limits.

/// A measured value and its limit.
pub(crate) struct Check {
    name: String,
    value: f64,
    unit: &'static str,
    bound: CheckBound,
}

#[derive(Clone, Copy)]
enum CheckBound {
    AtMost(f64),
    AtLeast(f64),
    /// Informative, without a limit.
    None,
}

impl Check {
    /// Passes if the value is at most `bound`.
    pub(crate) fn at_most(name: impl Into<String>, value: f64, bound: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: CheckBound::AtMost(bound) }
    }

    /// Passes if the value is at least `bound`.
    pub(crate) fn at_least(name: impl Into<String>, value: f64, bound: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: CheckBound::AtLeast(bound) }
    }

    /// An informative value without a limit.
    pub(crate) fn info(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: CheckBound::None }
    }

    /// The same under another name.
    pub(crate) fn renamed(self, name: impl FnOnce(&str) -> String) -> Self {
        Self { name: name(&self.name), ..self }
    }

    fn passes(&self) -> bool {
        match self.bound {
            CheckBound::AtMost(bound) => self.value <= bound,
            CheckBound::AtLeast(bound) => self.value >= bound,
            CheckBound::None => true,
        }
    }
}

/// Prints the table. True if every check passes.
pub(crate) fn print(checks: &[(&str, Check)]) -> bool {
    let rows: Vec<[String; 4]> = checks
        .iter()
        .map(|(scenario, check)| {
            let bound = match check.bound {
                CheckBound::AtMost(bound) => format!("≤ {} {}", figure(bound), check.unit),
                CheckBound::AtLeast(bound) => format!("≥ {} {}", figure(bound), check.unit),
                CheckBound::None => String::new(),
            };
            let value = format!("{} {}", figure(check.value), check.unit);
            let verdict = if check.passes() { "" } else { "FAILED" };
            [format!("{scenario}: {}", check.name), value, bound, verdict.to_owned()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, value, bound) = (width(0), width(1), width(2));
    for [first, second, third, last] in &rows {
        println!("{first:name$}  {second:>value$}  {third:>bound$}  {last}");
    }

    let failed = checks.iter().filter(|(_, check)| !check.passes()).count();
    println!("{} passed, {failed} failed", checks.len() - failed);
    failed == 0
}

/// Formats a number with two decimals if they matter.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
