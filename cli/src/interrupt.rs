//! Ctrl-C: the first asks for a clean stop, the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::printer::Printer;

/// A flag that the first Ctrl-C (or SIGTERM) raises.
pub fn cancel_flag(printer: Printer) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let raised = flag.clone();
    tokio::spawn(async move {
        while signal().await {
            if raised.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
            printer.say("stopping at the next safe point; press Ctrl-C again to stop at once");
        }
    });
    flag
}

/// Waits for one signal; `false` if signals cannot be had.
pub async fn signal() -> bool {
    #[cfg(unix)]
    {
        let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        else {
            return tokio::signal::ctrl_c().await.is_ok();
        };
        tokio::select! {
            result = tokio::signal::ctrl_c() => result.is_ok(),
            received = terminate.recv() => received.is_some(),
        }
    }
    #[cfg(not(unix))]
    {
        tokio::signal::ctrl_c().await.is_ok()
    }
}
