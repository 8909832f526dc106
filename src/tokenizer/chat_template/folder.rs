//! The chat template of a folder: a file of its own, or a text in `tokenizer_config.json`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tokenizer::TokenizerError;

/// A template and the tokens that it may write.
pub(super) struct Source {
    pub(super) template: String,
    pub(super) bos_token: Option<String>,
    pub(super) eos_token: Option<String>,
}

/// Reads the template; `None` if the folder has none.
pub(super) fn read(folder: &Path) -> Result<Option<Source>, TokenizerError> {
    let path = folder.join("tokenizer_config.json");
    let config: Value = match text(&path)? {
        Some(text) => serde_json::from_str(&text).map_err(|error| failed(&path, error.to_string()))?,
        None => Value::Null,
    };
    let own = text(&folder.join("chat_template.jinja"))?;
    let Some(template) = own.or_else(|| named(&config["chat_template"])) else { return Ok(None) };
    Ok(Some(Source { template, bos_token: token(&config["bos_token"]), eos_token: token(&config["eos_token"]) }))
}

/// One text, or several with names, of which that called `default` is for chats.
fn named(template: &Value) -> Option<String> {
    let several = || template.as_array()?.iter().find(|it| it["name"] == "default")?["template"].as_str();
    template.as_str().or_else(several).map(str::to_owned)
}

/// A token is a text, or an object around one.
fn token(token: &Value) -> Option<String> {
    token.as_str().or_else(|| token["content"].as_str()).map(str::to_owned)
}

fn text(path: &Path) -> Result<Option<String>, TokenizerError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, error.to_string())),
    }
}

fn failed(path: &Path, message: String) -> TokenizerError {
    TokenizerError::File { path: path.display().to_string(), message }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn where_a_template_may_stand() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tokenizer_config.json");
        let check = |content: Value, want: Option<(&str, Option<&str>)>| {
            fs::write(&config, content.to_string()).unwrap();
            let source = read(folder.path()).unwrap();
            assert_eq!(source.as_ref().map(|it| (it.template.as_str(), it.eos_token.as_deref())), want, "{content}");
        };
        assert!(read(folder.path()).unwrap().is_none());
        check(json!({"eos_token": "</s>"}), None);
        check(json!({"chat_template": "a", "eos_token": "</s>"}), Some(("a", Some("</s>"))));
        check(json!({"chat_template": "a", "eos_token": {"content": "</s>"}}), Some(("a", Some("</s>"))));
        let several = json!([{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]);
        check(json!({"chat_template": several}), Some(("d", None)));
        check(json!({"chat_template": []}), None);
        fs::write(folder.path().join("chat_template.jinja"), "own").unwrap();
        check(json!({"chat_template": "a"}), Some(("own", None)));
        fs::write(&config, "{").unwrap();
        assert!(matches!(read(folder.path()), Err(TokenizerError::File { .. })));
    }
}
