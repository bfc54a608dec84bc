//! AdamW with decoupled weight decay, clipping by the global norm, and a guard against non-finite gradients.
//!
//! Equal to `torch.optim.AdamW` (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2), for each element:
//!
//! ```text
//! p ← p (1 − lr λ)
//! m ← β₁ m + (1 − β₁) g            v ← β₂ v + (1 − β₂) g²
//! p ← p − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
//! ```
//!
//! Parameters, gradients and moments are f32. A step walks over every parameter in slices that stay in the cache,
//! since on a CPU the update is bound by memory, not by arithmetic.

use std::path::Path;

use tch::{Device, Kind, Tensor};

/// Elements of a slice of the update on a CPU: four arrays of this many f32 are 4 MiB.
const CPU_SLICE: i64 = 1 << 18;

/// Constants of the optimiser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// ε of the denominator.
    pub epsilon: f64,
    /// λ, the decoupled weight decay.
    pub weight_decay: f64,
    /// Leave parameters of fewer than two dimensions (norms, biases) undecayed.
    pub decay_matrices_only: bool,
    /// Largest global norm of the gradient; `None` does not clip.
    pub max_gradient_norm: Option<f64>,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            decay_matrices_only: true,
            max_gradient_norm: Some(1.0),
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Global L2 norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// `false` when the gradient was not finite: nothing was changed.
    pub applied: bool,
}

/// Why the optimiser's state could not be saved, loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    /// libtorch refused an operation.
    #[error("libtorch failed in the optimiser: {0}")]
    Torch(#[from] tch::TchError),
    /// The file cannot be read or written.
    #[error("cannot access the optimiser state {path}: {reason}")]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What was seen.
        reason: String,
    },
    /// The state belongs to other parameters.
    #[error("the optimiser state does not fit the model: {0}")]
    Mismatch(String),
}

struct Slot {
    name: String,
    parameter: Tensor,
    first_moment: Tensor,
    second_moment: Tensor,
}

/// The optimiser over a fixed, ordered list of parameters.
pub struct AdamW {
    options: AdamWOptions,
    slots: Vec<Slot>,
    updates: u64,
}

impl AdamW {
    /// An optimiser of `parameters` (name, f32 leaf), in this order, with zero moments.
    ///
    /// The tensors share storage with the model's, so a step changes the model.
    pub fn new(parameters: Vec<(String, Tensor)>, options: AdamWOptions) -> Result<Self, OptimizerError> {
        let mut slots = Vec::with_capacity(parameters.len());
        for (name, parameter) in parameters {
            if parameter.kind() != Kind::Float || !parameter.is_contiguous() {
                return Err(OptimizerError::Mismatch(format!(
                    "{name} must be a contiguous f32 tensor, but is {:?}",
                    parameter.kind()
                )));
            }
            let elements = [parameter.numel() as i64];
            let kind = (Kind::Float, parameter.device());
            slots.push(Slot {
                name,
                first_moment: Tensor::f_zeros(elements, kind)?,
                second_moment: Tensor::f_zeros(elements, kind)?,
                parameter,
            });
        }
        Ok(Self { options, slots, updates: 0 })
    }

    /// Updates applied so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// Number of elements that are trained.
    pub fn elements(&self) -> usize {
        self.slots.iter().map(|slot| slot.parameter.numel()).sum()
    }

