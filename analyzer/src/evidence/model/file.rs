//! Facts of a model in a file: TOML with the names of the command line, or the `config.json` that comes with a model.

use super::{FactError, ModelFacts};

/// Names in a `config.json` of Hugging Face's transformers, and ours.
const OF_CONFIG: [(&str, &str); 6] = [
    ("num_hidden_layers", "layers"),
    ("num_attention_heads", "heads"),
    ("num_key_value_heads", "kv_heads"),
    ("head_dim", "head_dim"),
    ("hidden_size", "embedding"),
    ("max_position_embeddings", "context"),
];

/// Reads a file's text.
///
/// # Errors
///
/// Where it is neither, or a fact in it can't be used.
pub fn from_file(text: &str) -> Result<ModelFacts, FactError> {
    let mut facts = ModelFacts::default();
    if text.trim_start().starts_with('{') {
        from_config(text, &mut facts)?;
    } else {
        let table: toml::Table = toml::from_str(text).map_err(|error| FactError::File(error.message().to_owned()))?;
        for (name, value) in &table {
            let text = match value {
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                _ => return Err(FactError::File(format!("{name} is neither a number nor a text"))),
            };
            facts.set(name, &text)?;
        }
    }
    match facts == ModelFacts::default() {
        true => Err(FactError::File(format!("none of {} is in it", super::KNOWN))),
        false => Ok(facts),
    }
}

/// What a model's own configuration says; the context is what the model allows, not what a program uses.
fn from_config(text: &str, facts: &mut ModelFacts) -> Result<(), FactError> {
    let config: serde_json::Value = serde_json::from_str(text).map_err(|error| FactError::File(error.to_string()))?;
    for (theirs, ours) in OF_CONFIG {
        if let Some(number) = config.get(theirs).and_then(serde_json::Value::as_u64) {
            facts.set(ours, &number.to_string())?;
        }
    }
    facts.context_is_certain = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_return_from_their_file() {
        let mut facts = ModelFacts::default();
        facts
            .add("layers=32,heads=64,kv_heads=8,head_dim=128,value_dim=96,context=8192,kv_type=q8_0,parameters=7B")
            .unwrap();
        facts.add("state_bytes=18,weights=14.5G,batch=2,sequence=4096,embedding=4096").unwrap();
        assert_eq!(from_file(&facts.to_toml()), Ok(facts));
    }

    #[test]
    fn both_sorts_of_files_are_read() {
        let ours = from_file("layers = 32\nkv_heads = 8\nhead_dim = 128\ncontext = 8192\nkv_type = \"f16\"\n").unwrap();
        assert_eq!((ours.kv_bytes(), ours.context_is_certain), (Some(1 << 30), true));
        let config = r#"{"model_type": "llama", "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "hidden_size": 4096, "max_position_embeddings": 8192, "rope_scaling": null}"#;
        let theirs = from_file(config).unwrap();
        assert_eq!((theirs.kv_bytes(), theirs.context_is_certain), (Some(1 << 30), false));
    }

    #[test]
    fn what_is_neither_is_said() {
        for text in ["", "{}", "{\"num_hidden_layers\": -1}", "layers = 0", "nothing = 1", "not toml at all", "[[["] {
            assert!(from_file(text).is_err(), "{text}");
        }
    }
}
