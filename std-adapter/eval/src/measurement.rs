//! Measurements: the numbers that graders record, and their statistics over several trials.

use std::collections::HashSet;

use bigdecimal::{BigDecimal, FromPrimitive as _, RoundingMode, ToPrimitive as _, Zero as _};
use indexmap::IndexMap;
use rigline::json::{Json, JsonKind};

pub(crate) use super::records::Measurement;
use super::records::TrialRecord;
use rigline_host::number;

/// The longest unit of a measurement, in characters.
pub const UNIT_LIMIT: usize = 16;

/// Returns limits as text, such as `[3.135 … 3.465]`. Returns an empty text if there are none.
pub fn limits(low: Option<&str>, high: Option<&str>) -> String {
    match (low, high) {
        (None, None) => String::new(),
        (low, high) => format!("[{} … {}]", low.unwrap_or_default(), high.unwrap_or_default()),
    }
}

/// The statistics of one measurement over all trials of a task.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Statistics {
    /// The measurement of the last trial. Its name, unit and limits are those of all trials.
    pub last: Measurement,
    /// The number of values that are numbers.
    pub count: usize,
    /// The smallest value, as the device wrote it. Empty if no value is a number.
    pub min: String,
    /// The largest value, as the device wrote it. Empty if no value is a number.
    pub max: String,
    /// The mean of the values. It is rounded if its digits do not end.
    pub mean: String,
    /// The standard deviation of the values, as of a sample. `None` if there are fewer than two
    /// values.
    pub deviation: Option<f64>,
    /// The process capability Cpk: the distance from the mean to the nearer limit, divided by three
    /// standard deviations. `None` without a limit, with fewer than two values, and if all values
    /// are equal.
    pub cpk: Option<f64>,
    /// Whether each value is a number within the limits.
    pub passed: bool,
    /// The first value that passed and is marginal. `None` if there is none.
    pub marginal: Option<String>,
    /// The values that did not pass, each after the number of its trial.
    pub failed: Vec<(u32, String)>,
}

impl Statistics {
    /// Returns the statistics of the trials: one entry for each name of a measurement, in the order
    /// in which the names first occur.
    pub fn of(trials: &[TrialRecord]) -> Vec<Self> {
        let mut by_name: IndexMap<&str, Vec<(u32, &Measurement)>> = IndexMap::new();
        // Other graders take no lists.
        let mut with_lists: HashSet<&str> = HashSet::new();
        for trial in trials {
            for (grade, measurement) in trial.grades.iter().filter_map(|it| Some((it, it.measurement.as_ref()?))) {
                by_name.entry(&measurement.name).or_default().push((trial.number, measurement));
                if grade.kind == "measurement" {
                    with_lists.insert(&measurement.name);
                }
            }
        }
        by_name.into_iter().filter_map(|(name, all)| Self::of_one(&all, with_lists.contains(name))).collect()
    }

    fn of_one(all: &[(u32, &Measurement)], has_lists: bool) -> Option<Self> {
        let last = all.last()?.1.clone();
        let values: Vec<(BigDecimal, &str)> = all.iter().flat_map(|(_, one)| numbers(&one.value, has_lists)).collect();
        let by_value = |a: &&(BigDecimal, &str), b: &&(BigDecimal, &str)| a.0.cmp(&b.0);
        let text = |found: Option<&(BigDecimal, &str)>| found.map(|(_, text)| (*text).to_owned()).unwrap_or_default();
        let (min, max) = (text(values.iter().min_by(by_value)), text(values.iter().max_by(by_value)));
        let texts: Vec<&str> = values.iter().map(|(_, text)| *text).collect();
        let numbers: Vec<&BigDecimal> = values.iter().map(|(value, _)| value).collect();
        #[allow(clippy::cast_precision_loss, reason = "trials are few")]
        let count = values.len() as f64;
        // With all digits: what several values differ by may be less than a float of their size can hold.
        let mean = mean(&numbers);
        let from_mean = |value: &BigDecimal| (value - mean.as_ref()?).to_f64();
        let is_constant = numbers.windows(2).all(|two| matches!(two, [a, b] if a == b));
        let squares = numbers.iter().map(|value| from_mean(value).unwrap_or(f64::NAN).powi(2)).sum::<f64>();
        let deviation = (values.len() > 1).then(|| if is_constant { 0.0 } else { (squares / (count - 1.0)).sqrt() });
        let bound = |bound: &Option<String>| bound.as_deref().and_then(number::decimal).filter(is_plain);
        let low = bound(&last.low).and_then(|low| from_mean(&low)).map(|distance| -distance);
        let distances = [low, bound(&last.high).and_then(|high| from_mean(&high))];
        let nearest = distances.into_iter().flatten().reduce(f64::min);
        let cpk = deviation
            .filter(|deviation| *deviation > 0.0)
            .zip(nearest)
            .map(|(deviation, near)| near / (3.0 * deviation));
        let finite = |number: Option<f64>| number.filter(|number| number.is_finite());
        Some(Self {
            passed: all.iter().all(|(_, one)| one.passed),
            marginal: all.iter().find(|(_, one)| one.is_marginal).map(|(_, one)| one.value.clone()),
            failed: all.iter().filter(|(_, one)| !one.passed).map(|(trial, one)| (*trial, one.value.clone())).collect(),
            last,
            count: values.len(),
            min,
            max,
            mean: mean.map(|mean| written(&mean, has_exponent(&texts))).unwrap_or_default(),
            deviation: finite(deviation),
            cpk: finite(cpk),
        })
    }
}

