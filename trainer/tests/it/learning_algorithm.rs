//! Advantages, losses and the optimiser against hand-worked numbers and against PyTorch and TRL
//! (scripts/golden/learning_algorithm.py).
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::{Path, PathBuf};

use drgym_trainer::algorithm::advantage::{AdvantageError, AdvantageOptions, Singleton, grpo};
use drgym_trainer::algorithm::aggregate::{Aggregation, token_weights};
use drgym_trainer::algorithm::loss::{ClipOptions, clipped_ratio};
use drgym_trainer::algorithm::{entropy, kl};
use drgym_trainer::optimizer::{AdamW, AdamWOptions};
use serde_json::Value;
use tch::{Kind, Tensor};

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/learning_algorithm.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f32> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Bool(flag) => vec![f32::from(u8::from(*flag))],
        number => vec![number.as_f64().unwrap() as f32],
    }
}

fn tensor(value: &Value) -> Tensor {
    Tensor::from_slice(&numbers(value))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.detach().to_kind(Kind::Float).flatten(0, -1)).unwrap()
}

#[track_caller]
fn assert_close(found: &[f32], expected: &[f32], relative: f32) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let tolerance = relative * expected.abs().max(1e-3);
        assert!((found - expected).abs() <= tolerance, "{index}: found {found}, expected {expected}");
    }
}

#[test]
fn advantages_follow_hand_worked_numbers() {
    // mean 0.5, squares 4 · 0.25, variance 1 / 3
    let found = grpo(&[1.0, 0.0, 1.0, 0.0], &[0; 4], 1, 4, &AdvantageOptions::default()).unwrap();
    let expected = 0.5 / ((1.0_f64 / 3.0).sqrt() + 1e-6);
    for (value, sign) in found.values.iter().zip([1.0, -1.0, 1.0, -1.0]) {
        assert!((value - sign * expected).abs() < 1e-12);
    }
    let dr = AdvantageOptions { normalize_by_std: false, ..AdvantageOptions::default() };
    assert_eq!(grpo(&[1.0, 0.0, 1.0, 0.0], &[0; 4], 1, 4, &dr).unwrap().values, [0.5, -0.5, 0.5, -0.5]);
}

#[test]
fn advantages_equal_those_of_pytorch() {
    let golden = &golden()["advantage"];
    let rewards: Vec<f64> = serde_json::from_value(golden["rewards"].clone()).unwrap();
    let groups: Vec<usize> = serde_json::from_value(golden["groups"].clone()).unwrap();
    let expected: Vec<f64> = serde_json::from_value(golden["normalized"].clone()).unwrap();
    let found = grpo(&rewards, &groups, 4, 3, &AdvantageOptions::default()).unwrap();
    for (found, expected) in found.values.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    assert_eq!((found.groups, found.zero_spread_groups, found.singleton_groups), (4, 1, 1));
    assert_eq!(found.informative, [true, true, true, false, false, false, true, true, true]);
}

#[test]
fn groups_without_spread_and_singletons_are_counted() {
    let options = AdvantageOptions { spread_tolerance: 1e-3, ..AdvantageOptions::default() };
    let found = grpo(&[0.3, 0.3005, 0.9], &[0, 0, 2], 3, 4, &options).unwrap();
    assert_eq!((found.groups, found.zero_spread_groups, found.singleton_groups), (2, 1, 1));
    assert_eq!(&found.values[..2], &[0.0, 0.0]);
    assert!((found.values[2] - 0.9 / (1.0 + 1e-6)).abs() < 1e-12);
    let options = AdvantageOptions { singleton: Singleton::Drop, ..options };
    let found = grpo(&[0.9], &[2], 3, 4, &options).unwrap();
    assert_eq!((found.values, found.informative, found.zero_spread_groups), (vec![0.0], vec![false], 1));
}

#[test]
fn wrong_groups_are_refused() {
    let options = AdvantageOptions::default();
    let refused = |rewards: &[f64], groups: &[usize]| grpo(rewards, groups, 2, 2, &options).unwrap_err();
    assert_eq!(refused(&[1.0], &[0, 1]), AdvantageError::Lengths { rewards: 1, groups: 2 });
    assert_eq!(refused(&[1.0], &[2]), AdvantageError::UnknownGroup { sample: 0, group: 2, groups: 2 });
    let too_many = AdvantageError::GroupTooLarge { group: 1, found: 3, group_size: 2 };
    assert_eq!(refused(&[1.0, 2.0, 3.0], &[1, 1, 1]), too_many);
    assert!(matches!(refused(&[f64::NAN], &[0]), AdvantageError::NotFinite { sample: 0, .. }));
}

