//! BERT sentence encoders, packed: the tokens of many texts lie end to end in one matrix `[tokens, hidden]`, so that
//! the products with the weights waste nothing on padding; only attention looks at one text at a time.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use candle_core::{CpuStorage, Device, InplaceOp1, InplaceOp2, Layout, Tensor};
use tokenizers::{Tokenizer, TruncationParams};

use super::error::EncoderError;
use super::settings::{EncoderOptions, ModelConfig, Pooling, Settings, read};
use super::{Encoder, EncoderIdentity};
use crate::encoder::bert::weights::Weights;
use crate::kernels;

mod weights;

/// Tokens packed into one matrix. Larger ones fall out of the cache, smaller ones pay more for each call.
const BATCH_TOKENS: usize = 2048;

/// A model of the BERT family in a Hugging Face or sentence-transformers folder, on the CPU in `f32`.
///
/// Texts are encoded by single-threaded workers, one a core. The batches of
/// [`encode_documents`](Encoder::encode_documents) depend only on the texts, never on the number of workers.
pub struct BertEncoder {
    identity: EncoderIdentity,
    config: ModelConfig,
    settings: Settings,
    weights: Weights,
    /// Cuts to the longest sequence and adds the special tokens.
    tokenizer: Tokenizer,
    /// Does neither.
    bare_tokenizer: Tokenizer,
    /// One thread each: the matrix product splits itself over the pool that it is called from.
    workers: Vec<rayon::ThreadPool>,
    next_worker: AtomicUsize,
}

