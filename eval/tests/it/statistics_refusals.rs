//! What the statistics refuse, and that they say what was expected and what was found.

use drgym_eval::statistics::{
    SeedTasks, StatisticsError, bootstrap_mean_interval, clustered_rate_interval, paired_bootstrap,
    pooled_paired_bootstrap, standard_error, wilson_interval,
};

#[test]
fn a_confidence_must_be_a_probability_between_zero_and_one() {
    for confidence in [0.0, 1.0, -0.1, 95.0, f64::NAN] {
        let refused = |error| matches!(error, StatisticsError::Confidence { .. });
        assert!(refused(wilson_interval(1, 2, confidence).unwrap_err()));
        assert!(refused(bootstrap_mean_interval(&[1.0], 1_000, 1, confidence).unwrap_err()));
        assert!(refused(paired_bootstrap(&[1.0], &[0.0], 1_000, 1, confidence).unwrap_err()));
    }
}

#[test]
fn a_statistic_needs_its_values() {
    let too_few = |needed, found| StatisticsError::TooFewValues { needed, found };
    assert_eq!(wilson_interval(0, 0, 0.95), Err(too_few(1, 0)));
    assert_eq!(standard_error(&[1.0]), Err(too_few(2, 1)));
    assert_eq!(bootstrap_mean_interval(&[], 1_000, 1, 0.95), Err(too_few(1, 0)));
    assert_eq!(paired_bootstrap(&[], &[], 1_000, 1, 0.95), Err(too_few(1, 0)));
    for tasks in [SeedTasks::Shared, SeedTasks::Separate] {
        assert_eq!(pooled_paired_bootstrap(&[], tasks, 1_000, 1, 0.95), Err(too_few(1, 0)));
        let with_an_empty_seed = [vec![(1.0, 0.0)], vec![]];
        assert_eq!(pooled_paired_bootstrap(&with_an_empty_seed, tasks, 1_000, 1, 0.95), Err(too_few(1, 0)));
    }
}

#[test]
fn scores_must_be_finite() {
    let error = bootstrap_mean_interval(&[0.0, f64::INFINITY], 1_000, 1, 0.95).unwrap_err();
    assert_eq!(error.to_string(), "value 1 is inf: expected a finite number");
    assert!(standard_error(&[0.0, 1.0, f64::NAN]).is_err());
    assert!(paired_bootstrap(&[0.0, 1.0], &[0.0, f64::NAN], 1_000, 1, 0.95).is_err());
    assert!(pooled_paired_bootstrap(&[vec![(f64::NAN, 1.0)]], SeedTasks::Separate, 1_000, 1, 0.95).is_err());
}

#[test]
fn pairs_must_be_pairs() {
    let error = paired_bootstrap(&[0.0, 1.0], &[0.0], 1_000, 1, 0.95).unwrap_err();
    assert_eq!(error, StatisticsError::Unpaired { list: 1, expected: 2, found: 1 });
    let seeds = [vec![(0.0, 1.0); 3], vec![(0.0, 1.0); 3], vec![(0.0, 1.0); 4]];
    let error = pooled_paired_bootstrap(&seeds, SeedTasks::Shared, 1_000, 1, 0.95).unwrap_err();
    assert_eq!(error, StatisticsError::Unpaired { list: 2, expected: 3, found: 4 });
    pooled_paired_bootstrap(&seeds, SeedTasks::Separate, 1_000, 1, 0.95).unwrap();
}

#[test]
fn an_interval_needs_a_resample_beyond_each_end() {
    let refused =
        |resamples, confidence| bootstrap_mean_interval(&[0.0, 1.0], resamples, 1, confidence).is_err();
    assert!(refused(39, 0.95) && !refused(40, 0.95));
    assert!(refused(199, 0.99) && !refused(200, 0.99));
    assert!(refused(0, 0.5));
}

#[test]
fn a_rate_lies_between_zero_and_one() {
    let error = clustered_rate_interval(&[0.5, 1.5], 1_000, 1, 0.95).unwrap_err();
    assert_eq!(error.to_string(), "rate 1 is 1.5: expected a number from 0 to 1");
    assert!(clustered_rate_interval(&[-0.1], 1_000, 1, 0.95).is_err());
    assert!(clustered_rate_interval(&[f64::NAN], 1_000, 1, 0.95).is_err());
    assert!(clustered_rate_interval(&[], 1_000, 1, 0.95).is_err());
}

#[test]
fn successes_cannot_exceed_trials() {
    let error = wilson_interval(3, 2, 0.95).unwrap_err();
    assert_eq!(error.to_string(), "3 successes in 2 trials: expected at most as many successes as trials");
}
