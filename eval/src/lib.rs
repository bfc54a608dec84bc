//! Measuring search agents: benchmarks, evaluation runs, and how sure the numbers are.
//!
//! ```text
//! Benchmark::load(path) ─▶ tasks ─▶ Rollouts (policy × search engine) ─▶ traces ─▶ Summary ─▶ results.json
//!                                                                                    │
//!                                     statistics: Wilson and bootstrap intervals ◀───┘
//! ```
//!
//! An episode that failed for a reason outside the policy (search down, judge down) is excluded and counted; it is
//! never a wrong answer.

pub mod benchmark;
pub mod comparison;
pub mod results;
pub mod run;
pub mod statistics;
pub mod summary;

pub use benchmark::{Benchmark, BenchmarkError};
pub use comparison::{Comparison, PooledComparison, compare, compare_pooled};
pub use results::{Results, ResultsError};
pub use run::{EvaluationError, EvaluationRequest, evaluate};
pub use summary::{FailureCounts, Rate, Summary};
