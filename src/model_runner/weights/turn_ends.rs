//! Tokens with which a chat template ends a turn, whatever the keys of the file call the end of a text.

/// What the templates of chat models write behind a turn.
const TURN_ENDS: [&str; 8] =
    ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "</s>"];

/// Those that `template` itself writes: the model has learnt to say them when its turn is over.
pub(super) fn of_template(template: &str) -> impl Iterator<Item = &'static str> {
    TURN_ENDS.into_iter().filter(|end| template.contains(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let ends = |template| of_template(template).collect::<Vec<_>>();
        assert_eq!(ends("{{ '<|im_start|>' + message.content + '<|im_end|>' }}"), ["<|im_end|>"]);
        assert_eq!(ends("{{ content }}<|eot_id|>{{ call }}<|eom_id|>"), ["<|eot_id|>", "<|eom_id|>"]);
        assert!(ends("{{ message.content }}{{ eos_token }}").is_empty(), "a key names it");
    }
}
