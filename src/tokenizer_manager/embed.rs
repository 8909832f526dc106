//! Station 2 for embedding models: a text to ids, into the table, to the engine.

use std::sync::Arc;

use super::request::RequestStream;
use super::submit::{Fields, INLINE_TOKENIZE_BYTES, Prompt, SubmitError, check_ids};
use super::{ServedModel, TokenizerManager};
use crate::clock::MonoNanos;
use crate::io_struct::{ModelTask, Purpose, Rid, ToEngine, TokenId, TokenizedEmbeddingReqInput};
use crate::telemetry::labels::RequestEndpoint;

/// A text to embed as the APIs hand it over; SGLang's `EmbeddingReqInput` for one text.
#[derive(Debug, Clone)]
pub struct EmbeddingReqInput {
    /// The caller's rid, or a fresh one.
    pub rid: Rid,
    /// What to embed. A text gets the tokens around it that the model wants; ids are taken as they are.
    pub input: Prompt,
    /// What becomes of a text that does not fit into the context.
    pub too_long: TooLong,
    /// Which API it came by, for metrics.
    pub endpoint: RequestEndpoint,
}

/// What becomes of a text that does not fit into the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooLong {
    /// It is refused.
    Refuse,
    /// Its end is left out: so many tokens stay, those around the text included, or as many as the context has.
    Truncate(Option<u32>),
}

impl TokenizerManager {
    /// Hands a user's text to the engine.
    ///
    /// # Errors
    /// Bad input, a model that does not embed, or a server that does not serve.
    pub async fn embed_request(&self, request: EmbeddingReqInput) -> Result<RequestStream, SubmitError> {
        let began = MonoNanos::now();
        let model = self.model()?;
        model.check_task(request.endpoint)?;
        let field = Fields::of(request.endpoint, &request.input).prompt;
        let input_ids = tokenize(&model, request.input, request.too_long, field).await?;
        let (serial, purpose) = (self.inner.table.next_serial(), Purpose::Serve);
        let input = TokenizedEmbeddingReqInput { rid: request.rid, serial, purpose, input_ids };
        let stream = self.submit(ToEngine::Embed(input), Purpose::Serve, Some(request.endpoint), began)?;
        Ok(stream.with_prompt_field(field))
    }
}

impl ServedModel {
    /// Does the API at `endpoint` fit the model?
    ///
    /// # Errors
    /// A generation API of an embedding model, or the reverse.
    pub fn check_task(&self, endpoint: RequestEndpoint) -> Result<(), SubmitError> {
        let name = &self.served_name;
        let message = match (self.info.task, endpoint.is_generation()) {
            (ModelTask::Generate, true) | (ModelTask::Embed { .. }, false) => return Ok(()),
            (ModelTask::Embed { .. }, true) => {
                format!("the model '{name}' embeds texts and generates none: use /v1/embeddings or /encode")
            }
            (ModelTask::Generate, false) => {
                format!("the model '{name}' generates text and embeds none: start the server with an embedding model")
            }
        };
        Err(SubmitError::Invalid { param: "model".to_owned(), message })
    }
}

/// Ids of the text, each one within the vocabulary, at least one, no more than the context has.
async fn tokenize(
    model: &Arc<ServedModel>,
    input: Prompt,
    too_long: TooLong,
    field: &str,
) -> Result<Vec<TokenId>, SubmitError> {
    let refused = |error: String| SubmitError::Invalid { param: field.to_owned(), message: error };
    let (mut ids, text) = match input {
        Prompt::Ids(ids) => (ids, false),
        Prompt::Text(text) if text.len() > INLINE_TOKENIZE_BYTES => {
            let model = Arc::clone(model);
            let encode = move || model.tokenizer.encode_for_embedding(&text);
            let encoded = tokio::task::spawn_blocking(encode).await;
            let encoded = encoded.map_err(|error| SubmitError::Failed(error.to_string()))?;
            (encoded.map_err(|error| refused(error.to_string()))?, true)
        }
        Prompt::Text(text) => {
            let encoded = model.tokenizer.encode_for_embedding(&text);
            (encoded.map_err(|error| refused(error.to_string()))?, true)
        }
        Prompt::Rendered(_) => return Err(refused("a chat cannot be embedded".to_owned())),
    };
    let context = model.info.context_length;
    match too_long {
        TooLong::Refuse => {}
        TooLong::Truncate(limit) => cut(&mut ids, limit.unwrap_or(context).min(context) as usize, text),
    }
    let tokens = ids.len();
    if tokens > context as usize {
        let message = format!("the text has {tokens} tokens, and at most {context} fit into the context");
        return Err(SubmitError::ContextLength { param: field.to_owned(), message });
    }
    check_ids(model, &ids, field)?;
    Ok(ids)
}

/// Leaves the end out. The last token of a text is the one that the model wants there, so it stays.
fn cut(ids: &mut Vec<TokenId>, limit: usize, text: bool) {
    if ids.len() > limit.max(1) {
        let last = ids.last().copied().filter(|_| text && limit > 1);
        ids.truncate(limit - usize::from(last.is_some()));
        ids.extend(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_token_of_a_text_stays() {
        let check = |len: u32, limit: usize, text: bool, want: &[u32]| {
            let mut ids: Vec<TokenId> = (0..len).map(TokenId).collect();
            cut(&mut ids, limit, text);
            assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), want, "{len} to {limit}");
        };
        check(5, 5, true, &[0, 1, 2, 3, 4]);
        check(5, 4, true, &[0, 1, 2, 4]);
        check(5, 2, true, &[0, 4]);
        check(5, 1, true, &[0]);
        check(5, 4, false, &[0, 1, 2, 3]);
        check(0, 4, true, &[]);
    }
}
