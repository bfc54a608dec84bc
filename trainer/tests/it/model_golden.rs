//! The forward pass and its gradients against transformers (scripts/golden/model_tiny.py).

use drgym_trainer::model::{Decoder, LoadOptions, ModelConfig, Trainable};
use tch::{Device, Kind, Reduction, Tensor};

use super::model_support::{FAMILIES, data, difference, tensors, tiny};

/// Mean cross-entropy of the next tokens within each row's length, as the script computes it.
fn loss(decoder: &Decoder, ids: &Tensor, lengths: &Tensor) -> (Tensor, Tensor) {
    let time = ids.size()[1];
    let logits = {
        let hidden = decoder.hidden_states(ids);
        let size = hidden.size();
        decoder.logits(&hidden.reshape([-1, size[2]])).reshape([size[0], size[1], -1])
    };
    let real = Tensor::arange(time, (Kind::Int64, Device::Cpu)).unsqueeze(0).lt_tensor(&lengths.unsqueeze(1));
    let kept = real.narrow(1, 1, time - 1).reshape([-1]).nonzero().squeeze_dim(1);
    let vocabulary = logits.size()[2];
    let rows = logits.narrow(1, 0, time - 1).reshape([-1, vocabulary]).index_select(0, &kept);
    let targets = ids.narrow(1, 1, time - 1).reshape([-1]).index_select(0, &kept);
    let loss = rows.cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0);
    (logits.detach() * real.unsqueeze(2), loss)
}

#[test]
fn logits_loss_and_every_gradient_equal_those_of_transformers() {
    for family in FAMILIES {
        let golden = tensors(&data("model").join(family).join("golden.safetensors"));
        let mut decoder = tiny(family);
        decoder.set_trainable(Trainable::All).expect("all can be trained");
        let (logits, loss) = loss(&decoder, &golden["ids"], &golden["lengths"]);
        assert!(difference(&logits, &golden["logits"]) < 2e-4, "{family}: logits");
        assert!(difference(&loss.reshape([1]), &golden["loss"]) < 2e-5, "{family}: loss");
        loss.backward();
        let expected = golden.keys().filter(|name| name.starts_with("grad.")).count();
        assert_eq!(decoder.parameters().len(), expected, "{family}");
        for (name, parameter) in decoder.parameters().iter() {
            let expected = &golden[&format!("grad.{name}")];
            let scale = expected.abs().max().double_value(&[]).max(1e-3);
            let found = difference(&parameter.grad(), expected);
            assert!(found < 2e-4 * scale, "{family}: the gradient of {name} is off by {found} of {scale}");
        }
    }
}

#[test]
fn layers_called_one_by_one_give_the_hidden_states() {
    let decoder = tiny("llama");
    let ids = Tensor::from_slice(&[5i64, 6, 7, 8, 9, 10]).view([2, 3]);
    let mut hidden = decoder.embed(&ids);
    for index in 0..decoder.layers() {
        hidden = decoder.layer(index, &hidden);
    }
    assert_eq!(difference(&decoder.final_norm(&hidden), &decoder.hidden_states(&ids)), 0.0);
}

#[test]
fn bfloat16_compute_stays_near_f32_and_gives_f32_gradients_to_f32_masters() {
    let folder = data("model/llama");
    let options = LoadOptions { compute: Kind::BFloat16, ..LoadOptions::default() };
    let mut decoder = Decoder::load(&folder, options).expect("the tiny model loads");
    decoder.set_trainable(Trainable::Upper(1)).expect("one layer can be trained");
    let golden = tensors(&folder.join("golden.safetensors"));
    let (_, loss) = loss(&decoder, &golden["ids"], &golden["lengths"]);
    assert!(difference(&loss.reshape([1]), &golden["loss"]) < 0.05);
    loss.backward();
    for (name, parameter) in decoder.parameters().iter() {
        assert_eq!(parameter.kind(), Kind::Float, "{name}");
        let trained = name.starts_with("model.layers.1.") || name == "model.norm.weight";
        assert_eq!(parameter.requires_grad(), trained, "{name}");
        if trained {
            let expected = &golden[&format!("grad.{name}")];
            let scale = expected.abs().max().double_value(&[]);
            assert_eq!(parameter.grad().kind(), Kind::Float, "{name}");
            assert!(difference(&parameter.grad(), expected) < 0.1 * scale, "{name}");
        }
    }
}

#[test]
fn random_weights_depend_on_the_seed_only() {
    let config = ModelConfig::read(&data("model/qwen2/config.json")).expect("the config is whole");
    let make = |seed| Decoder::random(config.clone(), seed, LoadOptions::default()).expect("it can be made");
    let (first, same, other) = (make(1), make(1), make(2));
    let name = "model.layers.1.mlp.up_proj.weight";
    let weight = |decoder: &Decoder| decoder.parameters().get(name).expect("it is there").copy();
    assert_eq!(difference(&weight(&first), &weight(&same)), 0.0);
    assert!(difference(&weight(&first), &weight(&other)) > 0.01);
    let deviation = weight(&first).std(true).double_value(&[]);
    assert!((deviation - 0.02).abs() < 0.003, "{deviation}");
}

#[test]
fn an_update_of_a_master_is_seen_by_neighbours_in_storage_only_through_its_own_rows() {
    let decoder = tiny("llama");
    let name = |part: &str| format!("model.layers.0.self_attn.{part}_proj.weight");
    let get = |part: &str| decoder.parameters().get(&name(part)).expect("it is there");
    let (query, value) = (get("q").copy(), get("v").copy());
    let _ = tch::no_grad(|| get("k").shallow_clone().fill_(7.0));
    assert_eq!(difference(get("q"), &query), 0.0);
    assert_eq!(difference(get("v"), &value), 0.0);
    assert_eq!(get("k").min().double_value(&[]), 7.0);
}

#[test]
fn too_many_upper_layers_are_refused() {
    let error = tiny("llama").set_trainable(Trainable::Upper(3)).expect_err("there are two layers");
    assert_eq!(error.to_string(), "3 trainable upper layers were asked for; the model has 2 layers");
}
