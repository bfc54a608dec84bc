//! Low-rank adapters (Hu et al., 2021, "LoRA: Low-Rank Adaptation of Large Language Models").

use std::collections::HashMap;

use rand::Rng;
use tch::{Device, Kind, Tensor};

use super::{ModelConfig, ModelError};

/// The shape of an adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraConfig {
    /// Rank of the product.
    pub rank: usize,
    /// The product is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Last parts of the names of the adapted modules: `q_proj`, `v_proj`, ….
    pub targets: Vec<String>,
}

/// The two factors of one module.
#[derive(Debug)]
pub struct LoraPair {
    /// `[rank, in]`.
    pub a: Tensor,
    /// `[out, rank]`.
    pub b: Tensor,
}

/// An adapter: for each adapted module `W x` becomes `W x + alpha / rank · B A x`. The factors are f32 leaves that
/// collect gradients.
#[derive(Debug)]
pub struct Lora {
    pub(super) config: LoraConfig,
    /// Module name (`model.layers.0.self_attn.q_proj`) and factors, in the order of the forward pass.
    pub(super) entries: Vec<(String, LoraPair)>,
    pub(super) positions: HashMap<String, usize>,
}

impl Lora {
    /// A fresh adapter: `A` uniform as Kaiming's with a = √5, that is within `±1 / √in`; `B` zero, so that the model
    /// starts unchanged. The same seed gives the same factors.
    pub fn new(model: &ModelConfig, config: LoraConfig, seed: u64) -> Result<Self, ModelError> {
        if config.rank == 0 {
            return Err(ModelError::Adapter { reason: "the rank is 0".into() });
        }
        let mut entries = Vec::new();
        for (module, out, width) in adapted_modules(model, &config.targets)? {
            let seed = drgym_env::seed::derive_seed(seed, "lora-init", 0, &module, 0);
            let mut generator = drgym_env::seed::generator(seed);
            let bound = 1.0 / (width as f64).sqrt();
            let values: Vec<f32> = (0..config.rank * width as usize)
                .map(|_| ((generator.random::<f64>() * 2.0 - 1.0) * bound) as f32)
                .collect();
            let rank = config.rank as i64;
            let a = Tensor::f_from_slice(&values)?.f_reshape([rank, width])?;
            let b = Tensor::f_zeros([out, rank], (Kind::Float, Device::Cpu))?;
            entries.push((module, LoraPair { a, b }));
        }
        Self::from_entries(config, entries)
    }

    pub(super) fn from_entries(
        config: LoraConfig,
        mut entries: Vec<(String, LoraPair)>,
    ) -> Result<Self, ModelError> {
        for (_, pair) in &mut entries {
            pair.a = pair.a.f_set_requires_grad(true)?;
            pair.b = pair.b.f_set_requires_grad(true)?;
        }
        let positions = entries.iter().enumerate().map(|(index, (name, _))| (name.clone(), index)).collect();
        Ok(Self { config, entries, positions })
    }

    /// Rank, alpha and targets.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The factors of a module, if it is adapted.
    pub fn pair(&self, module: &str) -> Option<&LoraPair> {
        self.positions.get(module).map(|&index| &self.entries[index].1)
    }

    /// Every adapted module with its factors, in the order of the forward pass.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &LoraPair)> {
        self.entries.iter().map(|(module, pair)| (module.as_str(), pair))
    }

    /// Every factor under its name in a PEFT file, in a fixed order.
    pub fn tensors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        self.entries.iter().flat_map(|(module, pair)| {
            [
                (format!("base_model.model.{module}.lora_A.weight"), &pair.a),
                (format!("base_model.model.{module}.lora_B.weight"), &pair.b),
            ]
        })
    }

    /// `alpha / rank`.
    pub fn scale(&self) -> f64 {
        self.config.alpha / self.config.rank as f64
    }

    /// The low-rank term for an input `[…, in]` → `[…, out]`, in f32, differentiable.
    pub(super) fn apply(&self, pair: &LoraPair, input: &Tensor) -> Tensor {
        let narrow = input.to_kind(Kind::Float).linear(&pair.a, None::<&Tensor>);
        narrow.linear(&pair.b, None::<&Tensor>) * self.scale()
    }

    /// What merging adds to the base matrix, `[out, in]`.
    pub(super) fn delta(&self, pair: &LoraPair) -> Result<Tensor, ModelError> {
        Ok(pair.b.f_matmul(&pair.a)?.f_mul_scalar(self.scale())?.detach())
    }

    /// As [`delta`](Self::delta), where the shapes are known to fit.
    pub(super) fn delta_of(&self, pair: &LoraPair) -> Tensor {
        (pair.b.matmul(&pair.a) * self.scale()).detach()
    }

    /// Whether every module exists in the model and has the right shape.
    pub(super) fn check(&self, model: &ModelConfig) -> Result<(), ModelError> {
        let expected = adapted_modules(model, &self.config.targets)?;
        if expected.len() != self.entries.len() {
            return Err(ModelError::Adapter {
                reason: format!(
                    "the model has {} modules named {:?}, the adapter {}",
                    expected.len(),
                    self.config.targets,
                    self.entries.len()
                ),
            });
        }
        let rank = self.config.rank as i64;
        for (module, out, width) in expected {
            let Some(pair) = self.pair(&module) else {
                return Err(ModelError::Adapter { reason: format!("it has no factors for {module}") });
            };
            let (a, b) = (pair.a.size(), pair.b.size());
            if a != [rank, width] || b != [out, rank] {
                return Err(ModelError::Adapter {
                    reason: format!(
                        "{module}: expected A [{rank}, {width}] and B [{out}, {rank}], found A {a:?} and B {b:?}"
                    ),
                });
            }
        }
        Ok(())
    }

    pub(super) fn into_device(self, device: Device) -> Result<Self, ModelError> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for (module, pair) in self.entries {
            let a = pair.a.detach().f_to_device(device)?;
            let b = pair.b.detach().f_to_device(device)?;
            entries.push((module, LoraPair { a, b }));
        }
        Self::from_entries(self.config, entries)
    }
}

/// `(module, out, in)` of every matrix whose module name ends with one of the targets.
fn adapted_modules(model: &ModelConfig, targets: &[String]) -> Result<Vec<(String, i64, i64)>, ModelError> {
    const KNOWN: [&str; 7] = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    if targets.is_empty() {
        return Err(ModelError::Adapter { reason: format!("no targets; expected some of {KNOWN:?}") });
    }
    if let Some(unknown) = targets.iter().find(|target| !KNOWN.contains(&target.as_str())) {
        return Err(ModelError::Adapter {
            reason: format!("unknown target {unknown:?}; expected some of {KNOWN:?}"),
        });
    }
    let adapted =
        |module: &str| module.rsplit('.').next().is_some_and(|last| targets.iter().any(|t| t == last));
    Ok(model
        .tensor_shapes()
        .into_iter()
        .filter_map(|(name, shape)| {
            let module = name.strip_suffix(".weight")?;
            (shape.len() == 2 && adapted(module)).then(|| (module.to_owned(), shape[0], shape[1]))
        })
        .collect())
}
