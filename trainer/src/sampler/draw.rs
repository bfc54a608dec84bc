//! Drawing a token from scores.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tch::{Device, Kind, Tensor};

/// A row that wants a token.
pub(super) struct Drawer<'a> {
    /// 0 is greedy.
    pub(super) temperature: f32,
    /// The request's own stream: one number a token, so a draw does not depend on its neighbours.
    pub(super) generator: &'a mut ChaCha8Rng,
}

/// Draws one token a row from scores `[rows, vocabulary]` (f32): ids and log-probabilities, `[rows]` each.
///
/// The distribution is the softmax of the scores divided by the temperature. A greedy row takes the first of the
/// largest scores and reports its log-probability at temperature 1. Otherwise the token is the first at which the
/// cumulative probability, summed in f64 in the order of the vocabulary, exceeds a uniform number.
pub(super) fn draw(logits: &Tensor, drawers: &mut [Drawer<'_>]) -> (Vec<u32>, Vec<f32>) {
    let _guard = tch::no_grad_guard();
    let rows = drawers.len();
    let temperatures: Vec<f32> = drawers
        .iter()
        .map(|drawer| if drawer.temperature == 0.0 { 1.0 } else { drawer.temperature })
        .collect();
    let tempered = if temperatures.iter().all(|&temperature| temperature == 1.0) {
        logits.shallow_clone()
    } else {
        logits / Tensor::from_slice(&temperatures).to_device(logits.device()).unsqueeze(1)
    };
    let logprobs = tempered.log_softmax(-1, Kind::Float);
    let mut ids = vec![0u32; rows];
    if drawers.iter().any(|drawer| drawer.temperature == 0.0) {
        let mut largest = vec![0i64; rows];
        logprobs.argmax(-1, false).to_device(Device::Cpu).copy_data(&mut largest, rows);
        for (id, largest) in ids.iter_mut().zip(largest) {
            *id = largest as u32;
        }
    }
    if drawers.iter().any(|drawer| drawer.temperature != 0.0) {
        let vocabulary = logprobs.size()[1] as usize;
        let mut probabilities = vec![0f32; rows * vocabulary];
        let dense = logprobs.exp().to_device(Device::Cpu);
        dense.copy_data(&mut probabilities, rows * vocabulary);
        for ((id, drawer), row) in ids.iter_mut().zip(drawers).zip(probabilities.chunks_exact(vocabulary)) {
            if drawer.temperature != 0.0 {
                *id = inverse_cumulative(row, drawer.generator.random());
            }
        }
    }
    let index: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
    let index = Tensor::from_slice(&index).to_device(logprobs.device()).unsqueeze(1);
    let mut chosen = vec![0f32; rows];
    logprobs.gather(1, &index, false).to_device(Device::Cpu).copy_data(&mut chosen, rows);
    (ids, chosen)
}

/// The first index at which the sum of the probabilities up to it exceeds `uniform`, which lies in `[0, 1)`. Where
/// rounding keeps the whole sum below it, the last index of positive probability.
fn inverse_cumulative(probabilities: &[f32], uniform: f64) -> u32 {
    let mut sum = 0.0f64;
    let mut last = 0;
    for (index, &probability) in probabilities.iter().enumerate() {
        sum += f64::from(probability);
        if probability > 0.0 {
            last = index;
            if sum > uniform {
                return index as u32;
            }
        }
    }
    last as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_number_finds_its_interval() {
        let probabilities = [0.25f32, 0.0, 0.5, 0.25];
        for (uniform, index) in [(0.0, 0), (0.2499, 0), (0.25, 2), (0.7499, 2), (0.75, 3), (0.9999, 3)] {
            assert_eq!(inverse_cumulative(&probabilities, uniform), index, "{uniform}");
        }
        // The sum falls short of 1 by rounding, and a token of probability 0 is never drawn.
        assert_eq!(inverse_cumulative(&[0.5, 0.4999, 0.0], 0.99999), 1);
    }
}
