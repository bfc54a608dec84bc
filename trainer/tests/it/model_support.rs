//! Tiny models and real folders for the tests of the model and the sampler.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use drgym_trainer::model::{Decoder, LoadOptions};
use safetensors::tensor::{Dtype, SafeTensors};
use tch::{Kind, Tensor};

/// The families that golden values exist for.
pub const FAMILIES: [&str; 4] = ["llama", "llama3", "qwen2", "qwen3"];

/// A file or folder of golden values.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The tiny model of a family, in f32.
pub fn tiny(family: &str) -> Decoder {
    Decoder::load(&data("model").join(family), LoadOptions::default()).expect("the tiny model loads")
}

/// The tensors of a safetensors file.
pub fn tensors(path: &Path) -> HashMap<String, Tensor> {
    let bytes = std::fs::read(path).expect("the file is there");
    let parsed = SafeTensors::deserialize(&bytes).expect("the file is whole");
    parsed
        .iter()
        .map(|(name, view)| {
            let kind = match view.dtype() {
                Dtype::F32 => Kind::Float,
                Dtype::I64 => Kind::Int64,
                other => panic!("unexpected type {other:?}"),
            };
            let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
            (name.to_owned(), Tensor::from_data_size(view.data(), &shape, kind))
        })
        .collect()
}

/// A folder that set-up makes, if it was made.
#[expect(clippy::print_stdout, reason = "says why a test does nothing")]
pub fn set_up_folder(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("DRGYM_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/drgym")))?;
    let folder = home.join(name);
    if folder.exists() {
        Some(folder)
    } else {
        println!("skipped: needs {} (made by scripts/setup.sh)", folder.display());
        None
    }
}

/// The largest absolute difference of two tensors.
pub fn difference(left: &Tensor, right: &Tensor) -> f64 {
    assert_eq!(left.size(), right.size());
    (left.detach() - right).abs().max().double_value(&[])
}
