//! Folders that are broken are refused by name, and nothing panics.

use std::fs;

use expect_test::{Expect, expect};
use radiosonde::model_runner::bert::{EncoderOptions, Precision, load};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use super::tiny::copy;

const WEIGHTS: &str = "model.safetensors";
const QUERY: &str = "encoder.layer.1.attention.self.query.weight";

/// Loads a copy of the tiny model whose weights went through `change`.
fn check(change: impl FnOnce(Vec<u8>) -> Vec<u8>, want: &Expect) {
    let folder = copy();
    let path = folder.path().join(WEIGHTS);
    fs::write(&path, change(fs::read(&path).expect("the weights"))).expect("a file");
    let options = EncoderOptions { context_length: None, precision: Precision::F32, threads: Some(1), kernels: None };
    let error = load(folder.path(), &options).err().expect("a broken folder").to_string();
    want.assert_eq(&error.replace(folder.path().to_str().expect("UTF-8"), "FOLDER"));
}

/// The same tensors, without `without` and with `more`.
fn written(file: &[u8], without: &str, more: Option<(&str, Vec<usize>, Dtype)>) -> Vec<u8> {
    let tensors = SafeTensors::deserialize(file).expect("the script has written it");
    let zeros = vec![0; 1 << 16];
    let mut all: Vec<(String, TensorView<'_>)> =
        tensors.iter().filter(|(name, _)| *name != without).map(|(name, view)| (name.to_owned(), view)).collect();
    if let Some((name, shape, dtype)) = more {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        let view = TensorView::new(dtype, shape, &zeros[..bytes]).expect("the shape fits");
        all.push((name.to_owned(), view));
    }
    safetensors::serialize(all, None).expect("memory does not refuse")
}

#[test]
fn broken_weights() {
    check(
        |file| written(&file, QUERY, None),
        &expect!["FOLDER/model.safetensors: tensor encoder.layer.1.attention.self.query.weight is missing"],
    );
    check(
        |file| written(&file, QUERY, Some((QUERY, vec![32, 31], Dtype::F32))),
        &expect![
            "FOLDER/model.safetensors: tensor encoder.layer.1.attention.self.query.weight has the shape [32, 31], expected [32, 32]"
        ],
    );
    check(
        |file| written(&file, QUERY, Some((QUERY, vec![32, 32], Dtype::I8))),
        &expect![
            "FOLDER/model.safetensors: tensor encoder.layer.1.attention.self.query.weight has the type I8; known: F32, F16, BF16"
        ],
    );
    check(
        |file| written(&file, "", Some(("encoder.layer.2.bias", vec![1], Dtype::F32))),
        &expect!["FOLDER/model.safetensors: tensor encoder.layer.2.bias is not part of a BERT that is known here"],
    );
    check(
        |file| file[..file.len() - 1000].to_vec(),
        &expect![
            "FOLDER/model.safetensors is not a safetensors file that can be read: incomplete metadata, file not fully covered"
        ],
    );
    check(
        |file| file[..100].to_vec(),
        &expect!["FOLDER/model.safetensors is not a safetensors file that can be read: invalid header length"],
    );
    check(
        |_| Vec::new(),
        &expect!["FOLDER/model.safetensors is not a safetensors file that can be read: header too small"],
    );
}

#[test]
fn other_names_of_the_same_tensors_are_read() {
    let folder = copy();
    let path = folder.path().join(WEIGHTS);
    let file = fs::read(&path).expect("the weights");
    let tensors = SafeTensors::deserialize(&file).expect("the script has written it");
    let renamed = |name: &str| {
        format!(
            "bert.{}",
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        )
    };
    let mut all: Vec<(String, TensorView<'_>)> = tensors.iter().map(|(name, view)| (renamed(name), view)).collect();
    let pooler = [0; 4];
    all.push(("bert.pooler.dense.bias".to_owned(), TensorView::new(Dtype::F32, vec![1], &pooler).expect("a float")));
    all.push(("cls.predictions.bias".to_owned(), TensorView::new(Dtype::F32, vec![1], &pooler).expect("a float")));
    fs::write(&path, safetensors::serialize(all, None).expect("memory does not refuse")).expect("a file");
    let options = EncoderOptions { context_length: None, precision: Precision::Int8, threads: Some(1), kernels: None };
    assert!(load(folder.path(), &options).is_ok());
}
