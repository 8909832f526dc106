//! What HTTP holds: the request table and `last_receive_tstamp`.

pub mod submit;
pub mod request;
pub mod receive;
pub mod liveness;

use std::sync::Arc;

use crate::io_struct::ModelInfo;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::chat_template::ChatTemplate;
use request::RequestStream;
use submit::{GenerateReqInput, SubmitError};

/// A loaded model as the frontend knows it.
pub struct ServedModel {
    /// What the engine said of it.
    pub info: ModelInfo,
    /// `--served-model-name`, or the file's own name.
    pub served_name: String,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Its chat template; `None` means no chat.
    pub chat_template: Option<ChatTemplate>,
}

/// What HTTP holds. Cheap to clone.
#[derive(Clone)]
pub struct TokenizerManager {}

impl TokenizerManager {
    /// The model that is served.
    ///
    /// # Errors
    /// Nothing is served yet, or no longer.
    pub fn model(&self) -> Result<Arc<ServedModel>, SubmitError> {
        Err(SubmitError::EngineDead)
    }

    /// Hands a user's request to the engine.
    ///
    /// # Errors
    /// Bad input, or a server that does not serve.
    pub async fn generate_request(&self, _request: GenerateReqInput) -> Result<RequestStream, SubmitError> {
        Err(SubmitError::EngineDead)
    }
}
