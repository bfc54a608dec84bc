//! `drgym compare`.

use std::path::Path;

use drgym_env::Trace;
use drgym_eval::statistics::{LEAST_DIFFERING_TASKS, PairedDifference};
use drgym_eval::{
    DifferingSetting, Evaluation, Uncovered, check_comparable, compare, compare_pooled, differing_settings,
};
use serde::Serialize;

use crate::arguments::CompareArguments;
use crate::failure::Outcome;
use crate::printer::Printer;

/// Compares evaluations task by task: one pair, or several pooled.
pub fn run(arguments: &CompareArguments, printer: Printer) -> Outcome {
    let mut pairs = vec![read_pair(&arguments.first, &arguments.second)?];
    for also in arguments.also.chunks_exact(2) {
        pairs.push(read_pair(&also[0], &also[1])?);
    }
    for evaluation in pairs.iter().flatten() {
        check_comparable(&pairs[0][0], evaluation)?;
    }
    let reports: Vec<PairReport> = pairs.iter().map(PairReport::of).collect();
    if pairs.len() == 1 {
        let [first, second] = &pairs[0];
        let comparison = compare(&first.traces, &second.traces, arguments.seed)?;
        if arguments.json {
            return printer.json(&Report { figures: &comparison, pairs: reports });
        }
        let difference = &comparison.difference;
        let test = match (comparison.mcnemar_p, difference.p_value) {
            (Some(p), _) => format!("McNemar p {}", p_value(p)),
            (None, Some(p)) => {
                format!("bootstrap p {} (McNemar's test is for one sample a task)", p_value(p))
            }
            (None, None) => "no test".to_owned(),
        };
        printer.data(&format!(
            "{} − {}: {} over {} tasks; first better on {}, second on {}; {test}",
            arguments.first.display(),
            arguments.second.display(),
            points(difference),
            comparison.n,
            comparison.only_first,
            comparison.only_second,
        ));
    } else {
        let traces: Vec<(&[Trace], &[Trace])> =
            pairs.iter().map(|[first, second]| (&first.traces[..], &second.traces[..])).collect();
        let pooled = compare_pooled(&traces, arguments.seed)?;
        if arguments.json {
            return printer.json(&Report { figures: &pooled, pairs: reports });
        }
        let each: Vec<String> = pooled.each.iter().map(|value| format!("{:+.1}", 100.0 * value)).collect();
        printer.data(&format!(
            "mean of {} pairs: {} over {} tasks each; single pairs {}",
            pairs.len(),
            points(&pooled.difference),
            pooled.n,
            each.join(", "),
        ));
    }
    for report in &reports {
        report.print(printer);
    }
    Ok(())
}

fn read_pair(first: &Path, second: &Path) -> Outcome<[Evaluation; 2]> {
    let pair = [Evaluation::read(first)?, Evaluation::read(second)?];
    check_comparable(&pair[0], &pair[1])?;
    Ok(pair)
}

/// A difference in percentage points, with its interval or why there is none.
fn points(difference: &PairedDifference) -> String {
    let mean = 100.0 * difference.difference;
    match difference.interval {
        Some(interval) => {
            let open = interval.low <= 0.0 && interval.high >= 0.0;
            let word = if open { ", which shows no difference" } else { "" };
            format!("{mean:+.1} points [{:+.1}, {:+.1}]{word}", 100.0 * interval.low, 100.0 * interval.high)
        }
        None if difference.differing < LEAST_DIFFERING_TASKS => format!(
            "{mean:+.1} points (no interval: they differ on {}, and a bootstrap needs {LEAST_DIFFERING_TASKS})",
            count(difference.differing, "task")
        ),
        None => format!("{mean:+.1} points (no interval: all tasks differ by the same)"),
    }
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { "< 0.0001".into() } else { format!("= {p:.4}") }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a, F: Serialize> {
    #[serde(flatten)]
    figures: &'a F,
    pairs: Vec<PairReport>,
}

/// What a reader must know of a pair beside its figures.
#[derive(Serialize)]
struct PairReport {
    first: String,
    second: String,
    differing_settings: Vec<DifferingSetting>,
    #[serde(flatten)]
    uncovered: Uncovered,
}

impl PairReport {
    fn of([first, second]: &[Evaluation; 2]) -> Self {
        Self {
            first: first.folder.display().to_string(),
            second: second.folder.display().to_string(),
            differing_settings: differing_settings(&first.results, &second.results),
            uncovered: Uncovered::of(&first.traces, &second.traces),
        }
    }

    fn print(&self, printer: Printer) {
        let Self { first, second, differing_settings, uncovered } = self;
        printer.data(&format!(
            "  {first}, {second}: {} only in the first, {} only in the second; excluded {} and {}",
            count(uncovered.tasks_only_in_first, "task"),
            uncovered.tasks_only_in_second,
            uncovered.excluded_first,
            count(uncovered.excluded_second, "episode"),
        ));
        for DifferingSetting { setting, first, second } in differing_settings {
            printer.data(&format!("    {setting}: {first} against {second}"));
        }
    }
}
