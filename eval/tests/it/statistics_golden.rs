//! The statistics against SciPy, statsmodels and exact enumeration; the values come from `scripts/golden/eval_statistics.py`.

use drgym_eval::statistics::{
    Interval, LEAST_DIFFERING_TASKS, PairedDifference, SeedTasks, bootstrap_mean_interval,
    clustered_rate_interval, mcnemar_exact, paired_bootstrap, pooled_paired_bootstrap, standard_error,
    wilson_interval,
};
use serde::Deserialize;

/// The number of resamples that the script's margins are made for.
const RESAMPLES: usize = 400_000;

#[derive(Deserialize)]
struct Golden {
    wilson: Vec<Wilson>,
    standard_error: Vec<StandardError>,
    mcnemar: Vec<McNemar>,
    bootstrap_exact: Vec<BootstrapExact>,
    bootstrap_sampled: Vec<BootstrapSampled>,
    paired: Vec<Paired>,
    pooled: Pooled,
}

#[derive(Deserialize)]
struct Wilson {
    successes: usize,
    n: usize,
    confidence: f64,
    #[serde(flatten)]
    interval: Interval,
}

#[derive(Deserialize)]
struct StandardError {
    values: Vec<f64>,
    standard_error: f64,
}

#[derive(Deserialize)]
struct McNemar {
    b: usize,
    c: usize,
    p: f64,
}

#[derive(Deserialize)]
struct BootstrapExact {
    values: Vec<f64>,
    intervals: Vec<ConfidentInterval>,
}

#[derive(Deserialize)]
struct BootstrapSampled {
    values: Vec<f64>,
    #[serde(flatten)]
    interval: ConfidentInterval,
}

#[derive(Deserialize)]
struct ConfidentInterval {
    confidence: f64,
    low: f64,
    high: f64,
}

#[derive(Deserialize)]
struct Paired {
    a: Vec<f64>,
    b: Vec<f64>,
    difference: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Deserialize)]
struct Pooled {
    seeds: Vec<Vec<(f64, f64)>>,
    difference: f64,
    shared: Outcome,
    separate: Outcome,
}

#[derive(Deserialize)]
struct Outcome {
    p: f64,
    low: f64,
    high: f64,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../data/statistics.json")).expect("the golden file has this shape")
}

#[track_caller]
fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "expected {expected} ± {tolerance}, found {found}");
}

/// The difference, the ends of the interval to rounding, the p-value to five standard errors of its own sampling.
#[track_caller]
fn assert_outcome(found: &PairedDifference, difference: f64, expected: &Outcome) {
    assert_near(found.difference, difference, 1e-12);
    let interval = found.interval.expect("enough tasks differ");
    assert_near(interval.low, expected.low, 1e-12);
    assert_near(interval.high, expected.high, 1e-12);
    let tail = expected.p / 2.0;
    let sampling = 2.0 * (tail * (1.0 - tail) / RESAMPLES as f64).sqrt();
    assert_near(
        found.p_value.expect("enough tasks differ"),
        expected.p,
        5.0 * sampling + 2.0 / RESAMPLES as f64,
    );
}

#[test]
fn wilson_intervals_equal_statsmodels_out_to_the_far_tails() {
    for case in golden().wilson {
        let found = wilson_interval(case.successes, case.n, case.confidence).unwrap();
        assert_near(found.low, case.interval.low, 1e-12);
        assert_near(found.high, case.interval.high, 1e-12);
    }
}

#[test]
fn wilson_keeps_exact_ends_and_mirrors_successes_and_failures() {
    for n in [1, 7, 200, 12_345] {
        assert_eq!(wilson_interval(0, n, 0.95).unwrap().low, 0.0);
        assert_eq!(wilson_interval(n, n, 0.95).unwrap().high, 1.0);
        for successes in [0, n / 3, n / 2, n] {
            let interval = wilson_interval(successes, n, 0.95).unwrap();
            let mirrored = wilson_interval(n - successes, n, 0.95).unwrap();
            assert_near(interval.low, 1.0 - mirrored.high, 1e-12);
            assert!(interval.contains(successes as f64 / n as f64));
        }
    }
}

