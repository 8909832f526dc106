//! Where a turn ends: what any of the folder's files calls its end.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

use super::{CONFIG, json};
use crate::io_struct::TokenId;
use crate::model_runner::weights::LoadError;

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
#[derive(Deserialize)]
struct TokenizerConfig {
    eos_token: Option<Token>,
    #[serde(default)]
    added_tokens_decoder: HashMap<String, Added>,
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
    ids.extend(end_of_tokenizer(folder)?);
    ids.sort_unstable();
    ids.dedup();
    Ok(ids.into_iter().map(TokenId).collect())
}

/// Chat models are often trained to end a turn with a token that only their tokenizer knows for it.
fn end_of_tokenizer(folder: &Path) -> Result<Option<u32>, LoadError> {
    let Some(config) = json::<TokenizerConfig>(&folder.join("tokenizer_config.json"))? else { return Ok(None) };
    let Some(Token::Text(end) | Token::Added { content: end }) = config.eos_token else { return Ok(None) };
    let listed = config.added_tokens_decoder.into_iter().find(|(_, token)| token.content == end);
    if let Some(id) = listed.and_then(|(id, _)| id.parse().ok()) {
        return Ok(Some(id));
    }
    let vocabulary = json::<Vocabulary>(&folder.join("tokenizer.json"))?;
    let added = vocabulary.into_iter().flat_map(|it| it.added_tokens);
    Ok(added.into_iter().find(|token| token.content == end).and_then(|token| token.id))
}
