//! Token sequences to learn from, and the micro-batches that they are run in.

use drgym_env::Trace;

/// One token sequence, and which of its tokens are learnt from.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequence {
    /// Number of the episode or example that this belongs to.
    pub episode: usize,
    /// Tokens, prompt first, `[time]`.
    pub ids: Vec<u32>,
    /// Positions in `ids` of the tokens learnt from, ascending, each at least 1, `[tokens]`.
    pub positions: Vec<u32>,
    /// Log-probability of each of them under the policy that drew it, `[tokens]`; zeros in expert traces.
    pub behaviour_logprobs: Vec<f32>,
}

impl Sequence {
    /// The sequences of a trace, one a segment that has anything to learn from.
    ///
    /// Tokens behind the last one to learn from have no influence on the loss, since attention is causal; they are
    /// left out. The error says which invariant of the trace is broken.
    pub fn of_trace(trace: &Trace, episode: usize) -> Result<Vec<Self>, String> {
        trace.check()?;
        let mut sequences = Vec::with_capacity(trace.segments.len());
        for segment in &trace.segments {
            let prompt = segment.prompt_ids.len();
            let mut sequence = Self {
                episode,
                ids: segment.prompt_ids.clone(),
                positions: vec![],
                behaviour_logprobs: vec![],
            };
            sequence.ids.extend_from_slice(&segment.response_ids);
            for (index, (&drawn, &logprob)) in segment.loss_mask.iter().zip(&segment.logprobs).enumerate() {
                if drawn {
                    let position = u32::try_from(prompt + index)
                        .map_err(|_| format!("a segment of {} tokens is too long", segment.len()))?;
                    sequence.positions.push(position);
                    sequence.behaviour_logprobs.push(logprob);
                }
            }
            if let Some(&last) = sequence.positions.last() {
                sequence.ids.truncate(last as usize + 1);
                sequences.push(sequence);
            }
        }
        Ok(sequences)
    }

    /// Tokens that the model has to read: all but the last, which is only predicted.
    fn input_length(&self) -> usize {
        self.ids.len() - 1
    }
}

/// How sequences are packed into micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Packing {
    /// Most tokens of a micro-batch, padding included. A sequence that is longer makes a micro-batch of its own.
    pub tokens: usize,
    /// Largest share of padding in a micro-batch, from 0 to 1.
    pub padding: f64,
}

/// Sequences that are run together, padded on the right.
#[derive(Clone, Debug, PartialEq)]
pub struct MicroBatch {
    /// Rows of the batch: indices into the sequences that were packed, `[batch]`.
    pub sequences: Vec<usize>,
    /// Length of the longest row.
    pub time: usize,
    /// Input tokens, row after row, `[batch · time]`. Padding is token 0: with causal attention and padding on the
    /// right nothing ever looks at it.
    pub ids: Vec<i64>,
    /// Index into `batch · time` of the position whose logits predict each token, which is the one before it,
    /// `[tokens]`. Tokens are in the order of `sequences`, and within one of its `positions`.
    pub rows: Vec<i64>,
    /// The tokens to predict, `[tokens]`.
    pub targets: Vec<i64>,
}

impl MicroBatch {
    fn new(members: &[usize], all: &[Sequence]) -> Self {
        let time = members.iter().map(|&index| all[index].input_length()).max().unwrap_or(0);
        let mut batch = Self {
            sequences: members.to_vec(),
            time,
            ids: vec![0; members.len() * time],
            rows: vec![],
            targets: vec![],
        };
        for (row, &index) in members.iter().enumerate() {
            let sequence = &all[index];
            let start = row * time;
            for (slot, &id) in batch.ids[start..].iter_mut().zip(&sequence.ids[..sequence.input_length()]) {
                *slot = i64::from(id);
            }
            for &position in &sequence.positions {
                batch.rows.push((start + position as usize - 1) as i64);
                batch.targets.push(i64::from(sequence.ids[position as usize]));
            }
        }
        batch
    }

    /// Number of rows.
    pub fn batch(&self) -> usize {
        self.sequences.len()
    }

    /// One value for each token to predict, taken from the sequence that it belongs to, `[tokens]`.
    pub fn spread<T: Copy>(&self, all: &[Sequence], value: impl Fn(usize) -> T) -> Vec<T> {
        let mut values = Vec::with_capacity(self.rows.len());
        for &index in &self.sequences {
            values.resize(values.len() + all[index].positions.len(), value(index));
        }
        values
    }