    /// Names of the parameters, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.name.as_str())
    }

    /// Sets every gradient to zero, keeping its memory.
    pub fn zero_gradients(&mut self) {
        for slot in &mut self.slots {
            slot.parameter.zero_grad();
        }
    }

    /// Global L2 norm of the gradients, in f64 over the norms of the parameters; parameters without a gradient
    /// count as zero.
    pub fn gradient_norm(&self) -> Result<f64, OptimizerError> {
        let mut squares = 0.0_f64;
        for slot in &self.slots {
            let gradient = slot.parameter.grad();
            if gradient.defined() {
                squares += gradient.f_norm()?.f_double_value(&[])?.powi(2);
            }
        }
        Ok(squares.sqrt())
    }

    /// One update with the gradients at hand, clipped to the maximal norm. A gradient that is not finite leaves
    /// everything as it is, and the answer says so.
    pub fn step(&mut self, learning_rate: f64) -> Result<StepOutcome, OptimizerError> {
        let _no_gradient = tch::no_grad_guard();
        let gradient_norm = self.gradient_norm()?;
        if !gradient_norm.is_finite() {
            return Ok(StepOutcome { gradient_norm, applied: false });
        }
        // The divisor's 1e-6 is that of torch.nn.utils.clip_grad_norm_.
        let scale = match self.options.max_gradient_norm {
            Some(bound) => (bound / (gradient_norm + 1e-6)).min(1.0),
            None => 1.0,
        };
        self.updates += 1;
        let exponent = i32::try_from(self.updates).unwrap_or(i32::MAX);
        let correction1 = 1.0 - self.options.beta1.powi(exponent);
        let correction2 = (1.0 - self.options.beta2.powi(exponent)).sqrt();
        let update = Update {
            options: self.options,
            scale,
            learning_rate,
            step_size: learning_rate / correction1,
            correction2,
        };
        for slot in &mut self.slots {
            update.apply(slot)?;
        }
        Ok(StepOutcome { gradient_norm, applied: true })
    }

    /// Writes the moments and the number of updates as safetensors: `m.NAME`, `v.NAME` (f32, flat) and the
    /// metadata `updates`. The file is written under its final name: callers put it into a folder of their own
    /// that is renamed when whole.
    pub fn save(&self, path: &Path) -> Result<(), OptimizerError> {
        let failed = |reason: String| OptimizerError::File { path: path.to_owned(), reason };
        let mut buffers = Vec::with_capacity(self.slots.len() * 2);
        for slot in &self.slots {
            for (prefix, moment) in [("m", &slot.first_moment), ("v", &slot.second_moment)] {
                buffers.push((format!("{prefix}.{}", slot.name), f32_bytes(moment)?));
            }
        }
        let mut views = Vec::with_capacity(buffers.len());
        for (name, bytes) in &buffers {
            let shape = vec![bytes.len() / 4];
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape, bytes)
                .map_err(|error| failed(error.to_string()))?;
            views.push((name.as_str(), view));
        }
        let metadata = std::collections::HashMap::from([("updates".to_owned(), self.updates.to_string())]);
        safetensors::serialize_to_file(views, Some(metadata), path).map_err(|error| failed(error.to_string()))
    }

    /// Replaces the state by one that [`save`](Self::save) wrote for the same parameters.
    pub fn load(&mut self, path: &Path) -> Result<(), OptimizerError> {
        let failed = |reason: String| OptimizerError::File { path: path.to_owned(), reason };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        let (_, header) =
            safetensors::SafeTensors::read_metadata(&bytes).map_err(|error| failed(error.to_string()))?;
        let updates = header
            .metadata()
            .as_ref()
            .and_then(|metadata| metadata.get("updates"))
            .and_then(|updates| updates.parse::<u64>().ok())
            .ok_or_else(|| failed("the header names no number of updates".into()))?;
        let file =
            safetensors::SafeTensors::deserialize(&bytes).map_err(|error| failed(error.to_string()))?;
        if file.len() != self.slots.len() * 2 {
            return Err(OptimizerError::Mismatch(format!(
                "{} holds {} tensors, expected {}",
                path.display(),
                file.len(),
                self.slots.len() * 2
            )));
        }
        for slot in &mut self.slots {
            for (prefix, moment) in [("m", &mut slot.first_moment), ("v", &mut slot.second_moment)] {
                let name = format!("{prefix}.{}", slot.name);
                let view = file.tensor(&name).map_err(|error| failed(format!("{name}: {error}")))?;
                if view.dtype() != safetensors::Dtype::F32 || view.data().len() != moment.numel() * 4 {
                    return Err(OptimizerError::Mismatch(format!(
                        "{name} has {} bytes of {:?}, expected {} of F32",
                        view.data().len(),
                        view.dtype(),
                        moment.numel() * 4
                    )));
                }
                let shape = [moment.numel() as i64];
                let loaded = Tensor::f_from_data_size(view.data(), &shape, Kind::Float)?;
                moment.f_copy_(&loaded)?;
            }
        }
        self.updates = updates;
        Ok(())
    }
}

struct Update {
    options: AdamWOptions,
    scale: f64,
    learning_rate: f64,
    step_size: f64,
    correction2: f64,
}

impl Update {
    fn apply(&self, slot: &mut Slot) -> Result<(), OptimizerError> {
        let gradient = slot.parameter.grad();
        if !gradient.defined() {
            return Ok(());
        }
        let gradient = gradient.f_contiguous()?.f_view([-1])?;
        let parameter = slot.parameter.detach().f_view([-1])?;
        let decayed = !self.options.decay_matrices_only || slot.parameter.dim() >= 2;
        let decay = if decayed { 1.0 - self.learning_rate * self.options.weight_decay } else { 1.0 };
        let elements = parameter.numel() as i64;
        let slice = if parameter.device() == Device::Cpu { CPU_SLICE } else { elements.max(1) };
        let mut start = 0;
        while start < elements {
            let length = slice.min(elements - start);
            let mut parameter = parameter.f_narrow(0, start, length)?;
            let gradient = gradient.f_narrow(0, start, length)?;
            let mut first = slot.first_moment.f_narrow(0, start, length)?;
            let mut second = slot.second_moment.f_narrow(0, start, length)?;
            let gradient = if self.scale < 1.0 { gradient.f_mul_scalar(self.scale)? } else { gradient };
            if decay != 1.0 {
                let _ = parameter.f_mul_scalar_(decay)?;
            }
            let _ = first.f_lerp_(&gradient, 1.0 - self.options.beta1)?;
            let _ = second.f_mul_scalar_(self.options.beta2)?;
            // `addcmul` and `addcdiv` have no factor in these bindings, so it is multiplied into one operand.
            let scaled = gradient.f_mul_scalar(1.0 - self.options.beta2)?;
            let _ = second.f_addcmul_(&gradient, &scaled)?;
            if self.step_size == 0.0 {
                start += length;
                continue;
            }
            let mut denominator = second.f_sqrt()?;
            let _ = denominator.f_mul_scalar_(-1.0 / (self.correction2 * self.step_size))?;
            let _ = denominator.f_sub_scalar_(self.options.epsilon / self.step_size)?;
            let _ = parameter.f_addcdiv_(&first, &denominator)?;
            start += length;
        }
        Ok(())
    }
}

/// The elements of a contiguous f32 tensor, little-endian.
fn f32_bytes(tensor: &Tensor) -> Result<Vec<u8>, OptimizerError> {
    let tensor = tensor.f_to_device(Device::Cpu)?.f_contiguous()?;
    let mut bytes = vec![0_u8; tensor.numel() * 4];
    tensor.f_copy_data_u8(&mut bytes, tensor.numel())?;
    Ok(bytes)
}
