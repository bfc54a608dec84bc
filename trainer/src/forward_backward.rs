//! One pass of a micro-batch through the model: log-probabilities of the tokens learnt from, and gradients.
//!
//! ```text
//! ids ─embed─▶ x₀ ─layers without gradient─▶ x_f ─trained layers─▶ x_L ─rows─▶ [tokens, h]
//!                                                                      in chunks: norm ─▶ head ─▶ log π, H ─▶ loss
//! ```
//!
//! Logits are computed only where a token is predicted, a chunk of rows at a time, and the gradient of a chunk is
//! taken at once: of the largest tensor, `[rows, vocabulary]`, one chunk exists at a time. Softmax and loss are f32.
//! Layers below the first trained one run once, without gradient.

use tch::Tensor;

use crate::algorithm::entropy;
use crate::batch::MicroBatch;
use crate::model::Decoder;

/// How a pass is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassOptions {
    /// Keep the input of each layer only, and run the layer again in the backward pass.
    pub activation_checkpointing: bool,
    /// Rows of a chunk of logits.
    pub logit_rows: usize,
    /// Logits are divided by this before the softmax, as the sampler did.
    pub temperature: f64,
    /// Whether the loss needs the gradient of the entropy.
    pub entropy_gradient: bool,
}

/// What a pass found for each token that is predicted, in the order of the micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenScores {
    /// Log-probability of the token, `[tokens]`.
    pub logprobs: Vec<f32>,
    /// Entropy of the distribution that it is drawn from in nats, `[tokens]`.
    pub entropy: Vec<f32>,
}

/// The tokens of a chunk, as the loss sees them.
pub struct Chunk<'a> {
    /// Number of the chunk's first token within the micro-batch.
    pub start: usize,
    /// Log-probabilities, `[tokens of the chunk]`, f32, with gradient.
    pub logprobs: &'a Tensor,
    /// Entropies, `[tokens of the chunk]`, f32, with gradient if [`PassOptions::entropy_gradient`].
    pub entropy: &'a Tensor,
}

/// Scores the tokens of a micro-batch without gradients.
pub fn score(decoder: &Decoder, batch: &MicroBatch, options: &PassOptions) -> TokenScores {
    let _no_gradient = tch::no_grad_guard();
    let mut hidden = decoder.embed(&ids_of(decoder, batch));
    for layer in 0..decoder.layers() {
        hidden = decoder.layer(layer, &hidden);
    }
    let rows = rows_of(&hidden, batch);
    let mut scores = TokenScores::default();
    for (start, length) in chunks(batch, options) {
        let head = Head::run(decoder, &rows, batch, start, length, options);
        head.push_to(&mut scores);
    }
    scores
}

/// Runs a micro-batch forward and backward; gradients are added to those of the trained parameters.
///
/// `loss` gives the loss of a chunk, a scalar that is already weighted so that the losses of all chunks of all
/// micro-batches of an update add up to the update's loss. The answer holds that sum for this micro-batch.
pub fn forward_backward(
    decoder: &Decoder,
    batch: &MicroBatch,
    options: &PassOptions,
    mut loss: impl FnMut(&Chunk) -> Tensor,
) -> (f64, TokenScores) {
    let trained = TrainedPart::of(decoder);
    let ids = ids_of(decoder, batch);
    let mut hidden = tch::no_grad(|| {
        let mut hidden = decoder.embed(&ids);
        for layer in 0..trained.first_layer {
            hidden = decoder.layer(layer, &hidden);
        }
        hidden
    });

    // Forward through the trained layers: keeping the whole graph, or only each layer's input.
    let bottom = leaf(&hidden, trained.embedding);
    let mut inputs = Vec::new();
    if options.activation_checkpointing {
        hidden = tch::no_grad(|| {
            let mut hidden = hidden.shallow_clone();
            for layer in trained.first_layer..decoder.layers() {
                inputs.push(hidden.shallow_clone());
                hidden = decoder.layer(layer, &hidden);
            }
            hidden
        });
    } else {
        hidden = tch::with_grad(|| {
            let mut hidden = bottom.shallow_clone();
            for layer in trained.first_layer..decoder.layers() {
                hidden = decoder.layer(layer, &hidden);
            }
            hidden
        });
    }

    // The head, chunk by chunk, down to the gradient of the rows.
    let rows = leaf(&tch::no_grad(|| rows_of(&hidden, batch)), true);
    let mut scores = TokenScores::default();
    let mut total = 0.0;
    for (start, length) in chunks(batch, options) {
        let chunk_loss = tch::with_grad(|| {
            let head = Head::run(decoder, &rows, batch, start, length, options);
            head.push_to(&mut scores);
            let loss = loss(&Chunk { start, logprobs: &head.logprobs, entropy: &head.entropy });
            loss.backward();
            loss
        });
        total += chunk_loss.double_value(&[]);
    }
    if trained.first_layer == decoder.layers() && !trained.embedding {
        return (total, scores);
    }
    let mut gradient = tch::no_grad(|| {
        let size = hidden.size();
        let width = size[2];
        let flat = Tensor::zeros([size[0] * size[1], width], (hidden.kind(), hidden.device()));
        let index = Tensor::from_slice(&batch.rows).to_device(hidden.device());
        flat.index_add(0, &index, &rows.grad()).view_(size)
    });

    // Backward through the layers.
    if options.activation_checkpointing {
        for layer in (trained.first_layer..decoder.layers()).rev() {
            let Some(input) = inputs.pop() else { unreachable!("one input was kept for each layer") };
            let wanted = layer > trained.first_layer || trained.embedding;
            let input = leaf(&input, wanted);
            tch::with_grad(|| pull_back(&decoder.layer(layer, &input), &gradient));
            if wanted {
                gradient = input.grad();
            }
        }
    } else {
        tch::with_grad(|| pull_back(&hidden, &gradient));
        gradient = bottom.grad();
    }
    if trained.embedding {
        tch::with_grad(|| pull_back(&decoder.embed(&ids), &gradient));
    }
    (total, scores)
}

