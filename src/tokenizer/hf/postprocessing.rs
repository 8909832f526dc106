//! What is put around a text, looked through before it is used: the library looks names up without asking whether they
//! are there.

use serde_json::Value;
use tokenizers::Tokenizer;

/// Refuses a template that names a special token which it does not define, or a second text where there is only one.
///
/// # Errors
/// What is wrong with it.
pub(super) fn refuse_unsound(tokenizer: &Tokenizer) -> Result<(), String> {
    let processor = serde_json::to_value(tokenizer.get_post_processor()).map_err(|error| error.to_string())?;
    check(&processor)
}

fn check(processor: &Value) -> Result<(), String> {
    for inner in items(&processor["processors"]) {
        check(inner)?;
    }
    let pieces = ["single", "pair"].into_iter().flat_map(|form| items(&processor[form]));
    for token in pieces.filter_map(|piece| piece["SpecialToken"]["id"].as_str()) {
        if processor["special_tokens"][token].is_null() {
            return Err(format!("post_processor: the special token {token:?} is used, and not defined"));
        }
    }
    if items(&processor["single"]).any(|piece| piece["Sequence"]["id"] == "B") {
        return Err("post_processor: single names a second text".to_owned());
    }
    Ok(())
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates() {
        let cls = json!({"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}});
        let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
        let text = |id: &str| json!({"Sequence": {"id": id, "type_id": 0}});
        let template = |single: &[Value], pair: &[Value]| json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": cls});
        let sound = template(&[token("[CLS]"), text("A")], &[text("A"), text("B")]);
        for sound in
            [&sound, &json!({"type": "Sequence", "processors": [sound]}), &json!({"type": "ByteLevel"}), &Value::Null]
        {
            assert_eq!(check(sound), Ok(()), "{sound}");
        }
        let unknown = template(&[token("[SEP]"), text("A")], &[]);
        for (wrong, want) in [
            (&unknown, "[SEP]"),
            (&template(&[text("A")], &[token("[SEP]")]), "[SEP]"),
            (&json!({"type": "Sequence", "processors": [{"type": "ByteLevel"}, unknown]}), "[SEP]"),
            (&template(&[text("A"), text("B")], &[]), "second text"),
        ] {
            assert!(check(wrong).is_err_and(|message| message.contains(want)), "{wrong}");
        }
    }
}
