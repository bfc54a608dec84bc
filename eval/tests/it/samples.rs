//! Summaries and comparisons of made-up episodes: several samples a task, and episodes that were not scored.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use drgym_env::{Trace, Usage};
use drgym_eval::statistics::wilson_interval;
use drgym_eval::{Summary, Uncovered, compare, compare_pooled};
use serde_json::json;

/// An episode that ended with an answer; `None` stands for a judge that gave no verdict.
pub fn episode(task: usize, sample: u32, correct: Option<bool>) -> Trace {
    let id = format!("t{task}");
    let kind = if task.is_multiple_of(2) { "even" } else { "odd" };
    serde_json::from_value(json!({
        "version": 1,
        "task": {"id": id, "question": "q?", "answers": ["a"], "kind": kind},
        "episode": {"task": id, "sample": sample},
        "seed": 1,
        "policy": "made up",
        "segments": [],
        "events": [],
        "outcome": {"outcome": "answered", "answer": "a"},
        "correct": correct,
        "usage": Usage::default(),
    }))
    .unwrap()
}

/// `samples` episodes of each task that all end alike.
fn alike(tasks: usize, samples: u32, correct: impl Fn(usize) -> Option<bool>) -> Vec<Trace> {
    let of_task = |task| (0..samples).map(move |sample| (task, sample));
    (0..tasks).flat_map(of_task).map(|(task, sample)| episode(task, sample, correct(task))).collect()
}

#[test]
fn copies_of_an_episode_make_an_accuracy_no_surer() {
    let half = |task: usize| Some(task.is_multiple_of(2));
    let single = Summary::of(&alike(40, 1, half)).unwrap().accuracy.unwrap();
    assert_eq!(single.interval, wilson_interval(20, 40, 0.95).unwrap(), "one sample a task");
    let copied = Summary::of(&alike(40, 4, half)).unwrap().accuracy.unwrap();
    assert_eq!((copied.correct, copied.n, copied.value), (80, 160, 0.5));
    // Forty tasks give a standard error of 0.5 / √40 = 0.079; taken as 160 tasks it would be half of that.
    let width = copied.interval.half_width();
    assert!((0.13..0.18).contains(&width), "{width}");

    let all_right = Summary::of(&alike(12, 4, |_| Some(true))).unwrap().accuracy.unwrap();
    assert_eq!(all_right.interval, wilson_interval(12, 12, 0.95).unwrap());
}

#[test]
fn every_task_weighs_the_same_however_many_of_its_episodes_were_scored() {
    let mut traces: Vec<Trace> = (0..3).map(|sample| episode(0, sample, Some(sample == 0))).collect();
    traces.push(episode(1, 0, Some(true)));
    traces.extend((1..3).map(|sample| episode(1, sample, None)));
    let summary = Summary::of(&traces).unwrap();
    let accuracy = summary.accuracy.unwrap();
    assert_eq!((accuracy.correct, accuracy.n, accuracy.excluded), (2, 4, 2));
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found}, {expected}");
    close(accuracy.value, 2.0 / 3.0);
    let bounds = summary.bounds.unwrap();
    close(bounds.low, 1.0 / 3.0);
    close(bounds.high, 2.0 / 3.0);
    assert_eq!(accuracy.bounds, Some(bounds));
}

#[test]
fn what_the_excluded_could_have_changed_stands_beside_the_accuracy() {
    // The judge fails on exactly the wrong answers, all of which are of odd tasks.
    let flattered = Summary::of(&alike(10, 1, |task| task.is_multiple_of(2).then_some(true))).unwrap();
    let accuracy = flattered.accuracy.as_ref().unwrap();
    assert_eq!((accuracy.value, accuracy.n, flattered.excluded), (1.0, 5, 5));
    assert_eq!((flattered.bounds.unwrap().low, flattered.bounds.unwrap().high), (0.5, 1.0));
    assert_eq!((flattered.excluded_share(), flattered.failures.judge_failed), (0.5, 5));
    assert_eq!((flattered.by_kind["even"].excluded, flattered.by_kind["even"].bounds), (0, None));
    assert!(!flattered.by_kind.contains_key("odd"));

    let nothing = Summary::of(&alike(10, 1, |_| None)).unwrap();
    assert_eq!((nothing.accuracy, nothing.excluded), (None, 10));
    assert_eq!((nothing.bounds.unwrap().low, nothing.bounds.unwrap().high), (0.0, 1.0));
    let whole = Summary::of(&alike(10, 1, |_| Some(false))).unwrap();
    assert_eq!((whole.excluded, whole.bounds), (0, None));
}

#[test]
fn samples_of_a_task_are_compared_as_one_task() {
    // First ahead on tasks 0, 1, 2, 3 of every five, behind on the last.
    let first = |task: usize| Some(task % 5 < 4);
    let second = |task: usize| Some(task % 5 == 4);
    let single = compare(&alike(30, 1, first), &alike(30, 1, second), 1).unwrap();
    let copied = compare(&alike(30, 4, first), &alike(30, 4, second), 1).unwrap();
    assert_eq!((copied.n, copied.only_first, copied.only_second), (30, 24, 6));
    assert_eq!(copied.difference, single.difference);
    assert!(copied.difference.interval.is_some());
    assert!(single.mcnemar_p.is_some() && copied.mcnemar_p.is_none());
    let mixed = compare(&alike(30, 4, first), &alike(30, 1, second), 1).unwrap();
    assert_eq!((mixed.difference, mixed.mcnemar_p), (single.difference, None));

    let pooled = |samples| {
        let (a, b) = (alike(30, samples, first), alike(30, samples, second));
        compare_pooled(&[(&a, &b), (&a, &a)], 1).unwrap()
    };
    assert_eq!(pooled(4), pooled(1));
    assert_eq!((pooled(1).n, pooled(1).each), (30, vec![0.6, 0.0]));
}

#[test]
fn a_single_common_task_has_a_difference_and_nothing_more() {
    let comparison = compare(&alike(1, 1, |_| Some(true)), &alike(1, 1, |_| Some(false)), 1).unwrap();
    assert_eq!((comparison.n, comparison.difference.difference), (1, 1.0));
    assert!(comparison.mcnemar_p.unwrap() > 0.99, "one discordant pair: p = 1");
    let printed = serde_json::to_value(&comparison).unwrap();
    assert!(printed["difference"]["interval"].is_null() && printed["difference"]["p_value"].is_null());
    assert!(compare(&alike(1, 1, |_| Some(true)), &alike(1, 1, |_| None), 1).is_err());
}

#[test]
fn what_a_pair_does_not_cover_is_counted() {
    let first = alike(5, 2, |task| (task != 1).then_some(true));
    let second = alike(3, 2, |task| (task != 0).then_some(true));
    let expected =
        Uncovered { tasks_only_in_first: 2, tasks_only_in_second: 0, excluded_first: 2, excluded_second: 2 };
    assert_eq!(Uncovered::of(&first, &second), expected);
    assert_eq!(compare(&first, &second, 1).unwrap().n, 1, "only task 2 was scored by both");
}