#[test]
fn standard_errors_equal_scipy() {
    for case in golden().standard_error {
        assert_near(standard_error(&case.values).unwrap(), case.standard_error, 1e-12);
    }
}

#[test]
fn mcnemar_equals_statsmodels_from_no_disagreement_to_thousands() {
    for case in golden().mcnemar {
        assert_near(mcnemar_exact(case.b, case.c), case.p, 1e-10 * case.p);
        assert_eq!(mcnemar_exact(case.b, case.c), mcnemar_exact(case.c, case.b));
    }
}

#[test]
fn bootstrap_lands_on_the_quantiles_of_the_exact_distribution() {
    for case in golden().bootstrap_exact {
        for expected in case.intervals {
            let found = bootstrap_mean_interval(&case.values, RESAMPLES, 1, expected.confidence).unwrap();
            assert_near(found.low, expected.low, 1e-12);
            assert_near(found.high, expected.high, 1e-12);
        }
    }
}

#[test]
fn bootstrap_of_continuous_scores_agrees_with_scipy() {
    for case in golden().bootstrap_sampled {
        let ConfidentInterval { confidence, low, high } = case.interval;
        let found = bootstrap_mean_interval(&case.values, RESAMPLES, 1, confidence).unwrap();
        // Both sides are sampled; with 400,000 resamples each, an end scatters by about 0.1 % of the width.
        let tolerance = 0.006 * (high - low);
        assert_near(found.low, low, tolerance);
        assert_near(found.high, high, tolerance);
    }
}

#[test]
fn paired_differences_equal_the_exact_distribution() {
    for case in golden().paired {
        let found = paired_bootstrap(&case.a, &case.b, RESAMPLES, 1, 0.95).unwrap();
        assert_outcome(&found, case.difference, &case.outcome);
        let swapped = paired_bootstrap(&case.b, &case.a, RESAMPLES, 1, 0.95).unwrap();
        assert_near(swapped.difference, -found.difference, 1e-12);
        assert_near(swapped.interval.unwrap().low, -found.interval.unwrap().high, 1e-12);
        assert_near(swapped.p_value.unwrap(), found.p_value.unwrap(), 1e-12);
    }
}

#[test]
fn pooled_differences_equal_the_exact_distribution_for_shared_and_for_separate_tasks() {
    let Pooled { seeds, difference, shared, separate } = golden().pooled;
    let clustered = pooled_paired_bootstrap(&seeds, SeedTasks::Shared, RESAMPLES, 1, 0.95).unwrap();
    assert_outcome(&clustered, difference, &shared);
    let stratified = pooled_paired_bootstrap(&seeds, SeedTasks::Separate, RESAMPLES, 1, 0.95).unwrap();
    assert_outcome(&stratified, difference, &separate);
    // The seeds of the golden data find the same tasks hard.
    assert!(clustered.interval.unwrap().half_width() > 1.2 * stratified.interval.unwrap().half_width());
}

#[test]
fn one_seed_pooled_is_the_plain_comparison_and_a_repeated_seed_adds_no_certainty() {
    let case = &golden().paired[0];
    let pairs: Vec<(f64, f64)> = case.a.iter().copied().zip(case.b.iter().copied()).collect();
    let plain = paired_bootstrap(&case.a, &case.b, 2_000, 9, 0.95).unwrap();
    for tasks in [SeedTasks::Shared, SeedTasks::Separate] {
        assert_eq!(
            pooled_paired_bootstrap(std::slice::from_ref(&pairs), tasks, 2_000, 9, 0.95).unwrap(),
            plain
        );
    }
    let twice = [pairs.clone(), pairs];
    assert_eq!(pooled_paired_bootstrap(&twice, SeedTasks::Shared, 2_000, 9, 0.95).unwrap(), plain);
}

