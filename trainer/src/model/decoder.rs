//! A decoder: configuration, master parameters, adapter, compute copies.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rand::Rng;
use tch::{Device, Kind, Tensor};

use super::cached::ComputeCopies;
use super::error::TensorMismatch;
use super::forward::RotaryTable;
use super::{Lora, ModelConfig, ModelError, Parameters};

/// How to hold a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Where the tensors live.
    pub device: Device,
    /// What the forward pass computes in: `Float` or `BFloat16`. The master parameters are f32 in either case.
    pub compute: Kind,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { device: Device::Cpu, compute: Kind::Float }
    }
}

/// Which base parameters are trained. An attached adapter is always trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trainable {
    /// Every parameter.
    All,
    /// The uppermost layers, so many, and the final norm; neither embedding nor head.
    Upper(usize),
    /// None.
    None,
}

/// A decoder of the Llama family.
#[derive(Debug)]
pub struct Decoder {
    pub(super) config: ModelConfig,
    pub(super) parameters: Parameters,
    pub(super) options: LoadOptions,
    pub(super) lora: Option<Lora>,
    /// Folder whose tokenizer files a saved copy takes along.
    pub(super) source: Option<PathBuf>,
    pub(super) rotary: RefCell<RotaryTable>,
    pub(super) copies: Option<ComputeCopies>,
}

impl Decoder {
    /// Makes a decoder of tensors by Hugging Face name, which must be exactly those of
    /// [`ModelConfig::tensor_shapes`]. They are converted to f32 on the device.
    pub fn from_tensors(
        config: ModelConfig,
        mut tensors: HashMap<String, Tensor>,
        options: LoadOptions,
    ) -> Result<Self, ModelError> {
        check_options(options)?;
        let origin = PathBuf::from("the given tensors");
        check_shapes(&config, &origin, tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.size())))?;
        Self::build(config, options, |name| {
            tensors.remove(name).ok_or_else(|| ModelError::Request(format!("tensor {name} vanished")))
        })
    }

    /// A decoder with random weights, for tests and experiments: matrices normal with standard deviation 0.02 (as
    /// Llama's initialisation), norms 1, biases 0. The same seed gives the same weights.
    pub fn random(config: ModelConfig, seed: u64, options: LoadOptions) -> Result<Self, ModelError> {
        check_options(options)?;
        let shapes: HashMap<String, Vec<i64>> = config.tensor_shapes().into_iter().collect();
        Self::build(config, options, |name| {
            let shape = &shapes[name];
            if name.ends_with("norm.weight") {
                return Ok(Tensor::f_ones(shape, (Kind::Float, Device::Cpu))?);
            }
            if name.rsplit('.').next() == Some("bias") {
                return Ok(Tensor::f_zeros(shape, (Kind::Float, Device::Cpu))?);
            }
            let mut generator =
                drgym_env::seed::generator(drgym_env::seed::derive_seed(seed, "model-init", 0, name, 0));
            let count = shape.iter().product::<i64>() as usize;
            let values: Vec<f32> = (0..count).map(|_| 0.02 * standard_normal(&mut generator)).collect();
            Ok(Tensor::f_from_slice(&values)?.f_reshape(shape)?)
        })
    }

    /// Lays the tensors out (see [`ComputeCopies`] for why some share storage) and makes the decoder.
    ///
    /// `take` gives each tensor once, of the right shape and of any floating-point kind.
    pub(super) fn build(
        config: ModelConfig,
        options: LoadOptions,
        mut take: impl FnMut(&str) -> Result<Tensor, ModelError>,
    ) -> Result<Self, ModelError> {
        let _guard = tch::no_grad_guard();
        let mut parameters = Parameters::default();
        let shapes = config.tensor_shapes();
        let shape_of: HashMap<&str, &Vec<i64>> =
            shapes.iter().map(|(name, shape)| (name.as_str(), shape)).collect();
        let mut laid: HashMap<String, Tensor> = HashMap::new();
        for (name, shape) in &shapes {
            if !laid.contains_key(name) {
                let members =
                    shared_storage(name).filter(|members| shape_of.contains_key(members[0].as_str()));
                let members = members.unwrap_or_else(|| vec![name.clone()]);
                let rows: Vec<i64> = members.iter().map(|member| shape_of[member.as_str()][0]).collect();
                let mut whole_shape = shape.clone();
                whole_shape[0] = rows.iter().sum();
                let whole = Tensor::f_zeros(&whole_shape, (Kind::Float, options.device))?;
                let mut start = 0;
                for (member, rows) in members.into_iter().zip(rows) {
                    let mut view = whole.f_narrow(0, start, rows)?;
                    start += rows;
                    view.f_copy_(&take(&member)?)?;
                    laid.insert(member, view);
                }
            }
            if let Some(tensor) = laid.remove(name) {
                parameters.insert(name.clone(), tensor);
            }
        }
        Ok(Self {
            rotary: RefCell::new(RotaryTable::new(&config, options)),
            config,
            parameters,
            options,
            lora: None,
            source: None,
            copies: None,
        })
    }

    /// The shape of the model.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Where the tensors live.
    pub fn device(&self) -> Device {
        self.options.device
    }

    /// What the forward pass computes in.
    pub fn compute(&self) -> Kind {
        self.options.compute
    }

    /// The folder that the model was loaded from.
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.config.layers
    }

    /// The base parameters, f32 masters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Chooses which base parameters collect gradients, and drops gradients that were collected.
    pub fn set_trainable(&mut self, trainable: Trainable) -> Result<(), ModelError> {
        let layers = self.config.layers;
        let first = match trainable {
            Trainable::All | Trainable::None => 0,
            Trainable::Upper(count) if count >= 1 && count <= layers => layers - count,
            Trainable::Upper(count) => {
                return Err(ModelError::Request(format!(
                    "{count} trainable upper layers were asked for; the model has {layers} layers"
                )));
            }
        };
        for (name, tensor) in self.parameters.iter() {
            let wanted = match trainable {
                Trainable::All => true,
                Trainable::None => false,
                Trainable::Upper(_) => {
                    name == "model.norm.weight" || layer_of(name).is_some_and(|layer| layer >= first)
                }
            };
            let mut handle = tensor.shallow_clone();
            handle.zero_grad();
            let _ = handle.f_set_requires_grad(wanted)?;
        }
        Ok(())
    }

    /// Every tensor that collects gradients, base and adapter, by name, in a fixed order. The handles share storage
    /// with the model.
    pub fn trainable_parameters(&self) -> Vec<(String, Tensor)> {
        let mut found: Vec<(String, Tensor)> = self
            .parameters
            .iter()
            .filter(|(_, tensor)| tensor.requires_grad())
            .map(|(name, tensor)| (name.to_owned(), tensor.shallow_clone()))
            .collect();
        if let Some(lora) = &self.lora {
            found.extend(lora.tensors().map(|(name, tensor)| (name, tensor.shallow_clone())));
        }
        found
    }

    /// Attaches an adapter, after checking that it fits. Base parameters stop collecting gradients.
    pub fn attach_lora(&mut self, lora: Lora) -> Result<(), ModelError> {
        lora.check(&self.config)?;
        self.set_trainable(Trainable::None)?;
        self.lora = Some(lora.into_device(self.options.device)?);
        self.copies = None;
        Ok(())
    }

    /// Takes the adapter off, unmerged.
    pub fn detach_lora(&mut self) -> Option<Lora> {
        self.copies = None;
        self.lora.take()
    }

    /// The attached adapter.
    pub fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    /// Adds the adapter's product to the base weights and takes it off. True if there was one.
    pub fn merge_lora(&mut self) -> Result<bool, ModelError> {
        let Some(lora) = self.lora.take() else { return Ok(false) };
        let _guard = tch::no_grad_guard();
        for (module, pair) in lora.pairs() {
            let mut weight = self.parameters.expect(&format!("{module}.weight")).shallow_clone();
            let _ = weight.f_add_(&lora.delta(pair)?)?;
        }
        self.copies = None;
        Ok(true)
    }
}

