//! McNemar's exact test.

/// Two-sided p-value of McNemar's exact test for two systems judged right or wrong on the same tasks: `b` tasks that only
/// the first solved, `c` that only the second solved. Tasks on which they agree say nothing about the difference.
///
/// If neither is better, `b` is binomial with `b + c` trials and probability one half; the value is twice the probability
/// of its smaller tail, at most 1, and 1 without any disagreement.
pub fn mcnemar_exact(b: usize, c: usize) -> f64 {
    let trials = (b + c) as f64;
    let smaller = b.min(c);
    // C(n, smaller) / 2^n in logarithms, since 2^-n alone leaves the range of f64 beyond a thousand trials.
    let log_top: f64 = (1..=smaller).map(|i| ((trials - i as f64 + 1.0) / i as f64).ln()).sum::<f64>()
        - trials * std::f64::consts::LN_2;
    // The terms below it, each relative to the top one: C(n, i - 1) = C(n, i) * i / (n - i + 1).
    let mut relative = 1.0;
    let mut tail = 1.0;
    for i in (1..=smaller).rev() {
        relative *= i as f64 / (trials - i as f64 + 1.0);
        tail += relative;
    }
    (2.0 * log_top.exp() * tail).min(1.0)
}
