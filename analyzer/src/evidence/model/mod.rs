//! What a user knows of the model that runs: as text, as a file, or from the header of a GGUF file. With it some diagnoses
//! are a matter of arithmetic.

mod file;
mod gguf;

pub use file::from_file;
pub use gguf::{GgufError, from_gguf, read as read_gguf};

use serde::Serialize;
use thiserror::Error;

/// Facts of a model. What is none was not said.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelFacts {
    /// Layers on the device.
    pub layers: Option<u64>,
    /// Heads of the query, in a layer.
    pub heads: Option<u64>,
    /// Heads of key and value, in a layer.
    pub kv_heads: Option<u64>,
    /// The same over all layers, where layers differ.
    pub kv_heads_of_all_layers: Option<u64>,
    /// Elements of a head.
    pub head_dim: Option<u64>,
    /// Elements of a head's value, where they differ from the key's.
    pub value_dim: Option<u64>,
    /// Elements of the embedding.
    pub embedding: Option<u64>,
    /// Tokens that the cache is for.
    pub context: Option<u64>,
    /// Whether the context is what the program was told, and not only what the model allows.
    pub context_is_certain: bool,
    /// Type of the cache's keys.
    pub key_type: Option<ElementType>,
    /// Type of the cache's values.
    pub value_type: Option<ElementType>,
    /// Parameters.
    pub parameters: Option<u64>,
    /// Bytes of weights, gradients and optimizer state for each parameter and device.
    pub state_bytes: Option<f64>,
    /// Bytes of the weights on the device.
    pub weights_bytes: Option<u64>,
    /// Sequences in a batch.
    pub batch: Option<u64>,
    /// Tokens in a sequence.
    pub sequence: Option<u64>,
}

/// A type of stored numbers: so many bytes hold so many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ElementType {
    /// Its name.
    pub name: &'static str,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Elements of a block.
    pub block_elements: u64,
}

/// Types that a cache can have. (ggml/src/ggml-common.h of llama.cpp: a block is 32 elements with its scales.)
const TYPES: [ElementType; 10] = [
    of("f32", 4, 1),
    of("f16", 2, 1),
    of("bf16", 2, 1),
    of("q8_0", 34, 32),
    of("q5_1", 24, 32),
    of("q5_0", 22, 32),
    of("q4_1", 20, 32),
    of("q4_0", 18, 32),
    of("iq4_nl", 18, 32),
    of("fp8", 1, 1),
];

const fn of(name: &'static str, block_bytes: u64, block_elements: u64) -> ElementType {
    ElementType { name, block_bytes, block_elements }
}

/// A fact that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FactError {
    /// Not in the form `name=value`.
    #[error(
        "'{0}': write name=value, with commas between, such as layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=f16"
    )]
    NoValue(String),
    /// No such fact.
    #[error("'{0}': no such fact of a model; known are {KNOWN}")]
    Unknown(String),
    /// A value that is none.
    #[error("{0}='{1}': this must be {2}")]
    Value(String, String, &'static str),
    /// A size that is none.
    #[error("{0}: {1}")]
    Size(String, String),
    /// A file that is none.
    #[error("the file has no facts of a model: {0}")]
    File(String),
}

/// Names of facts, for messages.
pub const KNOWN: &str = "layers, heads, kv_heads, head_dim, value_dim, embedding, context, kv_type, key_type, value_type, \
    parameters, state_bytes, weights, batch, sequence";
const NUMBER: &str = "a whole number from 1 to 1,000,000,000";
const AMOUNT: &str = "a number with K, M, B or T (thousand, million, billion, trillion), such as 7B";
const SOME_BYTES: &str = "more than 0 bytes";
const TYPE: &str = "f32, f16, bf16, fp8, q8_0, q5_1, q5_0, q4_1, q4_0 or iq4_nl";
const STATE: &str = "a number of bytes up to 64, such as 18 for training with Adam in mixed precision";
const MOST: u64 = 1_000_000_000;

