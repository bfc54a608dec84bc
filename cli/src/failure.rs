//! How a run of the program ends.

use std::fmt::Display;

/// What the process returns to the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Done.
    Success,
    /// The user can mend it: bad input, missing file, unreachable server.
    User,
    /// A defect of this program.
    Ours,
    /// Ctrl-C or SIGTERM ended it early, in good order.
    Interrupted,
}

impl From<ExitStatus> for std::process::ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::User => Self::from(1),
            ExitStatus::Ours => Self::from(2),
            // As shells report a process that SIGINT ended.
            ExitStatus::Interrupted => Self::from(130),
        }
    }
}

/// A run was asked to stop before its last step.
#[cfg(feature = "train")]
#[derive(Debug)]
struct Interrupted {
    step: u64,
    steps: u64,
}

#[cfg(feature = "train")]
impl Display for Interrupted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "interrupted after step {} of {}", self.step, self.steps)
    }
}

#[cfg(feature = "train")]
impl std::error::Error for Interrupted {}

/// Whether this stands for a request to stop.
fn is_interruption(cause: &(dyn std::error::Error + 'static)) -> bool {
    #[cfg(feature = "train")]
    if cause.is::<Interrupted>() {
        return true;
    }
    cause
        .downcast_ref::<drgym_env::RolloutError>()
        .is_some_and(|error| matches!(error, drgym_env::RolloutError::Cancelled))
}

/// What a verb returns.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a verb failed, and what to do.
#[derive(Debug)]
pub struct Failure {
    error: anyhow::Error,
    hint: Option<String>,
}

impl Failure {
    /// A failure that only this program knows.
    pub fn new(message: impl Display) -> Self {
        Self { error: anyhow::anyhow!("{message}"), hint: None }
    }

    /// One line: the error and its causes.
    pub fn message(&self) -> String {
        let mut message = String::new();
        for cause in self.error.chain() {
            let text = cause.to_string();
            // Errors often quote their source already.
            if message.is_empty() {
                message = text;
            } else if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
        }
        message
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// A run that was asked to stop, and can be gone on with.
    #[cfg(feature = "train")]
    pub fn interrupted(step: u64, steps: u64) -> Self {
        Self {
            error: Interrupted { step, steps }.into(),
            hint: Some("go on with the same command and --resume".into()),
        }
    }

    /// Whose fault it is: everything that came from outside is the user's to mend.
    pub fn status(&self) -> ExitStatus {
        if self.error.chain().any(is_interruption) {
            return ExitStatus::Interrupted;
        }
        let ours = self.error.chain().any(|cause| {
            cause
                .downcast_ref::<drgym_search::SearchError>()
                .is_some_and(|error| matches!(error, drgym_search::SearchError::Internal(_)))
                || cause.is::<drgym_env::EnvError>()
                || cause.is::<tokio::task::JoinError>()
        });
        if ours { ExitStatus::Ours } else { ExitStatus::User }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: error.into(), hint: None }
    }
}

/// Adds what to do to an error.
pub trait WithHint<T> {
    /// The same, with a hint.
    fn hint(self, hint: impl Into<String>) -> Outcome<T>;
}

impl<T, E: Into<Failure>> WithHint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> Outcome<T> {
        self.map_err(|error| Failure { hint: Some(hint.into()), ..error.into() })
    }
}
