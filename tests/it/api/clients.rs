//! A client that others wrote: async-openai, unmodified. Those in Python are in `.ci/clients`.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestSystemMessage, ChatCompletionRequestUserMessage, CreateChatCompletionRequest,
    CreateChatCompletionRequestArgs, FinishReason,
};
use futures::StreamExt;

use crate::support::Server;

fn hello(model: &str) -> CreateChatCompletionRequest {
    CreateChatCompletionRequestArgs::default()
        .model(model)
        .messages([
            ChatCompletionRequestSystemMessage::from("You are brief.").into(),
            ChatCompletionRequestUserMessage::from("Say hello.").into(),
        ])
        .temperature(0.0)
        .max_completion_tokens(12_u32)
        .build()
        .unwrap()
}

#[tokio::test]
async fn async_openai_chats() {
    let server = Server::start_default().await;
    let config = OpenAIConfig::new().with_api_base(server.url("/v1")).with_api_key("none");
    let client = Client::with_config(config);

    let answer = client.chat().create(hello("default")).await.unwrap();
    let text = answer.choices[0].message.content.clone().unwrap();
    assert!(!text.is_empty());
    assert!(matches!(answer.choices[0].finish_reason, Some(FinishReason::Stop | FinishReason::Length)));
    let usage = answer.usage.unwrap();
    assert_eq!(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);

    let mut stream = client.chat().create_stream(hello("default")).await.unwrap();
    let mut streamed = String::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.unwrap();
        streamed.extend(chunk.choices.iter().filter_map(|choice| choice.delta.content.as_deref()));
    }
    assert_eq!(streamed, text);

    match client.chat().create(hello("nosuch")).await {
        Err(OpenAIError::ApiError(error)) => assert!(format!("{error:?}").contains("model_not_found"), "{error:?}"),
        other => panic!("{other:?}"),
    }
}