/// A number of parameters. Its endings are no units of size: B is a billion here.
fn amount(text: &str) -> Option<u64> {
    let endings = [("", 1.0), ("k", 1e3), ("m", 1e6), ("b", 1e9), ("g", 1e9), ("t", 1e12)];
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, scale) = endings.iter().find(|(ending, _)| *ending == &lower[digits.len()..])?;
    let value = digits.trim().parse::<f64>().ok()? * scale;
    (value.is_finite() && (1.0..=1e18).contains(&value)).then_some(value.round() as u64)
}

impl ModelFacts {
    /// Facts as on the command line: `layers=32,kv_heads=8,head_dim=128`.
    ///
    /// # Errors
    ///
    /// Where a name is not known or a value can't be used.
    pub fn add(&mut self, text: &str) -> Result<(), FactError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| FactError::NoValue(crate::words::clean(part)))?;
            self.set(name.trim(), value.trim())?;
        }
        Ok(())
    }

    /// The facts as a file that [`from_file`] reads: numbers and types only. What a file can't say is left out: a context that the
    /// program may not have, and heads of layers that differ.
    pub fn to_toml(&self) -> String {
        let whole = [
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("value_dim", self.value_dim),
            ("embedding", self.embedding),
            ("context", self.context.filter(|_| self.context_is_certain)),
            ("parameters", self.parameters),
            ("weights", self.weights_bytes),
            ("batch", self.batch),
            ("sequence", self.sequence),
        ];
        let mut text: String =
            whole.iter().filter_map(|(name, value)| Some(format!("{name} = {}\n", (*value)?))).collect();
        for (name, of_type) in [("key_type", self.key_type), ("value_type", self.value_type)] {
            text.extend(of_type.map(|of_type| format!("{name} = \"{}\"\n", of_type.name)));
        }
        text.extend(self.state_bytes.map(|bytes| format!("state_bytes = {bytes:?}\n")));
        text
    }

    /// One fact.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), FactError> {
        let wrong = |wanted| FactError::Value(crate::words::clean(name), crate::words::clean(value), wanted);
        let number = || value.parse::<u64>().ok().filter(|number| (1..=MOST).contains(number)).ok_or(wrong(NUMBER));
        let of_type = || {
            let lower = value.to_ascii_lowercase();
            TYPES.into_iter().find(|known| known.name == lower).ok_or(wrong(TYPE))
        };
        let key = name.to_ascii_lowercase().replace('-', "_");
        match key.as_str() {
            "layers" => (self.layers, self.kv_heads_of_all_layers) = (Some(number()?), None),
            "heads" => self.heads = Some(number()?),
            "kv_heads" => (self.kv_heads, self.kv_heads_of_all_layers) = (Some(number()?), None),
            "head_dim" => (self.head_dim, self.value_dim) = (Some(number()?), None),
            "value_dim" => self.value_dim = Some(number()?),
            "embedding" => self.embedding = Some(number()?),
            "context" => (self.context, self.context_is_certain) = (Some(number()?), true),
            "kv_type" => (self.key_type, self.value_type) = (Some(of_type()?), Some(of_type()?)),
            "key_type" => self.key_type = Some(of_type()?),
            "value_type" => self.value_type = Some(of_type()?),
            "parameters" => self.parameters = Some(amount(value).ok_or(wrong(AMOUNT))?),
            "state_bytes" => {
                let state = value.parse::<f64>().ok().filter(|state| *state > 0.0 && *state <= 64.0);
                self.state_bytes = Some(state.ok_or(wrong(STATE))?);
            }
            "weights" => {
                let bytes = gpuoom_units::size(value).map_err(|invalid| {
                    FactError::Size(crate::words::clean(name), crate::words::clean(&invalid.to_string()))
                })?;
                self.weights_bytes = Some(Some(bytes).filter(|bytes| *bytes > 0).ok_or(wrong(SOME_BYTES))?);
            }
            "batch" => self.batch = Some(number()?),
            "sequence" => self.sequence = Some(number()?),
            _ => return Err(FactError::Unknown(crate::words::clean(name))),
        }
        Ok(())
    }

    /// Bytes that the cache takes for each token, on all layers: keys and values.
    pub fn kv_bytes_per_token(&self) -> Option<f64> {
        self.kv_parts_bytes_per_token().map(|(keys, values)| keys + values)
    }

    /// The same for the keys and for the values.
    pub fn kv_parts_bytes_per_token(&self) -> Option<(f64, f64)> {
        let by_layer = || Some(self.layers?.saturating_mul(self.kv_heads.or(self.heads)?));
        let heads = self.kv_heads_of_all_layers.or_else(by_layer)? as f64;
        let key_dim = self.head_dim.or_else(|| Some(self.embedding? / self.heads?.max(1)))?;
        let value_dim = self.value_dim.unwrap_or(key_dim);
        let f16 = TYPES[1];
        let stored = |elements: u64, kind: Option<ElementType>| {
            let kind = kind.unwrap_or(f16);
            elements as f64 * kind.block_bytes as f64 / kind.block_elements as f64
        };
        Some((heads * stored(key_dim, self.key_type), heads * stored(value_dim, self.value_type)))
    }

    /// Bytes of the cache for the whole context: 2 x layers x context x heads x dimension x bytes, where keys and values
    /// are alike.
    pub fn kv_bytes(&self) -> Option<u64> {
        Some((self.kv_bytes_per_token()? * self.context? as f64) as u64)
    }

    /// Bytes of weights, gradients and optimizer state.
    pub fn training_bytes(&self) -> Option<u64> {
        Some((self.parameters? as f64 * self.state_bytes?) as u64)
    }

    /// Bytes of a buffer of attention scores: batch x heads x sequence² x bytes of an element.
    pub fn score_bytes(&self, element_bytes: u64) -> Option<u64> {
        let square = self.sequence?.saturating_mul(self.sequence?);
        let heads = self.heads?.saturating_mul(self.batch.unwrap_or(1));
        Some(square.saturating_mul(heads).saturating_mul(element_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(text: &str) -> ModelFacts {
        let mut facts = ModelFacts::default();
        facts.add(text).unwrap_or_else(|error| panic!("{error}"));
        facts
    }

    /// Llama 3 8B with a context of 8192: 1 GiB in f16, as llama.cpp prints it.
    #[test]
    fn the_formula_of_the_cache() {
        let llama = facts("layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=f16");
        assert_eq!(llama.kv_bytes(), Some(1 << 30));
        let quantised = facts("layers=32,kv_heads=8,head_dim=128,context=8192,kv_type=q8_0");
        assert_eq!(quantised.kv_bytes(), Some((1 << 30) * 34 / 64));
        assert_eq!(facts("layers=32,heads=32,embedding=4096,context=8192").kv_bytes(), Some(4 << 30));
        assert_eq!(facts("layers=32").kv_bytes(), None);
    }

    /// The worked value of the catalogue: 4e9 parameters are 72 GB.
    #[test]
    fn the_state_of_a_training() {
        assert_eq!(facts("parameters=4B,state_bytes=18").training_bytes(), Some(72_000_000_000));
        assert_eq!(facts("parameters=0.5b").parameters, Some(500_000_000));
        assert_eq!(facts("heads=32, sequence=4096, batch=2").score_bytes(2), Some(2 << 30));
        assert_eq!(facts("weights=14.5G").weights_bytes, Some(29 << 29));
    }

    #[test]
    fn what_is_no_fact_is_said() {
        let mut facts = ModelFacts::default();
        for (text, said) in [
            ("layer=3", "no such fact"),
            ("layers", "write name=value"),
            ("layers=0", "whole number"),
            ("layers=99999999999", "whole number"),
            ("kv_type=q9", "f32, f16"),
            ("parameters=many", "such as 7B"),
            ("weights=14.5X", "weights: invalid size '14.5X': expected bytes, or K, M, G, T (such as 1.5G)"),
            ("weights=0", "more than 0 bytes"),
            ("state_bytes=1000", "bytes up to 64"),
        ] {
            let error = facts.add(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