impl BertEncoder {
    /// Loads `config.json`, `model.safetensors`, `tokenizer.json` and, where they are there, the files that
    /// sentence-transformers adds: `modules.json` and its pooling, `sentence_bert_config.json`,
    /// `config_sentence_transformers.json`.
    pub fn load(dir: &Path, options: &EncoderOptions) -> Result<Self, EncoderError> {
        if !dir.is_dir() {
            return Err(EncoderError::Missing { path: dir.to_owned() });
        }
        let config = ModelConfig::read(dir)?;
        let settings = Settings::read(dir, &config, options)?;

        let weights_path = dir.join("model.safetensors");
        let weights_bytes = read(&weights_path)?;
        let weights = Weights::from_safetensors(&weights_bytes, &weights_path, &config)?;

        let tokenizer_path = dir.join("tokenizer.json");
        let tokenizer_bytes = read(&tokenizer_path)?;
        let malformed = |reason: String| EncoderError::Malformed { path: tokenizer_path.clone(), reason };
        let mut bare_tokenizer =
            Tokenizer::from_bytes(&tokenizer_bytes).map_err(|error| malformed(error.to_string()))?;
        // Files often carry the truncation and padding of their last training run.
        bare_tokenizer.with_truncation(None).map_err(|error| malformed(error.to_string()))?;
        bare_tokenizer.with_padding(None);
        let mut tokenizer = bare_tokenizer.clone();
        let truncation =
            TruncationParams { max_length: settings.max_sequence, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(|error| malformed(error.to_string()))?;
        let vocabulary = tokenizer.get_vocab_size(true);
        if vocabulary > config.vocab_size {
            let reason = format!("has {vocabulary} tokens, but the model has only {}", config.vocab_size);
            return Err(malformed(reason));
        }

        let overhead = tokenizer
            .encode_fast(settings.passage_prefix.as_str(), true)
            .map_err(|error| EncoderError::Tokenize(error.to_string()))?
            .len();
        let Some(max_tokens) = settings.max_sequence.checked_sub(overhead).filter(|&left| left > 0) else {
            let reason = format!("the passage prefix alone fills all {} tokens", settings.max_sequence);
            return Err(malformed(reason));
        };

        let threads = options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
            .max(1);
        let workers = (0..threads)
            .map(|_| {
                let name = |_| "encoder".to_owned();
                rayon::ThreadPoolBuilder::new().num_threads(1).thread_name(name).build()
            })
            .collect::<Result<Vec<_>, _>>()?;

        let mut hasher = blake3::Hasher::new();
        let described =
            serde_json::to_vec(&(&config, &settings)).map_err(|error| malformed(error.to_string()))?;
        for part in [&weights_bytes, &tokenizer_bytes, &described] {
            hasher.update(blake3::hash(part).as_bytes());
        }
        let name =
            dir.canonicalize().ok().and_then(|dir| Some(dir.file_name()?.to_string_lossy().into_owned()));
        let identity = EncoderIdentity {
            name: name.unwrap_or_else(|| "encoder".to_owned()),
            fingerprint: hasher.finalize().to_hex().to_string(),
            dimension: config.hidden_size,
            max_tokens,
            overrides: options.overrides(),
        };
        let next_worker = AtomicUsize::new(0);
        Ok(Self { identity, config, settings, weights, tokenizer, bare_tokenizer, workers, next_worker })
    }

    fn token_ids(&self, prefix: &str, text: &str) -> Result<Vec<u32>, EncoderError> {
        let encoded = if prefix.is_empty() {
            self.tokenizer.encode_fast(text, true)
        } else {
            self.tokenizer.encode_fast(format!("{prefix}{text}"), true)
        };
        Ok(encoded.map_err(|error| EncoderError::Tokenize(error.to_string()))?.get_ids().to_vec())
    }

    /// Vectors of unit length for sequences of token ids, `[sequences, hidden]`.
    fn forward(&self, sequences: &[Vec<u32>]) -> Result<Vec<f32>, EncoderError> {
        let hidden = self.config.hidden_size;
        let total: usize = sequences.iter().map(Vec::len).sum();
        let mut embedded = Vec::with_capacity(total * hidden);
        for sequence in sequences {
            for (position, &id) in sequence.iter().enumerate() {
                self.weights.embed(id, position, &mut embedded);
            }
        }
        let norm = &self.weights.embedding_norm;
        kernels::layer_norm(&mut embedded, &norm.weight, &norm.bias, self.config.layer_norm_eps);
        let mut x = Tensor::from_vec(embedded, (total, hidden), &Device::Cpu)?;

        for layer in &self.weights.layers {
            let qkv = x.matmul(&layer.qkv.weight)?;
            qkv.inplace_op1(&AddBias(&layer.qkv.bias))?;
            let context = self.attend(&qkv, sequences)?;
            let attended = context.matmul(&layer.attention_out.weight)?;
            let norm = |bias, norm| AddAndNorm { bias, norm, epsilon: self.config.layer_norm_eps };
            attended.inplace_op2(&x, &norm(&layer.attention_out.bias, &layer.attention_norm))?;
            let wide = attended.matmul(&layer.intermediate.weight)?;
            wide.inplace_op1(&AddBiasGelu(&layer.intermediate.bias))?;
            let out = wide.matmul(&layer.output.weight)?;
            out.inplace_op2(&attended, &norm(&layer.output.bias, &layer.output_norm))?;
            x = out;
        }
        let (storage, _) = x.storage_and_layout();
        let candle_core::Storage::Cpu(storage) = &*storage else {
            return Err(candle_core::Error::Msg("the encoder left the CPU".to_owned()).into());
        };
        self.pool(storage.as_slice::<f32>()?, sequences)
    }

    /// `[tokens, 3 * hidden]` to the attended `[tokens, hidden]`, each sequence on its own.
    fn attend(&self, qkv: &Tensor, sequences: &[Vec<u32>]) -> Result<Tensor, EncoderError> {
        let hidden = self.config.hidden_size;
        let heads = self.config.num_attention_heads;
        let width = hidden / heads;
        let scale = 1.0 / (width as f32).sqrt();
        let mut contexts = Vec::with_capacity(sequences.len());
        let mut start = 0;
        for sequence in sequences {
            let length = sequence.len();
            // [length, 3, heads, width] -> [3, heads, length, width], a view.
            let parts =
                qkv.narrow(0, start, length)?.reshape((length, 3, heads, width))?.permute((1, 2, 0, 3))?;
            let scores = parts.get(0)?.matmul(&parts.get(1)?.t()?)?;
            scores.inplace_op1(&ScaledSoftmax { width: length, scale })?;
            contexts.push(scores.matmul(&parts.get(2)?)?.transpose(0, 1)?.reshape((length, hidden))?);
            start += length;
        }
        Ok(if contexts.len() == 1 { contexts.swap_remove(0) } else { Tensor::cat(&contexts, 0)? })
    }

    fn pool(&self, states: &[f32], sequences: &[Vec<u32>]) -> Result<Vec<f32>, EncoderError> {
        let hidden = self.config.hidden_size;
        let mut vectors = vec![0.0; sequences.len() * hidden];
        let mut rest = states;
        for (position, (vector, sequence)) in vectors.chunks_exact_mut(hidden).zip(sequences).enumerate() {
            let (own, others) = rest.split_at(sequence.len() * hidden);
            rest = others;
            match self.settings.pooling {
                Pooling::Cls => vector.copy_from_slice(&own[..hidden]),
                // The division by the number of tokens does not change the direction.
                Pooling::Mean => {
                    for token in own.chunks_exact(hidden) {
                        for (sum, x) in vector.iter_mut().zip(token) {
                            *sum += x;
                        }
                    }
                }
            }
            let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
            if !norm.is_finite() || norm == 0.0 {
                return Err(EncoderError::Degenerate { position });
            }
            for x in vector {
                *x = (f64::from(*x) / norm) as f32;
            }
        }
        Ok(vectors)
    }
}

impl Encoder for BertEncoder {
    fn identity(&self) -> &EncoderIdentity {
        &self.identity
    }

