//! What supervised training and GRPO share: a model, its optimiser, guarded updates, and their checkpoint.

use std::path::Path;

use tch::{Kind, Tensor};

use crate::algorithm::aggregate::{Aggregation, token_weights};
use crate::batch::{MicroBatch, Sequence, pack};
use crate::checkpoint::{ADAPTER, OPTIMIZER};
use crate::config::{Dtype, MicroBatchConfig, ModelOptions, OptimizerConfig, TrainablePart};
use crate::device::device;
use crate::error::TrainError;
use crate::forward_backward::{Chunk, PassOptions, TokenScores, forward_backward};
use crate::model::{Decoder, LoadOptions, Lora, LoraConfig, ModelError, Trainable};
use crate::optimizer::AdamW;

/// The optimiser of a decoder. Lives beside the decoder on the model thread.
pub struct Learner {
    optimizer: AdamW,
    model: ModelOptions,
    merge_adapter: bool,
}

/// What an update did.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// Sum of the weighted token losses.
    pub loss: f64,
    /// Global gradient norm before clipping.
    pub gradient_norm: f64,
    /// Tokens learnt from.
    pub tokens: usize,
    /// Tokens that the model read, padding not counted.
    pub read_tokens: usize,
    /// Mean entropy over the tokens learnt from.
    pub entropy: f64,
    /// Why nothing was changed, if so: what was not finite, and the episodes where.
    pub skipped: Option<(String, Vec<usize>)>,
}

/// The tokens of a chunk of the loss, and where they come from.
pub struct LossInput<'a> {
    /// The micro-batch.
    pub batch: &'a MicroBatch,
    /// Number of the chunk's first token within the micro-batch.
    pub start: usize,
    /// Log-probabilities with gradient, `[tokens]`.
    pub logprobs: &'a Tensor,
    /// Entropies, `[tokens]`.
    pub entropy: &'a Tensor,
    /// Weights of the aggregation, `[tokens]`; those of a whole update sum to 1.
    pub weights: &'a Tensor,
}

impl LossInput<'_> {
    /// The chunk's part of values that were laid out for the whole micro-batch, on the device of the loss.
    pub fn part(&self, values: &[f32]) -> Tensor {
        let length = self.logprobs.numel();
        Tensor::from_slice(&values[self.start..self.start + length]).to_device(self.logprobs.device())
    }
}

impl Learner {
    /// Loads the model of a run, at its start or, given a checkpoint's folder, where that left it.
    ///
    /// `seed` decides the first values of an adapter.
    pub fn load(
        model: &ModelOptions,
        optimizer: &OptimizerConfig,
        merge_adapter: bool,
        seed: u64,
        checkpoint: Option<&Path>,
    ) -> Result<(Decoder, Self), TrainError> {
        let mut decoder = Decoder::load(&model.path, load_options(model)?)?;
        match model.trainable {
            TrainablePart::All | TrainablePart::Upper(_) => {
                if let Some(folder) = checkpoint {
                    copy_weights(&decoder, folder)?;
                }
                decoder.set_trainable(match model.trainable {
                    TrainablePart::Upper(layers) => Trainable::Upper(layers),
                    _ => Trainable::All,
                })?;
            }
            TrainablePart::Lora => {
                let lora = match checkpoint {
                    Some(folder) => Lora::load(&folder.join(ADAPTER))?,
                    None => Lora::new(decoder.config(), lora_config(model), seed)?,
                };
                decoder.attach_lora(lora)?;
            }
        }
        let mut optimizer = AdamW::new(decoder.trainable_parameters(), optimizer.adamw())?;
        if let Some(folder) = checkpoint {
            optimizer.load(&folder.join(OPTIMIZER))?;
        }
        Ok((decoder, Self { optimizer, model: model.clone(), merge_adapter }))
    }

    /// Numbers that are trained.
    pub fn trained_elements(&self) -> usize {
        self.optimizer.elements()
    }

    /// Updates applied so far.
    pub fn updates(&self) -> u64 {
        self.optimizer.updates()
    }