#[test]
fn weights_sum_to_one_however_tokens_are_spread() {
    assert_eq!(token_weights(&[3, 1], &[0, 1], Aggregation::TokenMean), [0.25, 0.25]);
    // Episode 0 has 4 tokens in two sequences, episode 1 has 2 tokens.
    let weights = token_weights(&[3, 1, 2], &[0, 0, 1], Aggregation::SeqMeanTokenMean);
    assert_eq!(weights, [0.125, 0.125, 0.25]);
}

#[test]
fn the_clipped_loss_follows_hand_worked_numbers() {
    let old = Tensor::zeros([4], (Kind::Float, tch::Device::Cpu));
    let logprobs = Tensor::from_slice(&[1.5_f32.ln(), 0.5_f32.ln(), 5.0_f32.ln(), 1.0_f32.ln()]);
    let advantages = Tensor::from_slice(&[2.0_f32, -1.0, -1.0, 1.0]);
    let found = clipped_ratio(&logprobs, &old, &advantages, &ClipOptions::default());
    // −2·1.2;  max(0.5, 0.8);  min(5, 3);  −1
    assert_close(&values(&found.loss), &[-2.4, 0.8, 3.0, -1.0], 1e-6);
    assert_close(&values(&found.ratio), &[1.5, 0.5, 5.0, 1.0], 1e-6);
    assert_eq!(values(&found.clipped), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(values(&found.dual_clipped), [0.0, 0.0, 1.0, 0.0]);
}

#[test]
fn the_clipped_loss_and_its_gradient_equal_those_of_pytorch() {
    for case in golden()["loss"].as_array().unwrap() {
        let options = ClipOptions {
            low: case["low"].as_f64().unwrap(),
            high: case["high"].as_f64().unwrap(),
            dual_clip: case["dual_clip"].as_f64(),
        };
        let logprobs = tensor(&case["logprobs"]).set_requires_grad(true);
        let found = clipped_ratio(&logprobs, &tensor(&case["old"]), &tensor(&case["advantages"]), &options);
        assert_close(&values(&found.loss), &numbers(&case["loss"]), 1e-5);
        assert_close(&values(&found.ratio), &numbers(&case["ratio"]), 1e-5);
        assert_eq!(values(&found.clipped), numbers(&case["clipped"]));
        assert_eq!(values(&found.dual_clipped), numbers(&case["dual_clipped"]));
        (found.loss * tensor(&case["weights"])).sum(Kind::Float).backward();
        assert_close(&values(&logprobs.grad()), &numbers(&case["gradient"]), 1e-5);
    }
}

#[test]
fn k3_and_its_gradient_equal_those_of_pytorch() {
    let golden = &golden()["kl"];
    let logprobs = tensor(&golden["logprobs"]).set_requires_grad(true);
    let found = kl::k3(&logprobs, &tensor(&golden["reference"]));
    assert_close(&values(&found), &numbers(&golden["value"]), 1e-5);
    // r = log 2: 2 − log 2 − 1
    let by_hand = kl::k3(&Tensor::from_slice(&[-(2.0_f32.ln())]), &Tensor::from_slice(&[0.0_f32]));
    assert_close(&values(&by_hand), &[1.0 - 2.0_f32.ln()], 1e-5);
    found.sum(Kind::Float).backward();
    assert_close(&values(&logprobs.grad()), &numbers(&golden["gradient"]), 1e-5);
}

#[test]
fn entropy_equals_that_of_trl() {
    let golden = &golden()["entropy"];
    let logits = tensor(&golden["logits"]).view([6, 33]);
    let logsumexp = logits.logsumexp([-1_i64].as_slice(), false);
    let found = values(&entropy::from_logits(&logits, &logsumexp));
    for (found, expected) in found.iter().zip(numbers(&golden["entropy"])) {
        assert!((found - expected).abs() < 2e-5, "{found} {expected}");
    }
    assert!((found[0] - 33.0_f32.ln()).abs() < 1e-5);
    let targets = Tensor::from_slice(&serde_json::from_value::<Vec<i64>>(golden["targets"].clone()).unwrap());
    let logprobs = logits.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1) - logsumexp;
    assert_close(&values(&logprobs), &numbers(&golden["logprobs"]), 1e-4);
}

