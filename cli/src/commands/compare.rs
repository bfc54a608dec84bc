//! `drgym compare`.

use std::path::Path;

use drgym_env::Trace;
use drgym_eval::results::read_traces;
use drgym_eval::{Results, compare, compare_pooled};

use crate::arguments::CompareArguments;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;

/// Compares evaluations episode by episode: one pair, or several pooled.
pub fn run(arguments: &CompareArguments, printer: Printer) -> Outcome {
    let mut pairs = vec![pair(&arguments.first, &arguments.second)?];
    for also in arguments.also.chunks_exact(2) {
        pairs.push(pair(&also[0], &also[1])?);
    }
    let points = |value: f64| 100.0 * value;
    if pairs.len() > 1 {
        let pooled = compare_pooled(&pairs, arguments.seed)?;
        if arguments.json {
            return printer.json(&pooled);
        }
        let each: Vec<String> = pooled.each.iter().map(|value| format!("{:+.1}", points(*value))).collect();
        let difference = &pooled.difference;
        printer.data(&format!(
            "mean of {} pairs: {:+.1} points [{:+.1}, {:+.1}] over {} episodes each; single pairs {}",
            pairs.len(),
            points(difference.difference),
            points(difference.interval.low),
            points(difference.interval.high),
            pooled.n,
            each.join(", "),
        ));
        return Ok(());
    }
    let comparison = compare(&pairs[0].0, &pairs[0].1, arguments.seed)?;
    if arguments.json {
        return printer.json(&comparison);
    }
    let difference = &comparison.difference;
    printer.data(&format!(
        "{} − {}: {:+.1} points [{:+.1}, {:+.1}] over {} episodes; only the first right {}, only the second {}; \
         McNemar p = {:.4}",
        arguments.first.display(),
        arguments.second.display(),
        points(difference.difference),
        points(difference.interval.low),
        points(difference.interval.high),
        comparison.n,
        comparison.only_first,
        comparison.only_second,
        comparison.mcnemar_p,
    ));
    Ok(())
}

/// The traces of two evaluations, which must be of the same data.
fn pair(first: &Path, second: &Path) -> Outcome<(Vec<Trace>, Vec<Trace>)> {
    let (one, other) = (Results::read(first)?, Results::read(second)?);
    if one.data_hash != other.data_hash {
        return Err(Failure::new(format!(
            "the evaluations are of different data: {} has {}, {} has {}",
            first.display(),
            one.data_hash,
            second.display(),
            other.data_hash
        )));
    }
    Ok((read_traces(&first.join("traces.jsonl"))?, read_traces(&second.join("traces.jsonl"))?))
}
