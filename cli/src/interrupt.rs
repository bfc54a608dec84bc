//! Ctrl-C: the first asks for a clean stop, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::printer::Printer;

/// How a shell shows a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// A flag that the first Ctrl-C (or SIGTERM) raises. There is one for the process: a verb in several phases is asked
/// once, whichever phase it is in.
pub fn cancel_flag(printer: Printer) -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let start = || {
        let flag = Arc::new(AtomicBool::new(false));
        match Signals::listen() {
            Ok(mut signals) => {
                let raised = flag.clone();
                tokio::spawn(async move {
                    signals.next().await;
                    raised.store(true, Ordering::SeqCst);
                    printer.say("stopping at the next safe point; press Ctrl-C again to stop at once");
                    signals.next().await;
                    end_at_once();
                });
            }
            Err(error) => printer.say(&format!("Ctrl-C will end the program at once: {error}")),
        }
        flag
    };
    FLAG.get_or_init(start).clone()
}

/// Ctrl-C and SIGTERM, from the moment of [`listen`](Self::listen) on: one that comes between two calls of
/// [`next`](Self::next) is not lost.
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Takes the signals over from the system, which would end the process. Needs a runtime.
    pub fn listen() -> std::io::Result<Self> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            Ok(Self {
                interrupt: signal(SignalKind::interrupt())?,
                terminate: signal(SignalKind::terminate())?,
            })
        }
        #[cfg(not(unix))]
        {
            Ok(Self {})
        }
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the first signal and says what it begins; from then on a second one ends the process at once.
    pub async fn first(mut self, printer: Printer, begins: &str) {
        self.next().await;
        printer.say(&format!("{begins}; press Ctrl-C again to stop at once"));
        tokio::spawn(async move {
            self.next().await;
            end_at_once();
        });
    }
}

/// Ends the process without the closing work of the libraries in it: threads of libtorch that go on computing meanwhile
/// would find its tables gone, and panic.
fn end_at_once() -> ! {
    #[cfg(unix)]
    #[expect(unsafe_code, reason = "the standard library has no exit that leaves out closing work")]
    // SAFETY: _exit does not return and touches nothing of this program.
    unsafe {
        libc::_exit(INTERRUPTED)
    }
    #[cfg(not(unix))]
    std::process::exit(INTERRUPTED)
}
