//! Measuring search agents: benchmarks, evaluation runs, and how sure the numbers are.
//!
//! ```text
//! Benchmark::load(path) ─▶ tasks ─▶ Rollouts (policy × search engine) ─▶ traces ─▶ Summary ─▶ results.json
//!                                                                                    │
//!                                     statistics: Wilson and bootstrap intervals ◀───┘
//! ```
//!
//! An episode that failed for a reason outside the policy (search down, judge down) is excluded and counted; it is
//! never a wrong answer. What the accuracy would be with all of them wrong or right stands beside it.

pub mod benchmark;
pub mod comparison;
pub mod results;
pub mod run;
pub mod settings;
pub mod statistics;
pub mod summary;

pub use benchmark::{Benchmark, BenchmarkError};
pub use comparison::{Comparison, PooledComparison, Uncovered, compare, compare_pooled};
pub use results::{Evaluation, Results, ResultsError};
pub use run::{EvaluationError, EvaluationRequest, check_episodes, evaluate};
pub use settings::{DifferingSetting, IncomparableError, check_comparable, differing_settings};
pub use summary::{FailureCounts, Rate, Summary};
