//! The one thread that owns a model.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use super::{Decoder, ModelError};

/// Work that goes on between jobs, a step at a time, as the sampler's decoding does.
pub trait Background: Send {
    /// Whether a step would do anything now.
    fn has_work(&self) -> bool;
    /// Does one step. Jobs that have arrived are done before the next one.
    fn step(&mut self, decoder: &mut Decoder);
    /// A step panicked: everything under way is to be answered with an error.
    fn fail(&mut self, reason: &str);
}

type Job = Box<dyn FnOnce(&mut Decoder) + Send>;

enum Message {
    Job(Job),
    Install(Box<dyn Background>),
}

/// Starts model threads; see [`ModelThread::spawn`].
#[derive(Debug)]
pub struct ModelThread;

impl ModelThread {
    /// Starts a thread named `model`, loads a decoder there, and gives a handle to it with whatever else `load` gave.
    ///
    /// The thread does jobs in the order in which they were sent, and background steps while there are none. It
    /// ends when the last handle is dropped. libtorch computes with `threads` threads on its behalf. No other thread
    /// of the process should compute with libtorch, not even while loading: each that does keeps a team of OpenMP
    /// threads of its own, and with more of them than cores OpenMP puts threads to sleep between any two operations.
    pub fn spawn<R, E>(
        threads: usize,
        load: impl FnOnce() -> Result<(Decoder, R), E> + Send + 'static,
    ) -> Result<(ModelHandle, R), E>
    where
        R: Send + 'static,
        E: From<ModelError> + Send + 'static,
    {
        let (sender, receiver) = channel();
        let (answer, loaded) = channel();
        std::thread::Builder::new()
            .name("model".into())
            .spawn(move || {
                crate::device::set_threads(threads);
                let decoder = match catch(load).map_err(E::from).flatten() {
                    Ok((decoder, beside)) => {
                        let _ = answer.send(Ok(beside));
                        decoder
                    }
                    Err(error) => {
                        let _ = answer.send(Err(error));
                        return;
                    }
                };
                drop(answer);
                serve(decoder, &receiver);
            })
            .map_err(|source| ModelError::Io { action: "start", path: "the model thread".into(), source })?;
        let beside = loaded.recv().map_err(|_| ModelError::ThreadGone)??;
        Ok((ModelHandle { sender }, beside))
    }
}

/// Sends work to a model thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ModelHandle {
    sender: Sender<Message>,
}

impl ModelHandle {
    /// Runs a closure on the model and awaits its result. A panic inside it becomes [`ModelError::Panicked`], and
    /// the thread goes on.
    pub async fn run<R, W>(&self, work: W) -> Result<R, ModelError>
    where
        R: Send + 'static,
        W: FnOnce(&mut Decoder) -> R + Send + 'static,
    {
        let (answer, result) = tokio::sync::oneshot::channel();
        self.submit(Box::new(move |decoder| {
            // A caller that has gone away no longer wants the answer.
            let _ = answer.send(catch(|| work(decoder)));
        }))?;
        result.await.map_err(|_| ModelError::ThreadGone)?
    }

    /// Runs a closure on the model and waits for its result, blocking the calling thread. Not for async code.
    pub fn run_blocking<R, W>(&self, work: W) -> Result<R, ModelError>
    where
        R: Send + 'static,
        W: FnOnce(&mut Decoder) -> R + Send + 'static,
    {
        let (answer, result) = channel();
        self.submit(Box::new(move |decoder| {
            let _ = answer.send(catch(|| work(decoder)));
        }))?;
        result.recv().map_err(|_| ModelError::ThreadGone)?
    }

    /// Sends a closure without waiting for it. A panic inside it is logged.
    pub(crate) fn send(&self, work: impl FnOnce(&mut Decoder) + Send + 'static) -> Result<(), ModelError> {
        self.submit(Box::new(work))
    }

    /// Adds background work to the thread.
    pub fn install(&self, background: Box<dyn Background>) -> Result<(), ModelError> {
        self.sender.send(Message::Install(background)).map_err(|_| ModelError::ThreadGone)
    }

    fn submit(&self, job: Job) -> Result<(), ModelError> {
        self.sender.send(Message::Job(job)).map_err(|_| ModelError::ThreadGone)
    }
}

fn serve(mut decoder: Decoder, messages: &Receiver<Message>) {
    let mut backgrounds: Vec<Box<dyn Background>> = Vec::new();
    loop {
        let busy = backgrounds.iter().any(|background| background.has_work());
        let message = if busy {
            match messages.try_recv() {
                Ok(message) => Some(message),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            }
        } else {
            match messages.recv() {
                Ok(message) => Some(message),
                Err(_) => return,
            }
        };
        match message {
            Some(Message::Job(job)) => {
                if let Err(error) = catch(|| job(&mut decoder)) {
                    tracing::error!(%error, "a job without a receiver failed");
                }
            }
            Some(Message::Install(background)) => backgrounds.push(background),
            None => {
                for background in backgrounds.iter_mut().filter(|background| background.has_work()) {
                    if let Err(error) = catch(|| background.step(&mut decoder)) {
                        background.fail(&error.to_string());
                    }
                }
            }
        }
    }
}

/// Runs a closure and turns a panic into an error.
///
/// Unwinding leaves the decoder whole: its tensors are changed only by libtorch calls that either happen or not.
/// The thread's gradient switch is set right again by the guard: work starts with gradients on, whatever the work
/// before it did or left undone.
fn catch<R>(work: impl FnOnce() -> R) -> Result<R, ModelError> {
    let guarded = AssertUnwindSafe(|| {
        let _restore = tch::no_grad_guard();
        tch::with_grad(work)
    });
    catch_unwind(guarded).map_err(|payload| ModelError::Panicked(panic_message(payload.as_ref())))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    // libtorch appends a C++ stack trace that says nothing to a user.
    let text = text.split("Exception raised from").next().unwrap_or(text);
    text.trim_end_matches(['\n', '\\', 'n', ' ']).to_owned()
}
