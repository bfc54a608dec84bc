//! `drgym compare`.

use drgym_eval::results::read_traces;
use drgym_eval::{Results, compare};

use crate::arguments::CompareArguments;
use crate::failure::{Failure, Outcome};
use crate::printer::Printer;

/// Compares two evaluations episode by episode.
pub fn run(arguments: &CompareArguments, printer: Printer) -> Outcome {
    let (first, second) = (Results::read(&arguments.first)?, Results::read(&arguments.second)?);
    if first.data_hash != second.data_hash {
        return Err(Failure::new(format!(
            "the evaluations are of different data: {} has {}, {} has {}",
            arguments.first.display(),
            first.data_hash,
            arguments.second.display(),
            second.data_hash
        )));
    }
    let traces = |folder: &std::path::Path| read_traces(&folder.join("traces.jsonl"));
    let comparison = compare(&traces(&arguments.first)?, &traces(&arguments.second)?, arguments.seed)?;
    if arguments.json {
        return printer.json(&comparison);
    }
    let points = |value: f64| 100.0 * value;
    let difference = &comparison.difference;
    printer.data(&format!(
        "{} − {}: {:+.1} points [{:+.1}, {:+.1}] over {} episodes; only the first right {}, only the second {}; McNemar p = {:.4}",
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