fn optimizer(case: &Value) -> (AdamW, Tensor, Tensor) {
    let matrix = tensor(&case["start"]["matrix"]).view([3, 4]).set_requires_grad(true);
    let bias = tensor(&case["start"]["bias"]).set_requires_grad(true);
    let options = AdamWOptions {
        beta2: case["beta2"].as_f64().unwrap(),
        weight_decay: case["weight_decay"].as_f64().unwrap(),
        max_gradient_norm: case["max_norm"].as_f64(),
        ..AdamWOptions::default()
    };
    let named = vec![("matrix".into(), matrix.shallow_clone()), ("bias".into(), bias.shallow_clone())];
    (AdamW::new(named, options).unwrap(), matrix, bias)
}

fn set_gradients(step: &Value, optimizer: &mut AdamW, matrix: &Tensor, bias: &Tensor) {
    optimizer.zero_gradients();
    for (parameter, name) in [(matrix, "matrix"), (bias, "bias")] {
        let gradient = tensor(&step["gradients"][name]).view_as(parameter);
        (parameter * gradient).sum(Kind::Float).backward();
    }
}

#[test]
fn adamw_equals_that_of_pytorch_step_by_step() {
    for case in golden()["adamw"].as_array().unwrap() {
        let (mut optimizer, matrix, bias) = optimizer(case);
        for step in case["steps"].as_array().unwrap() {
            set_gradients(step, &mut optimizer, &matrix, &bias);
            let outcome = optimizer.step(step["learning_rate"].as_f64().unwrap()).unwrap();
            assert!(outcome.applied);
            assert!((outcome.gradient_norm / step["norm"].as_f64().unwrap() - 1.0).abs() < 1e-5);
            assert_close(&values(&matrix), &numbers(&step["matrix"]), 2e-6);
            assert_close(&values(&bias), &numbers(&step["bias"]), 2e-6);
        }
        assert_eq!(optimizer.updates(), 6);
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let case = &golden()["adamw"][0];
    let (mut optimizer, matrix, bias) = optimizer(case);
    set_gradients(&case["steps"][0], &mut optimizer, &matrix, &bias);
    let _ = bias.grad().fill_(f64::NAN);
    let before = values(&matrix);
    let outcome = optimizer.step(0.1).unwrap();
    assert!(!outcome.applied && outcome.gradient_norm.is_nan());
    assert_eq!((values(&matrix), optimizer.updates()), (before, 0));
}

#[test]
fn a_saved_optimizer_goes_on_bit_by_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("optimizer.safetensors");
    let case = &golden()["adamw"][0];
    let steps = case["steps"].as_array().unwrap();
    let (mut straight, matrix, bias) = optimizer(case);
    let mut saved_weights = None;
    for (index, step) in steps.iter().enumerate() {
        if index == 3 {
            straight.save(&path).unwrap();
            saved_weights = Some((matrix.detach().copy(), bias.detach().copy()));
        }
        set_gradients(step, &mut straight, &matrix, &bias);
        straight.step(0.01).unwrap();
    }
    let (mut resumed, other_matrix, other_bias) = optimizer(case);
    let (saved_matrix, saved_bias) = saved_weights.unwrap();
    tch::no_grad(|| {
        other_matrix.shallow_clone().copy_(&saved_matrix);
        other_bias.shallow_clone().copy_(&saved_bias);
    });
    resumed.load(&path).unwrap();
    for step in &steps[3..] {
        set_gradients(step, &mut resumed, &other_matrix, &other_bias);
        resumed.step(0.01).unwrap();
    }
    let bits = |tensor: &Tensor| values(tensor).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(&matrix), bits(&other_matrix));
    assert_eq!(bits(&bias), bits(&other_bias));

    let named = vec![("other".into(), Tensor::zeros([2], (Kind::Float, tch::Device::Cpu)))];
    assert!(AdamW::new(named, AdamWOptions::default()).unwrap().load(&path).is_err());
}