/// The numbers of a value, as it has them: one, or those of a list of numbers.
fn numbers(value: &str, has_lists: bool) -> Vec<(BigDecimal, &str)> {
    if let Some(number) = number::decimal(value) {
        return vec![(number, value)];
    }
    let list = Json::parse(value.as_bytes()).ok().filter(|json| has_lists && json.kind() == JsonKind::Array);
    let Some(list) = list else { return Vec::new() };
    let numbers = list.elements().map(|element| match element.kind() {
        JsonKind::Number => Some((number::decimal(element.as_str())?, element.as_str())),
        _ => None,
    });
    numbers.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The digits of numbers that are shown beside given values: as many as the values have after the point, and one more.
pub(super) struct Rounding {
    /// How many digits after the point. It is negative for what is far before it.
    digits: i64,
    /// Whether the values have exponents.
    has_exponent: bool,
}

impl Rounding {
    pub(super) fn of(values: &[&str]) -> Self {
        let digits = values.iter().map(|value| digits_after_point(value)).max().unwrap_or_default();
        let numbers = values.iter().filter_map(|value| number::decimal(value)).filter(|number| !number.is_zero());
        // A dozen digits of the largest are enough.
        let before_first = numbers.map(|number| -number.order_of_magnitude()).min().unwrap_or_default().max(0);
        Self { digits: digits.min(before_first.saturating_add(12)) + 1, has_exponent: has_exponent(values) }
    }

    /// Returns the rounded number. Returns `None` if it is no number, or has too many digits.
    pub(super) fn of_text(&self, number: &str) -> Option<String> {
        number::decimal(number).and_then(|number| self.of_number(&number))
    }

    pub(super) fn of_float(&self, number: f64) -> Option<String> {
        BigDecimal::from_f64(number).and_then(|number| self.of_number(&number))
    }

    fn of_number(&self, number: &BigDecimal) -> Option<String> {
        let is_shown = is_plain(number) && self.digits.unsigned_abs() <= 2000;
        is_shown.then(|| written(&number.with_scale_round(self.digits, RoundingMode::HalfEven), self.has_exponent))
    }
}

/// A number as text. If it has an exponent, it is one that is not close to 1.
fn written(number: &BigDecimal, has_exponent: bool) -> String {
    if has_exponent && !number.is_zero() && !(-4..=9).contains(&number.order_of_magnitude()) {
        number.to_scientific_notation()
    } else {
        number.to_plain_string()
    }
}

fn has_exponent(values: &[&str]) -> bool {
    values.iter().any(|value| value.contains(['e', 'E']))
}

/// How many digits a decimal number is written with after its point, if it is written without its exponent.
fn digits_after_point(value: &str) -> i64 {
    let (mantissa, exponent) = value.split_once(['e', 'E']).unwrap_or((value, "0"));
    let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    i64::try_from(fraction).unwrap_or(i64::MAX).saturating_sub(exponent.parse().unwrap_or_default())
}

/// Whether a number can be added to others: its exponent does not make it a number of thousands of digits.
fn is_plain(number: &BigDecimal) -> bool {
    number.fractional_digit_count().unsigned_abs() <= 1000
}

/// The mean of numbers, with three digits more than they have. `None` where one of them has a very large exponent.
fn mean(numbers: &[&BigDecimal]) -> Option<BigDecimal> {
    if numbers.is_empty() || !numbers.iter().all(|number| is_plain(number)) {
        return None;
    }
    let sum: BigDecimal = numbers.iter().copied().sum();
    let digits = numbers.iter().map(|number| number.fractional_digit_count()).max()?.max(0) + 3;
    let mean = sum / BigDecimal::from(u64::try_from(numbers.len()).ok()?);
    // 17 digits are what a float has.
    let digits = digits.max(17 - (mean.digits().cast_signed() - mean.fractional_digit_count()));
    Some(mean.with_scale_round(digits, RoundingMode::HalfEven).normalized())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(values: &[&str], low: Option<&str>, high: Option<&str>) -> Statistics {
        let all: Vec<Measurement> = values
            .iter()
            .map(|value| {
                let limit = |limit: Option<&str>| limit.map(str::to_owned);
                Measurement::new("3V3".into(), (*value).into(), Some("V".into()), limit(low), limit(high), true)
            })
            .collect();
        Statistics::of_one(&(1..).zip(&all).collect::<Vec<_>>(), true).unwrap()
    }

    #[test]
    fn statistics_over_trials() {
        let three = measured(&["3.29", "3.30", "3.31"], Some("3.135"), Some("3.465"));
        assert_eq!((three.count, three.min.as_str(), three.max.as_str()), (3, "3.29", "3.31"));
        assert_eq!(three.mean, "3.3");
        assert!((three.deviation.unwrap() - 0.01).abs() < 1e-12);
        assert!((three.cpk.unwrap() - 5.5).abs() < 1e-9);
        // One value has no deviation; equal values have one of 0, and no capability.
        let one = measured(&["3.3"], Some("3"), None);
        assert_eq!((one.deviation, one.cpk), (None, None));
        let same = measured(&["0.1", "1e-1", "0.10"], Some("0"), Some("1"));
        assert_eq!((same.deviation, same.cpk), (Some(0.0), None));
        // One limit is enough.
        assert!((measured(&["1", "3"], None, Some("5")).cpk.unwrap() - 3.0 / (3.0 * 2.0_f64.sqrt())).abs() < 1e-9);
        assert_eq!(measured(&["1", "3"], None, None).cpk, None);
        // The least and the greatest are found with all digits.
        let big = measured(&["123456789012345678901234567891", "123456789012345678901234567890"], None, None);
        assert_eq!(big.min, "123456789012345678901234567890");
        assert_eq!(big.mean, "123456789012345678901234567890.5");
        assert!((big.deviation.unwrap() - 0.5_f64.sqrt()).abs() < 1e-12);
        let near = measured(&["1e20", "100000000000000000001"], Some("100000000000000000000"), None);
        assert!((near.cpk.unwrap() - 0.5 / (3.0 * 0.5_f64.sqrt())).abs() < 1e-9);
        let thirds = measured(&["1", "2", "2"], None, None);
        assert_eq!(thirds.mean, "1.6666666666666667");
        assert_eq!(measured(&["3", "5"], None, None).mean, "4");
        // Numbers beyond floats have no mean in JSON, and no panic.
        let huge = measured(&["1e999999", "-1e999999"], Some("0"), None);
        assert!(huge.cpk.is_none() && huge.mean.is_empty());
        // What is no number is among the values that failed, and in no mean.
        let mixed = measured(&["3.0", "open", "5.0"], None, None);
        assert_eq!((mixed.count, mixed.min.as_str(), mixed.max.as_str(), mixed.mean.as_str()), (2, "3.0", "5.0", "4"));
        // Each number of a list counts, with its digits.
        let list = measured(&["[3.3, 3.30]", "3.60", "[1, \"x\"]", "[]"], Some("3"), None);
        assert_eq!((list.count, list.min.as_str(), list.max.as_str(), list.mean.as_str()), (3, "3.3", "3.60", "3.4"));
        assert!(list.cpk.is_some());
        let none = measured(&["open"], None, None);
        assert_eq!((none.count, none.min.as_str(), none.deviation, none.cpk), (0, "", None, None));
    }

    #[test]
    fn what_is_rounded_has_one_digit_more_than_the_values_whatever_their_size() {
        for (values, mean, shown, deviation) in [
            (&["1.5e-9", "1.7e-9", "1.62e-9"] as &[&str], "1.6066666666666667e-9", "1.607e-9", "1.01e-10"),
            (&["0.0000000015", "0.0000000017"], "0.0000000016", "0.00000000160", "0.00000000014"),
            (&["1.5e-20", "1.7e-20"], "1.6e-20", "1.60e-20", "1.4e-21"),
            (
                &["0.000000000000015", "0.000000000000017"],
                "0.000000000000016",
                "0.0000000000000160",
                "0.0000000000000014",
            ),
            (&["1e400", "3e400"], "2e400", "2.0e400", ""),
            (&["3.30E+00", "+3.31e0"], "3.305", "3.305", "0.007"),
            (&["3.29", "3.30", "3.31"], "3.3", "3.300", "0.010"),
            (&["100", "101"], "100.5", "100.5", "0.7"),
            (&["-1e-9", "1e-9"], "0", "0.0000000000", "1.4e-9"),
        ] {
            let found = measured(values, None, None);
            assert_eq!(found.mean, mean, "{values:?}");
            let rounding = Rounding::of(values);
            assert_eq!(rounding.of_text(&found.mean).unwrap(), shown, "{values:?}");
            let rounded = found.deviation.and_then(|deviation| rounding.of_float(deviation));
            assert_eq!(rounded.unwrap_or_default(), deviation, "{values:?}");
        }
    }

    #[test]
    fn limits_are_shown() {
        assert_eq!(limits(Some("3.135"), Some("3.465")), "[3.135 … 3.465]");
        assert_eq!(limits(None, Some("1")), "[ … 1]");
        assert_eq!(limits(None, None), "");
    }
}
