//! The thread that owns the model.

use drgym_trainer::model::{ModelError, ModelThread};
use tch::Tensor;

use super::model_support::tiny;

#[tokio::test]
async fn work_runs_on_one_named_thread_in_order_and_returns() {
    let (handle, ()) = ModelThread::spawn(1, || Ok::<_, ModelError>((tiny("llama"), ()))).expect("spawned");
    let name = handle.run(|_| std::thread::current().name().map(str::to_owned)).await.expect("ran");
    assert_eq!(name.as_deref(), Some("model"));
    let layers = handle.clone().run(|decoder| decoder.layers()).await.expect("ran");
    assert_eq!(layers, 2);
    let there = handle.clone();
    let blocking = std::thread::spawn(move || there.run_blocking(|decoder| decoder.parameters().len()));
    assert_eq!(blocking.join().expect("joined").expect("ran"), 21);
}

#[tokio::test]
async fn a_panic_becomes_an_error_and_the_thread_goes_on_with_gradients_enabled() {
    let (handle, ()) = ModelThread::spawn(1, || Ok::<_, ModelError>((tiny("llama"), ()))).expect("spawned");
    let error = handle
        .run(|_| {
            // The closure form leaves gradients off when its closure panics.
            tch::no_grad(|| Tensor::from_slice(&[1f32, 2.0]).view([3]).numel())
        })
        .await
        .expect_err("the shapes do not fit");
    let ModelError::Panicked(reason) = &error else { panic!("{error:?}") };
    assert!(reason.contains("shape '[3]' is invalid for input of size 2"), "{reason}");
    assert!(!reason.contains("Exception raised from"), "{reason}");
    let tracked = handle
        .run(|_| (Tensor::from_slice(&[1f32]).set_requires_grad(true) * 2.0).requires_grad())
        .await
        .expect("the thread goes on");
    assert!(tracked);
}
