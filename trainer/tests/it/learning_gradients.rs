//! The whole loss and its gradient against transformers (scripts/golden/learning_algorithm.py), however the pass
//! is cut up.
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use drgym_env::Segment;
use drgym_trainer::batch::{Packing, Sequence, pack};
use drgym_trainer::config::GrpoConfig;
use drgym_trainer::forward_backward::{Chunk, PassOptions, forward_backward, score};
use drgym_trainer::grpo::{PolicyLoss, TokenTally};
use drgym_trainer::learner::LossInput;
use drgym_trainer::model::{Decoder, LoadOptions, Trainable};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::learning_support::{expert_traces, task, tiny_config, trace};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/learning_tiny_llama")
}

fn case() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join("case.json")).unwrap()).unwrap()
}

fn list<T: serde::de::DeserializeOwned>(value: &Value) -> Vec<T> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Gradients by name of every trained parameter.
fn gradients(decoder: &Decoder) -> HashMap<String, Tensor> {
    decoder.trainable_parameters().into_iter().map(|(name, tensor)| (name, tensor.grad())).collect()
}

struct Cut {
    checkpointing: bool,
    logit_rows: usize,
    tokens: usize,
    trainable: Trainable,
}

/// Loss and gradients of the golden case.
fn run_case(cut: &Cut) -> (f64, HashMap<String, Tensor>) {
    let case = case();
    let mut decoder = Decoder::load(&folder(), LoadOptions::default()).unwrap();
    decoder.set_trainable(cut.trainable).unwrap();
    let cases = case["sequences"].as_array().unwrap();
    let sequences: Vec<Sequence> = cases
        .iter()
        .enumerate()
        .map(|(episode, case)| Sequence {
            episode,
            ids: list(&case["ids"]),
            positions: list(&case["positions"]),
            behaviour_logprobs: list(&case["old"]),
        })
        .collect();
    let total: usize = sequences.iter().map(|sequence| sequence.positions.len()).sum();
    let config: GrpoConfig = toml::from_str(&format!(
        "steps = 1\nkl_coefficient = {}\nentropy_coefficient = {}\n[model]\npath = \"tiny\"\n",
        case["kl_coefficient"], case["entropy_coefficient"]
    ))
    .unwrap();
    let advantages: Vec<f64> = cases.iter().map(|case| case["advantage"].as_f64().unwrap()).collect();
    let policy_loss = PolicyLoss {
        config: &config,
        sequences: &sequences,
        advantages: &advantages,
        old: Some(sequences.iter().map(|sequence| sequence.behaviour_logprobs.clone()).collect()),
        reference: Some(cases.iter().map(|case| list(&case["reference"])).collect()),
    };
    let mut tally = TokenTally::default();
    let options = PassOptions {
        activation_checkpointing: cut.checkpointing,
        logit_rows: cut.logit_rows,
        temperature: case["temperature"].as_f64().unwrap(),
        entropy_gradient: true,
    };
    let mut loss = 0.0;
    for batch in pack(&sequences, &[0, 1], &Packing { tokens: cut.tokens, padding: 0.9 }) {
        let (batch_loss, scores) = forward_backward(&decoder, &batch, &options, |chunk: &Chunk| {
            let weights = vec![1.0_f32 / total as f32; chunk.logprobs.numel()];
            let input = LossInput {
                batch: &batch,
                start: chunk.start,
                logprobs: chunk.logprobs,
                entropy: chunk.entropy,
                weights: &Tensor::from_slice(&weights),
            };
            policy_loss.loss(&input, &mut tally)
        });
        loss += batch_loss;
        let expected = batch.gather(|index| {
            let values: Vec<f32> = list(&cases[index]["logprobs"]);
            values.leak()
        });
        for (found, expected) in scores.logprobs.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        let again = score(&decoder, &batch, &options);
        for (first, second) in again.logprobs.iter().zip(&scores.logprobs) {
            assert!((first - second).abs() < 1e-5);
        }
    }
    assert_measured(&tally, cases);
    (loss, gradients(&decoder))
}

/// The divergences that were measured on the way, against the golden log-probabilities. For tokens that π drew, k3 is
/// unbiased for KL(π ‖ π_ref); those here were drawn by π_old, which makes it ρ − 1 − log ρ for KL(π_old ‖ π).
fn assert_measured(tally: &TokenTally, cases: &[Value]) {
    let (mut to_old, mut to_reference, mut tokens) = (0.0, 0.0, 0.0);
    for case in cases {
        let of = |name: &str| list::<f64>(&case[name]);
        for ((ours, old), reference) in of("logprobs").into_iter().zip(of("old")).zip(of("reference")) {
            let (log_ratio, log_reference_ratio) = (ours - old, reference - ours);
            to_old += log_ratio.exp() - 1.0 - log_ratio;
            to_reference += log_reference_ratio.exp() - 1.0 - log_reference_ratio;
            tokens += 1.0;
        }
    }
    let found = (tally.ratio_metrics().kl_to_old, tally.kl());
    assert!((found.0 - to_old / tokens).abs() < 1e-4, "{found:?}");
    assert!((found.1 - to_reference / tokens).abs() < 1e-4, "{found:?}");
}

fn golden_gradients() -> HashMap<String, Tensor> {
    Tensor::read_safetensors(folder().join("gradients.safetensors")).unwrap().into_iter().collect()
}

#[track_caller]
fn assert_same_gradient(name: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!(found.size(), expected.size(), "{name}");
    let difference = (found - expected).abs().max().double_value(&[]);
    let scale = expected.abs().max().double_value(&[]).max(1e-3);
    assert!(difference < 2e-4 * scale, "{name}: off by {difference} at a scale of {scale}");
}

