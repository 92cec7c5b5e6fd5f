//! What a scenario found out: a figure, and the bound it has to keep.

/// One figure.
pub(crate) struct Check {
    name: String,
    value: f64,
    unit: &'static str,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Worth knowing, and not judged.
    None,
}

impl Check {
    /// Has to be at most that.
    pub(crate) fn at_most(name: impl Into<String>, value: f64, bound: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: Bound::AtMost(bound) }
    }

    /// Has to be at least that.
    pub(crate) fn at_least(name: impl Into<String>, value: f64, bound: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: Bound::AtLeast(bound) }
    }

    /// Is shown.
    pub(crate) fn shown(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { name: name.into(), value, unit, bound: Bound::None }
    }

    fn holds(&self) -> bool {
        match self.bound {
            Bound::AtMost(bound) => self.value <= bound,
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::None => true,
        }
    }
}

/// Prints the table. True if every bound holds.
pub(crate) fn print(checks: &[(&str, Check)]) -> bool {
    let rows: Vec<[String; 4]> = checks
        .iter()
        .map(|(scenario, check)| {
            let bound = match check.bound {
                Bound::AtMost(bound) => format!("≤ {} {}", figure(bound), check.unit),
                Bound::AtLeast(bound) => format!("≥ {} {}", figure(bound), check.unit),
                Bound::None => String::new(),
            };
            let value = format!("{} {}", figure(check.value), check.unit);
            let verdict = if check.holds() { "" } else { "BROKEN" };
            [format!("{scenario}: {}", check.name), value, bound, verdict.to_owned()]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (name, value, bound) = (width(0), width(1), width(2));
    for [first, second, third, last] in &rows {
        println!("{first:name$}  {second:>value$}  {third:>bound$}  {last}");
    }
    let broken = checks.iter().filter(|(_, check)| !check.holds()).count();
    println!("{} held, {broken} broken", checks.len() - broken);
    broken == 0
}

/// A number with as many places as one wants to read.
fn figure(value: f64) -> String {
    if value.fract() == 0.0 || value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