    fn encode_query(&self, query: &str) -> Result<Vec<f32>, EncoderError> {
        let ids = self.token_ids(&self.settings.query_prefix, query)?;
        let worker = self.next_worker.fetch_add(1, Ordering::Relaxed) % self.workers.len();
        self.workers[worker].install(|| self.forward(&[ids]))
    }

    fn encode_documents(&self, texts: &[&str]) -> Result<Vec<f32>, EncoderError> {
        let prefix = &self.settings.passage_prefix;
        let sequences = self.on_all_workers(texts.len(), |i| self.token_ids(prefix, texts[i]))?;
        let batches = batches(&sequences);
        let vectors = self.on_all_workers(batches.len(), |i| {
            let batch = batches[i].clone();
            self.forward(&sequences[batch.clone()]).map_err(|error| match error {
                EncoderError::Degenerate { position } => {
                    EncoderError::Degenerate { position: batch.start + position }
                }
                other => other,
            })
        })?;
        Ok(vectors.concat())
    }

    fn token_ranges(&self, text: &str) -> Result<Vec<Range<usize>>, EncoderError> {
        let encoded = self.bare_tokenizer.encode(text, false);
        let encoded = encoded.map_err(|error| EncoderError::Tokenize(error.to_string()))?;
        Ok(encoded.get_offsets().iter().map(|&(start, end)| start..end).collect())
    }
}

impl BertEncoder {
    /// `task(0), …, task(count - 1)`, shared out among the workers.
    fn on_all_workers<T: Send>(
        &self,
        count: usize,
        task: impl Fn(usize) -> Result<T, EncoderError> + Sync,
    ) -> Result<Vec<T>, EncoderError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return done;
                }
                done.push((i, task(i)));
            }
        };
        let mut results: Vec<(usize, Result<T, EncoderError>)> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                self.workers.iter().take(count).map(|worker| scope.spawn(|| worker.install(work))).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        results.sort_unstable_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Neighbouring sequences together, as many as fit.
fn batches(sequences: &[Vec<u32>]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut tokens) = (0, 0);
    for (i, sequence) in sequences.iter().enumerate() {
        if tokens + sequence.len() > BATCH_TOKENS && i > start {
            batches.push(start..i);
            (start, tokens) = (i, 0);
        }
        tokens += sequence.len();
    }
    if start < sequences.len() {
        batches.push(start..sequences.len());
    }
    batches
}

struct AddBias<'a>(&'a [f32]);
struct AddBiasGelu<'a>(&'a [f32]);
struct ScaledSoftmax {
    width: usize,
    scale: f32,
}
/// `x = layer_norm(x + bias + residual)`.
struct AddAndNorm<'a> {
    bias: &'a [f32],
    norm: &'a weights::Norm,
    epsilon: f32,
}

fn values<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> candle_core::Result<&'a mut [f32]> {
    let (CpuStorage::F32(values), Some((start, end))) = (storage, layout.contiguous_offsets()) else {
        return Err(candle_core::Error::Msg("expected a contiguous f32 tensor".to_owned()));
    };
    Ok(&mut values[start..end])
}

impl InplaceOp1 for AddBias<'_> {
    fn name(&self) -> &'static str {
        "add-bias"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        kernels::add_bias(values(storage, layout)?, self.0);
        Ok(())
    }
}

impl InplaceOp1 for AddBiasGelu<'_> {
    fn name(&self) -> &'static str {
        "add-bias-gelu"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        kernels::add_bias_gelu(values(storage, layout)?, self.0);
        Ok(())
    }
}

impl InplaceOp1 for ScaledSoftmax {
    fn name(&self) -> &'static str {
        "scaled-softmax"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        kernels::scaled_softmax(values(storage, layout)?, self.width, self.scale);
        Ok(())
    }
}

impl InplaceOp2 for AddAndNorm<'_> {
    fn name(&self) -> &'static str {
        "add-and-norm"
    }

    fn cpu_fwd(
        &self,
        storage: &mut CpuStorage,
        layout: &Layout,
        residual: &CpuStorage,
        residual_layout: &Layout,
    ) -> candle_core::Result<()> {
        let x = values(storage, layout)?;
        let (CpuStorage::F32(residual), Some((start, end))) =
            (residual, residual_layout.contiguous_offsets())
        else {
            return Err(candle_core::Error::Msg("expected a contiguous f32 residual".to_owned()));
        };
        for (x, r) in x.iter_mut().zip(&residual[start..end]) {
            *x += r;
        }
        kernels::add_bias(x, self.bias);
        kernels::layer_norm(x, &self.norm.weight, &self.norm.bias, self.epsilon);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_cover_every_sequence_once_and_keep_to_the_limit() {
        let sequences: Vec<Vec<u32>> = [1500, 500, 48, 1, 3000, 5, 2043, 1].map(|n| vec![0; n]).to_vec();
        assert_eq!(batches(&sequences), [0..3, 3..4, 4..5, 5..7, 7..8]);
        assert!(batches(&[]).is_empty());
    }
}
