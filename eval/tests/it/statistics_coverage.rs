//! Simulated experiments with a known truth: intervals must hold it as often as they claim, tests must err as seldom.
//!
//! Seeds are fixed. With 2,000 experiments a share near 95 % has a standard error of 0.5 points.

use drgym_env::seed::generator;
use drgym_eval::statistics::{
    Interval, SeedTasks, bootstrap_mean_interval, clustered_rate_interval, mcnemar_exact, paired_bootstrap,
    pooled_paired_bootstrap, wilson_interval,
};
use rand::Rng;

const EXPERIMENTS: usize = 2_000;

/// Share of simulated experiments for which `holds` is true; each gets its own seed.
fn share(mut holds: impl FnMut(u64) -> bool) -> f64 {
    let count = (0..EXPERIMENTS).filter(|experiment| holds(*experiment as u64)).count();
    count as f64 / EXPERIMENTS as f64
}

fn answers(random: &mut impl Rng, n: usize, rate: f64) -> Vec<f64> {
    (0..n).map(|_| f64::from(random.random_bool(rate))).collect()
}

#[track_caller]
fn assert_covers(share: f64, what: &str) {
    assert!(
        (0.93..=0.97).contains(&share),
        "{what}: 95 % intervals held the truth in {share} of the experiments"
    );
}

#[test]
fn wilson_intervals_hold_the_true_rate() {
    for (n, rate) in [(200, 0.1), (200, 0.3), (200, 0.5), (200, 0.9), (1_000, 0.2), (1_000, 0.7)] {
        let share = share(|seed| {
            let successes =
                (0..n).zip(answers(&mut generator(seed), n, rate)).filter(|(_, x)| *x == 1.0).count();
            wilson_interval(successes, n, 0.95).unwrap().contains(rate)
        });
        assert_covers(share, &format!("Wilson, n {n}, rate {rate}"));
    }
}

#[test]
fn bootstrap_intervals_hold_the_true_mean() {
    for rate in [0.1, 0.3, 0.5, 0.7, 0.9] {
        let share = share(|seed| {
            let values = answers(&mut generator(seed), 200, rate);
            bootstrap_mean_interval(&values, 500, seed, 0.95).unwrap().contains(rate)
        });
        assert_covers(share, &format!("bootstrap of answers, rate {rate}"));
    }
    let of_scores = share(|seed| {
        let mut random = generator(seed);
        let values: Vec<f64> = (0..200).map(|_| random.random::<f64>().powi(2)).collect();
        bootstrap_mean_interval(&values, 500, seed, 0.95).unwrap().contains(1.0 / 3.0)
    });
    assert_covers(of_scores, "bootstrap of skewed scores");
}

#[test]
fn several_trials_a_task_need_an_interval_over_tasks() {
    const TRIALS: usize = 4;
    let (mut over_tasks, mut over_trials) = (0, 0);
    for seed in 0..EXPERIMENTS as u64 {
        let mut random = generator(seed);
        // Every other task is hard, on average: the mean rate is one half.
        let successes: Vec<usize> = (0..200)
            .map(|_| {
                let rate = if random.random_bool(0.5) { 0.9 } else { 0.1 };
                (0..TRIALS).filter(|_| random.random_bool(rate)).count()
            })
            .collect();
        let rates: Vec<f64> = successes.iter().map(|&count| count as f64 / TRIALS as f64).collect();
        let clustered = clustered_rate_interval(&rates, 500, seed, 0.95).unwrap();
        over_tasks += usize::from(clustered.contains(0.5));
        let pooled = wilson_interval(successes.iter().sum(), 200 * TRIALS, 0.95).unwrap();
        over_trials += usize::from(pooled.contains(0.5));
    }
    let share = |count: usize| count as f64 / EXPERIMENTS as f64;
    assert_covers(share(over_tasks), "several trials a task, tasks drawn");
    assert!(
        share(over_trials) < 0.85,
        "as independent trials the interval should be too narrow: {}",
        share(over_trials)
    );
}