/// `differing` tasks on which the first is ahead by 1 or behind by 1 in turn, and as many on which they agree.
fn in_turn(differing: usize) -> (Vec<f64>, Vec<f64>) {
    let first: Vec<f64> = (0..2 * differing).map(|task| f64::from(u8::from(task % 4 == 0))).collect();
    let second: Vec<f64> = (0..2 * differing).map(|task| f64::from(u8::from(task % 4 == 2))).collect();
    (first, second)
}

#[test]
fn a_bootstrap_of_a_handful_or_of_equal_differences_claims_nothing() {
    let nothing =
        |difference, differing| PairedDifference { difference, differing, interval: None, p_value: None };
    let scores = [0.3, 0.1, 0.9, 0.0];
    assert_eq!(paired_bootstrap(&scores, &scores, 1_000, 1, 0.95).unwrap(), nothing(0.0, 0));
    assert_eq!(paired_bootstrap(&[1.0], &[0.0], 1_000, 1, 0.95).unwrap(), nothing(1.0, 1));
    // Every resample of equal differences has the same mean, however many they are.
    let equal = paired_bootstrap(&[1.0; 50], &[0.0; 50], 1_000, 1, 0.95).unwrap();
    assert_eq!(equal, nothing(1.0, 50));
    let strata = [vec![(1.0, 0.0); 20], vec![(0.5, 0.0); 20]];
    let apart = pooled_paired_bootstrap(&strata, SeedTasks::Separate, 1_000, 1, 0.95).unwrap();
    assert_eq!(apart, nothing(0.75, 40));

    let (first, second) = in_turn(LEAST_DIFFERING_TASKS - 1);
    let few = paired_bootstrap(&first, &second, 1_000, 1, 0.95).unwrap();
    assert_eq!((few.differing, few.interval, few.p_value), (9, None, None));
    let (first, second) = in_turn(LEAST_DIFFERING_TASKS);
    let enough = paired_bootstrap(&first, &second, 1_000, 1, 0.95).unwrap();
    assert!(
        enough.differing == 10 && enough.interval.unwrap().contains(0.0) && enough.p_value.unwrap() > 0.5
    );
}

#[test]
fn a_rate_over_several_trials_a_task_is_as_sure_as_its_tasks() {
    let rates: Vec<f64> = (0..40).map(|task| f64::from(task % 2)).collect();
    let clustered = clustered_rate_interval(&rates, 10_000, 1, 0.95).unwrap();
    assert_eq!(clustered, bootstrap_mean_interval(&rates, 10_000, 1, 0.95).unwrap());
    // Where the bootstrap would collapse to a point, one trial a task is claimed and no more.
    for (right, of) in [(12, 12), (0, 12), (31, 40), (1, 2)] {
        let rates: Vec<f64> = (0..of).map(|task| f64::from(u8::from(task < right))).collect();
        let found = clustered_rate_interval(&rates, 10_000, 1, 0.95).unwrap();
        assert_eq!(found, wilson_interval(right, of, 0.95).unwrap(), "{right} of {of}");
    }
    let half = clustered_rate_interval(&[0.5; 30], 10_000, 1, 0.95).unwrap();
    assert_eq!(half, wilson_interval(15, 30, 0.95).unwrap());
}

#[test]
fn sums_that_cancel_on_paper_count_on_both_sides() {
    // Six tenths forward and six back: a resample of six of each sums to a rounding error, not to zero.
    let a = [0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let b = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1];
    let found = paired_bootstrap(&a, &b, 50_000, 1, 0.95).unwrap();
    assert_eq!(found.p_value, Some(1.0));
}

#[test]
fn the_seed_alone_decides_the_draw() {
    let values: Vec<f64> = (0..50).map(|i| f64::from(i % 7)).collect();
    let first = bootstrap_mean_interval(&values, 1_000, 1, 0.95).unwrap();
    assert_eq!(bootstrap_mean_interval(&values, 1_000, 1, 0.95).unwrap(), first);
    assert_ne!(bootstrap_mean_interval(&values, 1_000, 2, 0.95).unwrap(), first);
}
