//! Where a turn ends: what any of the folder's files calls its end.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{CONFIG, json};
use crate::io_struct::TokenId;
use crate::model_runner::weights::{LoadError, turn_ends};

/// `config.json` and `generation_config.json`.
#[derive(Deserialize)]
struct Ends {
    eos_token_id: Option<Ids>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an id or a list of ids")]
enum Ids {
    One(u32),
    Many(Vec<u32>),
}

/// `tokenizer_config.json`.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    eos_token: Option<Token>,
    #[serde(default)]
    added_tokens_decoder: HashMap<String, Added>,
    #[serde(default)]
    chat_template: Value,
}

/// `tokenizer.json`.
#[derive(Deserialize)]
struct Vocabulary {
    #[serde(default)]
    added_tokens: Vec<Added>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a token's text, or an object with its content")]
enum Token {
    Text(String),
    Added { content: String },
}

#[derive(Deserialize)]
struct Added {
    id: Option<u32>,
    content: String,
}

/// All ids that end a turn, each once.
pub(super) fn read(folder: &Path) -> Result<Vec<TokenId>, LoadError> {
    let mut ids = Vec::new();
    for file in [CONFIG, "generation_config.json"] {
        match json::<Ends>(&folder.join(file))?.and_then(|ends| ends.eos_token_id) {
            None => {}
            Some(Ids::One(id)) => ids.push(id),
            Some(Ids::Many(many)) => ids.extend(many),
        }
    }
    ids.extend(of_tokenizer(folder)?);
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into_iter().map(TokenId).collect())
}

/// Chat models are often trained to end a turn with a token that only their tokenizer knows for it, or their template.
fn of_tokenizer(folder: &Path) -> Result<Vec<u32>, LoadError> {
    let config: TokenizerConfig = json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let template = template(folder, &config.chat_template)?;
    let mut ends: Vec<String> = turn_ends::of_template(&template).map(str::to_owned).collect();
    ends.extend(config.eos_token.map(|(Token::Text(end) | Token::Added { content: end })| end));
    let listed = config.added_tokens_decoder.into_iter();
    let mut known: HashMap<String, u32> =
        listed.filter_map(|(id, token)| Some((token.content, id.parse().ok()?))).collect();
    if ends.iter().any(|end| !known.contains_key(end)) {
        let vocabulary = json::<Vocabulary>(&folder.join("tokenizer.json"))?;
        let added = vocabulary.into_iter().flat_map(|it| it.added_tokens);
        for (id, content) in added.filter_map(|token| Some((token.id?, token.content))) {
            known.entry(content).or_insert(id);
        }
    }
    Ok(ends.iter().filter_map(|end| known.get(end)).copied().collect())
}

/// The text of the template, in a file of its own or in `tokenizer_config.json`; all of them, if there are several.
fn template(folder: &Path, in_config: &Value) -> Result<String, LoadError> {
    let path = folder.join("chat_template.jinja");
    match std::fs::read(&path) {
        Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let several = in_config.as_array().into_iter().flatten().filter_map(|it| it["template"].as_str());
            Ok(in_config.as_str().into_iter().chain(several).collect())
        }
        Err(source) => Err(LoadError::Io { path, source }),
    }
}
