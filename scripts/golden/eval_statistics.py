#!/usr/bin/env python3
"""Golden values for the statistics of drgym-eval, from SciPy, statsmodels and exact enumeration.

    pip install numpy scipy statsmodels
    python scripts/golden/eval_statistics.py > eval/tests/data/statistics.json

Bootstraps of whole numbers are not sampled here: the distribution of a resample's sum is the n-fold convolution of the
data's own distribution, so its quantiles and tails are exact. Data whose sums come close to a quantile are passed over,
so that a sampled bootstrap must land on the very same number.
"""

import json
from fractions import Fraction

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

# Four standard errors of the share of 400,000 resamples that lie below a quantile of 2.5 or 97.5 %.
MARGIN = 0.001


class TooClose(Exception):
    """A quantile falls between two sums, where a sampled bootstrap may land on either."""


def first_clear(make):
    """The first case, by the seed of its data, whose quantiles are clear of the sums' cumulative probabilities."""
    for seed in range(1000):
        try:
            return make(np.random.default_rng(seed))
        except TooClose:
            continue
    raise RuntimeError("no clear case among 1000 seeds")


def wilson():
    cases = []
    for successes, n in [(0, 1), (1, 1), (0, 20), (1, 20), (10, 20), (20, 20), (118, 200), (155, 200), (3, 5000)]:
        # The last two reach the far tails of the normal quantile.
        for confidence in [0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 1 - 1e-9, 1 - 1e-12]:
            low, high = proportion_confint(successes, n, alpha=1 - confidence, method="wilson")
            low, high = max(float(low), 0.0), min(float(high), 1.0)
            cases.append(dict(successes=successes, n=n, confidence=confidence, low=low, high=high))
    return cases


def standard_error():
    random = np.random.default_rng(1)
    lists = [[1.0, 2.0, 3.0, 4.0], [0.0, 1.0], [2.5, 2.5, 2.5], (1e6 + random.normal(size=50)).tolist()]
    return [dict(values=values, standard_error=float(stats.sem(values))) for values in lists]


def mcnemar_exact():
    cases = []
    for b, c in [(0, 0), (0, 1), (0, 8), (5, 5), (1, 9), (9, 1), (12, 25), (40, 61), (300, 380), (1500, 1600), (10, 3000)]:
        p = float(mcnemar([[0, b], [c, 0]], exact=True).pvalue) if b + c else 1.0
        if b + c:
            assert np.isclose(p, stats.binomtest(b, b + c).pvalue, rtol=1e-9, atol=0), (b, c)
        cases.append(dict(b=b, c=c, p=p))
    return cases


def convolved(strata):
    """Exact distribution of the sum of one resample of every stratum: (smallest sum, probabilities of it and the next)."""
    low, pmf = 0, np.array([1.0])
    for values in strata:
        least = min(values)
        single = np.bincount(np.array(values) - least) / len(values)
        for _ in values:
            pmf = np.convolve(pmf, single)
        low += least * len(values)
    return low, pmf


def exact_interval(strata, confidence, scale):
    low, pmf = convolved(strata)
    cumulative = np.cumsum(pmf)
    ends = []
    for probability in [(1 - confidence) / 2, (1 + confidence) / 2]:
        if np.abs(cumulative - probability).min() < MARGIN:
            raise TooClose
        ends.append(float(Fraction(int(low + np.searchsorted(cumulative, probability)), scale)))
    return dict(low=ends[0], high=ends[1])


def exact_p(strata):
    low, pmf = convolved(strata)
    sums = low + np.arange(len(pmf))
    return float(min(1.0, 2 * min(pmf[sums <= 0].sum(), pmf[sums >= 0].sum())))


def bootstrap_exact():
    def case(n, least, most):
        def make(random):
            values = random.integers(least, most, size=n, endpoint=True).tolist()
            intervals = [dict(confidence=c, **exact_interval([values], c, n)) for c in (0.8, 0.95)]
            return dict(values=values, intervals=intervals)

        return first_clear(make)

    return [case(5, 0, 7), case(30, 0, 1), case(9, 2, 2), case(12, -4, 11)]


def bootstrap_sampled():
    values = np.random.default_rng(2).gamma(2.0, 1.0, size=60)
    interval = stats.bootstrap(
        (values,), np.mean, n_resamples=400_000, method="percentile", rng=np.random.default_rng(3), batch=10_000
    ).confidence_interval
    return [dict(values=values.tolist(), confidence=0.95, low=float(interval.low), high=float(interval.high))]


def paired():
    def case(n, first, second):
        def make(random):
            a, b = (random.random(n) < first).astype(int), (random.random(n) < second).astype(int)
            differences = (a - b).tolist()
            interval = exact_interval([differences], 0.95, n)
            difference = sum(differences) / n
            return dict(a=a.tolist(), b=b.tolist(), difference=difference, p=exact_p([differences]), **interval)

        return first_clear(make)

    return [case(40, 0.6, 0.5), case(60, 0.75, 0.5), case(30, 0.5, 0.5)]


def pooled():
    """Three seeds on 25 tasks whose difficulty they share, so that the two ways of resampling differ visibly."""

    def make(random):
        difficulty, gain = random.normal(size=25), random.normal(size=25)
        seeds = []
        for _ in range(3):
            a = (difficulty + 0.5 + 2.0 * gain + 0.3 * random.normal(size=25) > 0).astype(int)
            b = (difficulty + 0.3 * random.normal(size=25) > 0).astype(int)
            seeds.append(list(zip(a.tolist(), b.tolist())))
        of_seeds = [[a - b for a, b in pairs] for pairs in seeds]
        of_tasks = [sum(column) for column in zip(*of_seeds)]
        scale = 3 * 25
        shared = dict(p=exact_p([of_tasks]), **exact_interval([of_tasks], 0.95, scale))
        separate = dict(p=exact_p(of_seeds), **exact_interval(of_seeds, 0.95, scale))
        assert shared["high"] - shared["low"] > 1.2 * (separate["high"] - separate["low"])
        return dict(seeds=seeds, difference=sum(of_tasks) / scale, shared=shared, separate=separate)

    return first_clear(make)


if __name__ == "__main__":
    golden = dict(
        wilson=wilson(),
        standard_error=standard_error(),
        mcnemar=mcnemar_exact(),
        bootstrap_exact=bootstrap_exact(),
        bootstrap_sampled=bootstrap_sampled(),
        paired=paired(),
        pooled=pooled(),
    )
    # One case a line.
    parts = []
    for name, cases in golden.items():
        if isinstance(cases, list):
            body = "[\n" + ",\n".join("  " + json.dumps(case) for case in cases) + "\n]"
        else:
            body = json.dumps(cases)
        parts.append(f"{json.dumps(name)}: {body}")
    print("{\n" + ",\n".join(parts) + "\n}")
