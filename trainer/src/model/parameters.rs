//! The named tensors of a model.

use std::collections::HashMap;

use tch::Tensor;

/// Tensors by Hugging Face name, in the order of the forward pass.
///
/// Each is a leaf in f32, the master copy that an optimiser updates in place (under no gradient). Handles are
/// shallow: a clone shares storage. Several tensors may be views of one storage (see
/// [`ComputeCopies`](super::ComputeCopies)), so write into them with `copy_` and the like; never replace them.
#[derive(Debug, Default)]
pub struct Parameters {
    entries: Vec<(String, Tensor)>,
    positions: HashMap<String, usize>,
}

impl Parameters {
    /// Adds a tensor, or replaces the one of that name.
    pub(crate) fn insert(&mut self, name: String, tensor: Tensor) {
        if let Some(&position) = self.positions.get(&name) {
            self.entries[position].1 = tensor;
        } else {
            self.positions.insert(name.clone(), self.entries.len());
            self.entries.push((name, tensor));
        }
    }

    /// The tensor of a name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.positions.get(name).map(|&position| &self.entries[position].1)
    }

    /// The tensor of a name that the model is known to have.
    ///
    /// # Panics
    /// Where there is none, which is a bug of ours: construction checks that every name is there.
    pub(crate) fn expect(&self, name: &str) -> &Tensor {
        match self.get(name) {
            Some(tensor) => tensor,
            None => unreachable!("the model has no tensor {name}"),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.entries.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many numbers they hold in all.
    pub fn element_count(&self) -> usize {
        self.entries.iter().map(|(_, tensor)| tensor.numel()).sum()
    }
}