#[test]
fn the_loss_and_every_gradient_equal_those_of_transformers() {
    let expected = golden_gradients();
    for (checkpointing, logit_rows, tokens) in
        [(false, 100, 100), (true, 100, 100), (false, 3, 100), (true, 2, 1), (false, 1, 1)]
    {
        let cut = Cut { checkpointing, logit_rows, tokens, trainable: Trainable::All };
        let (loss, found) = run_case(&cut);
        assert!((loss - case()["loss"].as_f64().unwrap()).abs() < 1e-5, "{loss}");
        assert_eq!(found.len(), expected.len());
        for (name, gradient) in &found {
            assert_same_gradient(name, gradient, &expected[name]);
        }
    }
}

#[test]
fn training_only_the_upper_layers_gives_them_the_same_gradient() {
    let expected = golden_gradients();
    for checkpointing in [false, true] {
        for layers in [1, 2] {
            let trainable = Trainable::Upper(layers);
            let (_, found) = run_case(&Cut { checkpointing, logit_rows: 4, tokens: 100, trainable });
            assert_eq!(found.len(), layers * 9 + 1);
            for (name, gradient) in &found {
                assert_same_gradient(name, gradient, &expected[name]);
            }
        }
    }
}

/// Gradients of the plain negative log-likelihood of one trace.
fn likelihood_gradients(
    decoder: &Decoder,
    sequences: &[Sequence],
    checkpointing: bool,
) -> HashMap<String, Tensor> {
    for (_, mut parameter) in decoder.trainable_parameters() {
        parameter.zero_grad();
    }
    let options = PassOptions {
        activation_checkpointing: checkpointing,
        logit_rows: 4,
        temperature: 1.0,
        entropy_gradient: false,
    };
    for batch in pack(sequences, &[0], &Packing { tokens: 100, padding: 0.5 }) {
        forward_backward(decoder, &batch, &options, |chunk| -chunk.logprobs.sum(Kind::Float));
    }
    gradients(decoder).into_iter().map(|(name, gradient)| (name, gradient.copy())).collect()
}

#[test]
fn observation_tokens_get_exactly_no_gradient() {
    let mut decoder = Decoder::random(tiny_config(false), 8, LoadOptions::default()).unwrap();
    decoder.set_trainable(Trainable::All).unwrap();
    let expert = expert_traces(1).remove(0);
    let sequences = Sequence::of_trace(&expert, 0).unwrap();
    let ours = likelihood_gradients(&decoder, &sequences, false);

    // The same loss written over the logits of every position, with weight 0 where the environment wrote.
    let segment = &expert.segments[0];
    let ids: Vec<i64> =
        segment.prompt_ids.iter().chain(&segment.response_ids).map(|&id| i64::from(id)).collect();
    let time = ids.len() as i64;
    let mut weights = vec![0.0_f32; ids.len()];
    for (index, &drawn) in segment.loss_mask.iter().enumerate() {
        weights[segment.prompt_ids.len() + index - 1] = f32::from(u8::from(drawn));
    }
    for (_, mut parameter) in decoder.trainable_parameters() {
        parameter.zero_grad();
    }
    let hidden = decoder.hidden_states(&Tensor::from_slice(&ids).unsqueeze(0)).squeeze_dim(0);
    let logits = decoder.logits(&hidden);
    let leaf = logits.detach().set_requires_grad(true);
    let mut targets = ids[1..].to_vec();
    targets.push(0);
    let picked =
        leaf.log_softmax(-1, Kind::Float).gather(1, &Tensor::from_slice(&targets).unsqueeze(1), false);
    (-(picked.squeeze_dim(1) * Tensor::from_slice(&weights)).sum(Kind::Float)).backward();
    let gradient = leaf.grad();
    for row in 0..time {
        let largest = gradient.get(row).abs().max().double_value(&[]);
        assert_eq!(largest == 0.0, weights[row as usize] == 0.0, "row {row} has gradient {largest}");
    }
    (logits * gradient).sum(Kind::Float).backward();
    for (name, expected) in gradients(&decoder) {
        assert_same_gradient(&name, &ours[&name], &expected);
    }

    // Nothing behind the last drawn token has any influence, to the last bit.
    let mut longer = expert.clone();
    longer.segments[0].push_observed(&[5, 6, 5, 6]);
    longer.usage.observed_tokens += 4;
    let same = likelihood_gradients(&decoder, &Sequence::of_trace(&longer, 0).unwrap(), false);
    for (name, gradient) in &same {
        assert_eq!(gradient, &ours[name], "{name}");
    }

    // A segment of observations alone has nothing to learn from.
    let mut observed = Segment::new(vec![1, 2], 0);
    observed.push_observed(&[3, 4]);
    assert_eq!(Sequence::of_trace(&trace(&task(0), 0, observed, 1.0), 0).unwrap(), []);
}

#[test]
fn checkpointing_activations_gives_the_same_gradient() {
    let mut decoder = Decoder::random(tiny_config(true), 8, LoadOptions::default()).unwrap();
    decoder.set_trainable(Trainable::All).unwrap();
    let sequences = Sequence::of_trace(&expert_traces(3)[2], 0).unwrap();
    let plain = likelihood_gradients(&decoder, &sequences, false);
    let checkpointed = likelihood_gradients(&decoder, &sequences, true);
    for (name, gradient) in &plain {
        assert_same_gradient(name, &checkpointed[name], gradient);
    }
}
