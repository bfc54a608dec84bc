//! Low-rank adapters.

use drgym_trainer::model::{Lora, LoraConfig, ModelError, Trainable};
use tch::{Kind, Tensor};

use super::model_support::{difference, tiny};

fn config() -> LoraConfig {
    LoraConfig { rank: 3, alpha: 6.0, targets: vec!["q_proj".into(), "v_proj".into(), "down_proj".into()] }
}

fn ids() -> Tensor {
    Tensor::from_slice(&[3i64, 9, 27, 33, 5, 15, 45, 39]).view([2, 4])
}

/// Gives `B` values other than zero, so that the adapter does something.
fn fill(lora: &Lora) {
    let _guard = tch::no_grad_guard();
    for (index, (_, pair)) in lora.pairs().enumerate() {
        let count = pair.b.numel() as i64;
        let values = Tensor::arange(count, (Kind::Float, tch::Device::Cpu)).sin() * 0.1 * (index + 1) as f64;
        pair.b.shallow_clone().copy_(&values.view_as(&pair.b));
    }
}

#[test]
fn a_fresh_adapter_changes_nothing_and_alone_collects_gradients() {
    let mut decoder = tiny("llama");
    let before = decoder.hidden_states(&ids());
    decoder.set_trainable(Trainable::All).expect("all");
    let lora = Lora::new(decoder.config(), config(), 5).expect("it fits");
    let bound = 1.0 / (decoder.config().hidden_size as f64).sqrt();
    let a = &lora.pair("model.layers.0.self_attn.q_proj").expect("adapted").a;
    assert!(a.abs().max().double_value(&[]) <= bound && a.abs().max().double_value(&[]) > 0.8 * bound);
    decoder.attach_lora(lora).expect("it fits");
    assert_eq!(difference(&decoder.hidden_states(&ids()), &before), 0.0);
    let trained = decoder.trainable_parameters();
    assert_eq!(trained.len(), 2 * 3 * 2);
    assert_eq!(trained[0].0, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
    decoder.hidden_states(&ids()).square().sum(Kind::Float).backward();
    for (name, tensor) in &trained {
        let gradient = tensor.grad().abs().max().double_value(&[]);
        // With B at zero the gradient reaches B only.
        assert_eq!(gradient > 0.0, name.contains("lora_B"), "{name}: {gradient}");
    }
    assert!(decoder.parameters().iter().all(|(_, tensor)| !tensor.requires_grad()));
}

#[test]
fn the_adapter_adds_alpha_over_rank_times_b_a() {
    let mut decoder = tiny("llama");
    let lora = Lora::new(decoder.config(), config(), 5).expect("it fits");
    fill(&lora);
    let module = "model.layers.1.mlp.down_proj";
    let input = Tensor::arange(24, (Kind::Float, tch::Device::Cpu)).cos().view([1, 24]);
    let base = decoder.linear(module, &input);
    let pair = lora.pair(module).expect("adapted");
    let expected = base + input.matmul(&pair.a.tr()).matmul(&pair.b.tr()) * 2.0;
    decoder.attach_lora(lora).expect("it fits");
    assert!(difference(&decoder.linear(module, &input), &expected) < 1e-6);
}

#[test]
fn merging_gives_the_same_outputs_without_the_adapter() {
    let mut decoder = tiny("qwen2");
    let plain = decoder.hidden_states(&ids());
    let lora = Lora::new(decoder.config(), config(), 5).expect("it fits");
    fill(&lora);
    decoder.attach_lora(lora).expect("it fits");
    let adapted = decoder.hidden_states(&ids());
    assert!(difference(&adapted, &plain) > 0.05);
    let dir = tempfile::tempdir().expect("a folder");
    let refused = decoder.save(&dir.path().join("saved")).expect_err("an adapter is attached").to_string();
    assert!(refused.starts_with("an adapter is attached"), "{refused}");
    assert!(decoder.merge_lora().expect("merged"));
    assert!(decoder.lora().is_none());
    assert!(!decoder.merge_lora().expect("nothing to merge"));
    assert!(difference(&decoder.hidden_states(&ids()), &adapted) < 2e-5);
}

#[test]
fn a_saved_adapter_is_the_same_adapter() {
    let decoder = tiny("llama");
    let lora = Lora::new(decoder.config(), config(), 5).expect("it fits");
    fill(&lora);
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("adapter");
    lora.save(&place, "tiny").expect("saved");
    let again = Lora::load(&place).expect("loaded");
    assert_eq!(again.config(), lora.config());
    for ((name, left), (other, right)) in lora.tensors().zip(again.tensors()) {
        assert_eq!(name, other);
        assert_eq!(difference(left, right), 0.0, "{name}");
    }
    let mut decoder = decoder;
    decoder.attach_lora(again).expect("it fits");

    let path = place.join("adapter_config.json");
    let text = std::fs::read_to_string(&path).expect("read");
    std::fs::write(&path, text.replace("\"use_dora\": false", "\"use_dora\": true")).expect("written");
    assert!(matches!(Lora::load(&place), Err(ModelError::Unsupported { field, .. }) if field == "use_dora"));
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let mut decoder = tiny("llama");
    let wrong = |targets: &[&str], rank| LoraConfig {
        rank,
        alpha: 1.0,
        targets: targets.iter().map(|target| (*target).to_owned()).collect(),
    };
    for (config, part) in [
        (wrong(&[], 2), "no targets"),
        (wrong(&["lm_head"], 2), "unknown target \"lm_head\""),
        (wrong(&["q_proj"], 0), "the rank is 0"),
    ] {
        let error = Lora::new(decoder.config(), config, 0).expect_err("it does not fit").to_string();
        assert!(error.contains(part), "{error}");
    }
    let other = tiny("qwen3");
    let lora = Lora::new(other.config(), wrong(&["q_proj"], 2), 0).expect("it fits the other");
    let error = decoder.attach_lora(lora).expect_err("it does not fit").to_string();
    assert!(error.contains("expected A [2, 16] and B [16, 2], found A [2, 16] and B [32, 2]"), "{error}");
}