    /// One update on the sequences numbered in `members`, none of which is without tokens to learn from.
    ///
    /// `loss` gives the weighted sum over a chunk's tokens; `seen` is told the scores of every micro-batch. A loss
    /// or gradient that is not finite leaves the model as it was.
    pub fn update(
        &mut self,
        decoder: &mut Decoder,
        sequences: &[Sequence],
        members: &[usize],
        options: &UpdateOptions,
        mut loss: impl FnMut(&LossInput) -> Tensor,
        mut seen: impl FnMut(&MicroBatch, &TokenScores),
    ) -> Result<Update, TrainError> {
        let lengths: Vec<usize> = members.iter().map(|&index| sequences[index].positions.len()).collect();
        let episodes: Vec<usize> = members.iter().map(|&index| sequences[index].episode).collect();
        let mut weight_of = vec![0.0_f32; sequences.len()];
        for (&index, weight) in members.iter().zip(token_weights(&lengths, &episodes, options.aggregation)) {
            weight_of[index] = weight as f32;
        }
        self.optimizer.zero_gradients();
        let mut update = Update {
            loss: 0.0,
            gradient_norm: 0.0,
            tokens: lengths.iter().sum(),
            read_tokens: members.iter().map(|&index| sequences[index].ids.len() - 1).sum(),
            entropy: 0.0,
            skipped: None,
        };
        for batch in pack(sequences, members, &options.micro_batch.packing()) {
            let weights = batch.spread(sequences, |index| weight_of[index]);
            let mut blame = Vec::new();
            let (batch_loss, scores) = forward_backward(decoder, &batch, &options.pass, |chunk: &Chunk| {
                let length = chunk.logprobs.numel();
                let weights = Tensor::from_slice(&weights[chunk.start..chunk.start + length])
                    .to_device(chunk.logprobs.device());
                loss(&LossInput {
                    batch: &batch,
                    start: chunk.start,
                    logprobs: chunk.logprobs,
                    entropy: chunk.entropy,
                    weights: &weights,
                })
            });
            update.loss += batch_loss;
            update.entropy += scores.entropy.iter().map(|&entropy| f64::from(entropy)).sum::<f64>();
            let owners = batch.spread(sequences, |index| sequences[index].episode);
            for (logprob, episode) in scores.logprobs.iter().zip(owners) {
                if !logprob.is_finite() && blame.last() != Some(&episode) {
                    blame.push(episode);
                }
            }
            if !blame.is_empty() || !batch_loss.is_finite() {
                let guilty = if blame.is_empty() { batch_episodes(&batch, sequences) } else { blame };
                let (_, found) =
                    update.skipped.get_or_insert_with(|| ("the loss is not finite".to_owned(), Vec::new()));
                found.extend(guilty);
            }
            seen(&batch, &scores);
        }
        update.entropy /= update.tokens.max(1) as f64;
        if update.skipped.is_some() {
            update.gradient_norm = self.optimizer.gradient_norm()?;
            return Ok(update);
        }
        let outcome = self.optimizer.step(options.learning_rate)?;
        update.gradient_norm = outcome.gradient_norm;
        if outcome.applied {
            decoder.refresh_compute_copies();
        } else {
            update.skipped = Some(("the gradient is not finite".into(), episodes));
        }
        Ok(update)
    }

    /// Puts the model's files and the optimiser's state into a new folder, the part of a checkpoint that holds
    /// tensors.
    pub fn save(&self, decoder: &Decoder, folder: &Path) -> Result<(), TrainError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| TrainError::Io { path, source }
        };
        match decoder.lora() {
            None => decoder.save(folder)?,
            Some(lora) if self.merge_adapter => {
                // Merging and unmerging in place would not give the same bits back, so a fresh base is merged.
                let mut merged = Decoder::load(&self.model.path, LoadOptions::default())?;
                let staging =
                    tempfile::tempdir_in(folder.parent().unwrap_or(Path::new("."))).map_err(io(folder))?;
                let adapter = staging.path().join(ADAPTER);
                lora.save(&adapter, &self.model.path.to_string_lossy())?;
                merged.attach_lora(Lora::load(&adapter)?)?;
                merged.merge_lora()?;
                merged.save(folder)?;
                std::fs::rename(&adapter, folder.join(ADAPTER)).map_err(io(&adapter))?;
            }
            Some(lora) => {
                std::fs::create_dir_all(folder).map_err(io(folder))?;
                lora.save(&folder.join(ADAPTER), &self.model.path.to_string_lossy())?;
            }
        }
        let path = folder.join(OPTIMIZER);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(io(parent))?;
        self.optimizer.save(&path)?;
        Ok(())
    }
}

/// How an update is made.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateOptions {
    /// Learning rate.
    pub learning_rate: f64,
    /// How token losses become one number.
    pub aggregation: Aggregation,
    /// How sequences are packed.
    pub micro_batch: MicroBatchConfig,
    /// How a micro-batch is run.
    pub pass: PassOptions,
}

/// How the model of a run is loaded.
pub fn load_options(model: &ModelOptions) -> Result<LoadOptions, TrainError> {
    let compute = match model.dtype {
        Dtype::F32 => Kind::Float,
        Dtype::Bf16 => Kind::BFloat16,
    };
    Ok(LoadOptions { device: device(&model.device)?, compute })
}

/// Threads of libtorch for a run: as configured, or all cores.
pub fn threads(model: &ModelOptions) -> usize {
    match model.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    }
}

fn lora_config(model: &ModelOptions) -> LoraConfig {
    LoraConfig { rank: model.lora.rank, alpha: model.lora.alpha, targets: model.lora.targets.clone() }
}

/// Overwrites a model's weights with those of a checkpoint. Loading the checkpoint itself would tie the model to a
/// folder that rotation may remove.
fn copy_weights(decoder: &Decoder, folder: &Path) -> Result<(), TrainError> {
    let _no_gradient = tch::no_grad_guard();
    let saved = Decoder::load(folder, LoadOptions::default())?;
    for (name, parameter) in decoder.parameters().iter() {
        let source = saved.parameters().get(name).filter(|source| source.size() == parameter.size());
        let source = source.ok_or_else(|| {
            ModelError::Request(format!(
                "{} holds no {name} of shape {:?}",
                folder.display(),
                parameter.size()
            ))
        })?;
        parameter.shallow_clone().f_copy_(source).map_err(ModelError::from)?;
    }
    Ok(())
}

fn batch_episodes(batch: &MicroBatch, sequences: &[Sequence]) -> Vec<usize> {
    batch.sequences.iter().map(|&index| sequences[index].episode).collect()
}