/// Which part of the model collects gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TrainedPart {
    /// The lowest layer with a trained parameter; the number of layers if none has one.
    first_layer: usize,
    /// Whether the embedding is trained, so that gradients must reach the bottom.
    embedding: bool,
}

impl TrainedPart {
    fn of(decoder: &Decoder) -> Self {
        let mut part = Self { first_layer: decoder.layers(), embedding: false };
        for (name, _) in decoder.trainable_parameters() {
            if let Some(layer) = layer_of(&name) {
                part.first_layer = part.first_layer.min(layer);
            } else if name.contains("embed_tokens") {
                part.embedding = true;
            }
        }
        if part.embedding {
            part.first_layer = 0;
        }
        part
    }
}

/// The number in `….layers.N.…`.
fn layer_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once("layers.")?;
    rest.split('.').next()?.parse().ok()
}

/// Log-probabilities and entropies of one chunk of rows.
struct Head {
    logprobs: Tensor,
    entropy: Tensor,
}

impl Head {
    fn run(
        decoder: &Decoder,
        rows: &Tensor,
        batch: &MicroBatch,
        start: usize,
        length: usize,
        options: &PassOptions,
    ) -> Self {
        let rows = rows.narrow(0, start as i64, length as i64);
        let mut logits = decoder.logits(&decoder.final_norm(&rows));
        if options.temperature != 1.0 {
            logits /= options.temperature;
        }
        let logsumexp = logits.logsumexp([-1_i64].as_slice(), false);
        let targets = Tensor::from_slice(&batch.targets[start..start + length]).to_device(logits.device());
        let logprobs = logits.gather(1, &targets.unsqueeze(1), false).squeeze_dim(1) - &logsumexp;
        let entropy = if options.entropy_gradient {
            entropy::from_logits(&logits, &logsumexp)
        } else {
            tch::no_grad(|| entropy::from_logits(&logits.detach(), &logsumexp.detach()))
        };
        Self { logprobs, entropy }
    }

    fn push_to(&self, scores: &mut TokenScores) {
        append(&self.logprobs, &mut scores.logprobs);
        append(&self.entropy, &mut scores.entropy);
    }
}

fn append(values: &Tensor, into: &mut Vec<f32>) {
    let start = into.len();
    into.resize(start + values.numel(), 0.0);
    values.detach().to_device(tch::Device::Cpu).contiguous().copy_data(&mut into[start..], values.numel());
}

/// A copy-free leaf on the same values that collects a gradient if `wanted`.
fn leaf(tensor: &Tensor, wanted: bool) -> Tensor {
    tensor.detach().set_requires_grad(wanted)
}

/// Adds `∂⟨output, gradient⟩` to the gradients of everything that `output` was computed from.
fn pull_back(output: &Tensor, gradient: &Tensor) {
    (output * gradient).sum(output.kind()).backward();
}

fn ids_of(decoder: &Decoder, batch: &MicroBatch) -> Tensor {
    Tensor::from_slice(&batch.ids).view([batch.batch() as i64, batch.time as i64]).to_device(decoder.device())
}

/// The hidden states at the rows that predict a token: `[batch, time, h]` → `[tokens, h]`.
fn rows_of(hidden: &Tensor, batch: &MicroBatch) -> Tensor {
    let width = hidden.size()[2];
    let index = Tensor::from_slice(&batch.rows).to_device(hidden.device());
    hidden.reshape([-1, width]).index_select(0, &index)
}

/// `(start, length)` of the chunks of a micro-batch's tokens.
fn chunks(batch: &MicroBatch, options: &PassOptions) -> impl Iterator<Item = (usize, usize)> {
    let (tokens, size) = (batch.rows.len(), options.logit_rows.max(1));
    (0..tokens).step_by(size).map(move |start| (start, size.min(tokens - start)))
}

#[cfg(test)]
mod tests {
    use super::layer_of;

    #[test]
    fn the_layer_is_read_from_plain_and_adapter_names() {
        assert_eq!(layer_of("model.layers.17.mlp.up_proj.weight"), Some(17));
        assert_eq!(layer_of("base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight"), Some(3));
        assert_eq!(layer_of("model.norm.weight"), None);
    }
}
