//! Tests of the crate through its public interface, in one binary.

mod evaluation;
mod folders;
mod samples;
mod statistics_coverage;
mod statistics_golden;
mod statistics_refusals;