/// The compute kinds that the forward pass is written for.
fn check_options(options: LoadOptions) -> Result<(), ModelError> {
    match options.compute {
        Kind::Float | Kind::BFloat16 => Ok(()),
        other => Err(ModelError::Request(format!("cannot compute in {other:?}; expected Float or BFloat16"))),
    }
}

/// Names every tensor that is missing, surplus or of another shape.
pub(crate) fn check_shapes<'a>(
    config: &ModelConfig,
    origin: &Path,
    found: impl Iterator<Item = (&'a str, Vec<i64>)>,
) -> Result<(), ModelError> {
    let mut found: HashMap<&str, Vec<i64>> = found.collect();
    let mut mismatch = TensorMismatch::default();
    for (name, expected) in config.tensor_shapes() {
        match found.remove(name.as_str()) {
            None => mismatch.missing.push(name),
            Some(shape) if shape != expected => mismatch.misshapen.push((name, expected, shape)),
            Some(_) => {}
        }
    }
    mismatch.surplus = found.into_keys().map(str::to_owned).collect();
    mismatch.surplus.sort();
    if mismatch.is_empty() {
        Ok(())
    } else {
        Err(ModelError::TensorMismatch { path: origin.to_owned(), mismatch: Box::new(mismatch) })
    }
}

/// The number in `model.layers.N.…`.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

/// The tensors that lie one after another in one storage with this one: `q, k, v` and `gate, up`.
fn shared_storage(name: &str) -> Option<Vec<String>> {
    for group in [&["q_proj", "k_proj", "v_proj"][..], &["gate_proj", "up_proj"][..]] {
        if let Some(member) = group.iter().find(|member| name.contains(&format!(".{member}."))) {
            return Some(group.iter().map(|other| name.replace(*member, other)).collect());
        }
    }
    None
}

/// One draw from the standard normal distribution (Box and Muller, 1958; the second value is dropped).
fn standard_normal(generator: &mut impl Rng) -> f32 {
    let radius: f64 = 1.0 - generator.random::<f64>();
    let angle: f64 = generator.random();
    ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
}