/// Two systems of the given success rates on `n` tasks. Each task has a difficulty that both meet, so the pairing matters.
fn paired_answers(random: &mut impl Rng, n: usize, rates: (f64, f64)) -> Vec<(f64, f64)> {
    (0..n)
        .map(|_| {
            let difficulty: f64 = random.random();
            let mut answer = |rate: f64| {
                let own: f64 = random.random();
                // With probability one half the task decides, else the system's own luck: the marginal rate stays `rate`.
                f64::from(if random.random_bool(0.5) { difficulty < rate } else { own < rate })
            };
            (answer(rates.0), answer(rates.1))
        })
        .collect()
}

fn columns(pairs: &[(f64, f64)]) -> (Vec<f64>, Vec<f64>) {
    pairs.iter().copied().unzip()
}

#[test]
fn paired_intervals_hold_the_true_difference() {
    for rates in [(0.5, 0.5), (0.6, 0.5), (0.9, 0.7), (0.1, 0.3)] {
        let share = share(|seed| {
            let (a, b) = columns(&paired_answers(&mut generator(seed), 200, rates));
            let found = paired_bootstrap(&a, &b, 500, seed, 0.95).unwrap();
            // Rates are written in decimals; their difference misses the lattice of the means by rounding.
            holds_nearly(found.interval.unwrap(), rates.0 - rates.1)
        });
        assert_covers(share, &format!("paired, rates {rates:?}"));
    }
}

fn holds_nearly(interval: Interval, truth: f64) -> bool {
    interval.low - 1e-9 <= truth && truth <= interval.high + 1e-9
}

#[test]
fn tests_of_equal_systems_reject_no_more_often_than_they_claim() {
    let (mut by_bootstrap, mut by_mcnemar) = (0, 0);
    for seed in 0..EXPERIMENTS as u64 {
        let pairs = paired_answers(&mut generator(seed), 200, (0.6, 0.6));
        let (a, b) = columns(&pairs);
        by_bootstrap +=
            usize::from(paired_bootstrap(&a, &b, 500, seed, 0.95).unwrap().p_value.unwrap() < 0.05);
        let only = |winner: (f64, f64)| pairs.iter().filter(|pair| **pair == winner).count();
        by_mcnemar += usize::from(mcnemar_exact(only((1.0, 0.0)), only((0.0, 1.0))) < 0.05);
    }
    let share = |count: usize| count as f64 / EXPERIMENTS as f64;
    assert!((0.03..=0.07).contains(&share(by_bootstrap)), "bootstrap rejected {}", share(by_bootstrap));
    // Exact, therefore conservative: never above its level but for the noise of the simulation.
    assert!((0.015..=0.06).contains(&share(by_mcnemar)), "McNemar rejected {}", share(by_mcnemar));
}

#[test]
fn pooled_intervals_hold_the_true_difference_only_when_shared_tasks_stay_together() {
    let truth = 0.0;
    let mut held = [0usize; 2];
    for seed in 0..EXPERIMENTS as u64 {
        let mut random = generator(seed);
        // A task favours one of the systems, whatever the training seed.
        let favours: Vec<f64> = (0..200).map(|_| random.random_range(-0.5..0.5)).collect();
        let seeds: Vec<Vec<(f64, f64)>> = (0..3)
            .map(|_| {
                let mut answer = |rate: f64| f64::from(random.random_bool(rate));
                favours.iter().map(|favour| (answer(0.5 + favour), answer(0.5 - favour))).collect()
            })
            .collect();
        for (held, tasks) in held.iter_mut().zip([SeedTasks::Shared, SeedTasks::Separate]) {
            let found = pooled_paired_bootstrap(&seeds, tasks, 500, seed, 0.95).unwrap();
            *held += usize::from(holds_nearly(found.interval.unwrap(), truth));
        }
    }
    let [shared, separate] = held.map(|count| count as f64 / EXPERIMENTS as f64);
    assert_covers(shared, "pooled, tasks drawn with all their seeds");
    assert!(
        separate < 0.9,
        "drawn apart, the shared tasks should have made the interval too narrow: {separate}"
    );
}