    /// Values kept by sequence and token, in the order of this micro-batch's tokens, `[tokens]`.
    pub fn gather<'a>(&self, values: impl Fn(usize) -> &'a [f32]) -> Vec<f32> {
        let mut gathered = Vec::with_capacity(self.rows.len());
        for &index in &self.sequences {
            gathered.extend_from_slice(values(index));
        }
        gathered
    }

    /// The reverse of [`gather`](Self::gather): puts one value a token back to its sequence.
    pub fn scatter(&self, values: &[f32], all: &[Sequence], into: &mut [Vec<f32>]) {
        let mut start = 0;
        for &index in &self.sequences {
            let end = start + all[index].positions.len();
            into[index] = values[start..end].to_vec();
            start = end;
        }
    }
}

/// Packs the sequences numbered in `members` into micro-batches of similar length, longest first.
///
/// The result depends on nothing but the arguments: ties in length keep the order of `members`. Every member has
/// at least one token to learn from.
pub fn pack(all: &[Sequence], members: &[usize], packing: &Packing) -> Vec<MicroBatch> {
    let mut order = members.to_vec();
    order.sort_by_key(|&index| std::cmp::Reverse(all[index].input_length()));
    let mut batches = Vec::new();
    let mut current: Vec<usize> = Vec::new();
    let mut real = 0;
    for index in order {
        let length = all[index].input_length();
        if let Some(&first) = current.first() {
            let padded = (current.len() + 1) * all[first].input_length();
            let waste = (padded - real - length) as f64 / padded as f64;
            if padded > packing.tokens || waste > packing.padding {
                batches.push(MicroBatch::new(&current, all));
                current.clear();
                real = 0;
            }
        }
        current.push(index);
        real += length;
    }
    if !current.is_empty() {
        batches.push(MicroBatch::new(&current, all));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sequence(length: usize, positions: &[u32]) -> Sequence {
        Sequence {
            episode: 0,
            ids: (0..length as u32).map(|id| id + 10).collect(),
            positions: positions.to_vec(),
            behaviour_logprobs: positions.iter().map(|&position| -(position as f32)).collect(),
        }
    }

    #[test]
    fn rows_are_those_before_the_tokens_to_predict() {
        let all = [sequence(3, &[2]), sequence(5, &[2, 4])];
        let batches = pack(&all, &[0, 1], &Packing { tokens: 100, padding: 0.9 });
        let expected = MicroBatch {
            sequences: vec![1, 0],
            time: 4,
            ids: vec![10, 11, 12, 13, 10, 11, 0, 0],
            rows: vec![1, 3, 5],
            targets: vec![12, 14, 12],
        };
        assert_eq!(batches, vec![expected]);
        assert_eq!(batches[0].spread(&all, |index| index), vec![1, 1, 0]);
        assert_eq!(batches[0].gather(|index| &all[index].behaviour_logprobs), vec![-2.0, -4.0, -2.0]);
    }

    #[test]
    fn long_sequences_stand_alone_and_padding_is_bounded() {
        let all = [sequence(101, &[1]), sequence(51, &[1]), sequence(50, &[1]), sequence(11, &[1])];
        let batches = pack(&all, &[0, 1, 2, 3], &Packing { tokens: 100, padding: 0.2 });
        let members: Vec<_> = batches.iter().map(|batch| batch.sequences.clone()).collect();
        assert_eq!(members, vec![vec![0], vec![1, 2], vec![3]]);
    }

    proptest! {
        #[test]
        fn packing_keeps_every_token_once_within_its_bounds(
            shapes in proptest::collection::vec((2_usize..60, 0_u32..58), 1..30),
            tokens in 1_usize..200,
            padding in 0.0_f64..1.0,
        ) {
            let all: Vec<Sequence> = shapes
                .iter()
                .map(|&(length, position)| sequence(length, &[1 + position % (length as u32 - 1)]))
                .collect();
            let members: Vec<usize> = (0..all.len()).collect();
            let batches = pack(&all, &members, &Packing { tokens, padding });
            let mut seen: Vec<usize> = batches.iter().flat_map(|batch| batch.sequences.clone()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, members);
            for batch in &batches {
                let padded = batch.batch() * batch.time;
                let real: usize = batch.sequences.iter().map(|&index| all[index].input_length()).sum();
                prop_assert!(batch.batch() == 1 || padded <= tokens);
                prop_assert!((padded - real) as f64 <= padding * padded as f64 + 1e-9);
                for ((&row, &target), &index) in batch.rows.iter().zip(&batch.targets).zip(&batch.sequences) {
                    let position = all[index].positions[0] as usize;
                    prop_assert_eq!(batch.ids[row as usize], i64::from(all[index].ids[position - 1]));
                    prop_assert_eq!(target, i64::from(all[index].ids[position]));
                }
            }
            prop_assert_eq!(&batches, &pack(&all, &(0..all.len()).collect::<Vec<_>>(), &Packing { tokens, padding }));
        }
    }
}
