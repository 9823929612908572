//! What a benchmark has found: for each peer its measurements, and the targets that they are held against.

/// One peer's measurements.
#[derive(Clone, Debug)]
pub struct Series {
    /// The peer, and for figures of several parts the part.
    pub name: String,
    /// Each run, in the figure's unit.
    pub values: Vec<f64>,
}

impl Series {
    /// A series without measurements.
    pub fn new(name: impl Into<String>) -> Series {
        Series { name: name.into(), values: Vec::new() }
    }

    /// The median; NaN without measurements.
    pub fn median(&self) -> f64 {
        median(&self.values)
    }
}

/// A claim about two medians, or about one number.
#[derive(Clone, Debug)]
pub struct Target {
    /// The claim in words.
    pub claim: String,
    /// What was measured.
    pub measured: f64,
    /// The limit.
    pub limit: Limit,
}

/// On which side of its limit a measurement has to be.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
}

impl Target {
    /// Whether the claim holds.
    pub fn met(&self) -> bool {
        match self.limit {
            Limit::AtMost(limit) => self.measured <= limit,
            Limit::AtLeast(limit) => self.measured >= limit,
        }
    }
}

/// A benchmark's result.
#[derive(Clone, Debug)]
pub struct Figure {
    /// File name of the results, without ending.
    pub name: &'static str,
    /// What was measured, for the plot's title.
    pub title: String,
    /// Of all values: `s`, `ns`.
    pub unit: &'static str,
    /// Each peer.
    pub series: Vec<Series>,
    /// The series that ratios are to, by index; in a figure of several parts the one before which each part begins.
    pub base: Base,
    /// The targets.
    pub targets: Vec<Target>,
    /// What a reader should know: machine, sizes, statistics of the supervisor.
    pub notes: Vec<String>,
}

/// What ratios are to.
#[derive(Clone, Copy, Debug)]
pub enum Base {
    /// One series.
    One(usize),
    /// Series come in pairs: native, inside; each pair has its own base.
    Pairs,
    /// Series come in groups of so many; the first of each is its base.
    Groups(usize),
    /// Series are points of a curve, at these places; the first is the base.
    Curve(&'static [f64]),
}

impl Figure {
    /// The median of the series `name`; NaN if there is none.
    pub fn median_of(&self, name: &str) -> f64 {
        self.series.iter().find(|series| series.name == name).map_or(f64::NAN, Series::median)
    }

    /// The ratio of the median at `index` to its base.
    pub fn ratio(&self, index: usize) -> f64 {
        self.series[index].median() / self.series[self.base_of(index)].median()
    }

    /// The median of the ratios of single runs at `index` to those of its base: both of a round were measured one
    /// after the other, so that what differs from round to round is left out.
    pub fn ratio_of_rounds(&self, index: usize) -> f64 {
        let bases = &self.series[self.base_of(index)].values;
        let ratios = self.series[index].values.iter().zip(bases).map(|(value, base)| value / base);
        median(&ratios.collect::<Vec<_>>())
    }

    fn base_of(&self, index: usize) -> usize {
        match self.base {
            Base::One(base) => base,
            Base::Pairs => index / 2 * 2,
            Base::Groups(len) => index / len * len,
            Base::Curve(_) => 0,
        }
    }
}

/// What the older binary is to this one, if it was measured: no limit, only said.
pub fn against_before(figure: &Figure, ours: &str, before: &str) -> Option<Target> {
    let measured = figure.median_of(ours) / figure.median_of(before);
    let target = Target { claim: format!("{ours} / before"), measured, limit: Limit::AtMost(f64::INFINITY) };
    (!measured.is_nan()).then_some(target)
}

/// The median of `values`; NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn rounds_are_compared_with_themselves() {
        let series = |values: &[f64]| Series { name: String::new(), values: values.to_vec() };
        let figure = Figure {
            name: "",
            title: String::new(),
            unit: "s",
            series: vec![series(&[1.0, 10.0, 100.0]), series(&[2.0, 20.0, 50.0])],
            base: Base::Pairs,
            targets: Vec::new(),
            notes: Vec::new(),
        };
        assert_eq!(figure.ratio_of_rounds(1), 2.0);
        assert_eq!(figure.ratio(1), 2.0);
        assert_eq!(figure.ratio_of_rounds(0), 1.0);
    }

    #[test]
    fn a_target_holds_on_its_limit() {
        let target = |measured, limit| Target { claim: String::new(), measured, limit };
        assert!(target(1.0, Limit::AtMost(1.0)).met());
        assert!(!target(0.9, Limit::AtLeast(1.0)).met());
        assert!(!target(f64::NAN, Limit::AtMost(1.0)).met(), "not measured is not met");
    }
}
