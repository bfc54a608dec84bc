//! `drgym serve`.

use std::time::Duration;

use drgym_search::server::{ServeOptions, serve};

use crate::arguments::ServeArguments;
use crate::failure::{Failure, Outcome, WithHint};
use crate::interrupt::Signals;
use crate::printer::Printer;
use crate::{backend, paths};

/// Serves until Ctrl-C; then answers what has been asked, unless a second one comes.
pub async fn run(arguments: ServeArguments, printer: Printer) -> Outcome {
    let addr = arguments
        .addr
        .parse()
        .map_err(|_| Failure::new(format!("{:?} is no address", arguments.addr)))
        .hint("write HOST:PORT with a numeric host, for instance 127.0.0.1:8080")?;
    let mut indexes = Vec::new();
    for text in &arguments.index {
        // What has a slash before its first equals sign is a path that contains one.
        let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
        let (name, folder) = named.unwrap_or(("default", text));
        let folder = paths::expand(std::path::Path::new(folder));
        let local = backend::open_local(&folder, arguments.encoder.as_deref()).await?;
        printer.say(&format!("{name}: {} documents, index {}", local.document_count(), local.info().hash));
        indexes.push((name.to_owned(), local));
    }
    let options = ServeOptions {
        addr,
        indexes,
        timeout: Duration::from_secs(arguments.timeout),
        // Long enough for a connection to rest between two searches of an episode.
        idle_timeout: Duration::from_secs(75),
        concurrency: arguments.concurrency,
    };
    let signals = Signals::listen()?;
    let server = serve(options).await?;
    // Data, so that a script that asked for port 0 can read it.
    printer.data(&server.url());
    server.run_until(signals.first(printer, "answering the last requests")).await?;
    Ok(())
}
