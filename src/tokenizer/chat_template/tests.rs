//! Golden renders, and users who type control tokens.

use serde_json::json;

use super::*;
use crate::io_struct::TokenId;
use crate::tokenizer::gguf::tests::model_file;

fn real() -> (ChatTemplate, Tokenizer) {
    let source = ModelSource::Gguf(model_file());
    (ChatTemplate::for_source(&source).unwrap().expect("SmolLM2 has one"), Tokenizer::for_source(&source).unwrap())
}

/// `<|end|>` is the only control token.
fn scripted() -> Tokenizer {
    Tokenizer::for_source(&ModelSource::Scripted(String::new())).unwrap()
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::compile(source, Some("<|end|>".to_owned()), None).unwrap()
}

/// Control tokens as `[id]`, text as it is.
fn show(parts: &[PromptPart]) -> String {
    let one = |part: &PromptPart| match part {
        PromptPart::Control(id) => format!("[{id}]"),
        PromptPart::Text(text) => text.clone(),
    };
    parts.iter().map(one).collect()
}

#[test]
fn the_default_models_template() {
    let (template, tokenizer) = real();
    let check = |messages: Value, want: &str| {
        assert_eq!(show(&template.render(messages.as_array().unwrap(), &tokenizer).unwrap()), want);
    };
    check(
        json!([{"role": "user", "content": "  What is 2+2? "}]),
        "[1]system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face[2]\n\
         [1]user\n  What is 2+2? [2]\n[1]assistant\n",
    );
    check(
        json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": ""}]),
        "[1]system\ns[2]\n[1]user\nu[2]\n[1]assistant\n[2]\n[1]assistant\n",
    );
    check(
        json!([{"role": "system", "content": "<|im_end|>"}, {"role": "user", "content": "a<|im_start|><|im_end|>b<|im_"}]),
        "[1]system\n<|im_end|>[2]\n[1]user\na<|im_start|><|im_end|>b<|im_[2]\n[1]assistant\n",
    );
}

#[test]
fn what_users_type_is_never_a_control_token() {
    // Templates that write text directly before and behind what the user typed.
    let templates = [
        "{{ messages[0].content }}",
        "<{{ messages[0].content }}>",
        "<|{{ messages[0].content | trim }}|>",
        "<|en{{ messages[0].content.strip() }}d|>",
        "{{ messages[0].content }}{{ messages[0].content }}",
        "{{ messages[0].name }}<|e{{ messages[0].role }}d|>",
    ];
    let typed = [
        "<|end|>",
        "<|end",
        "|end|>",
        "end",
        "n",
        "|",
        "<",
        ">",
        "<<|end|>>",
        " <|end|> ",
        " end ",
        "d|>",
        "d|><|en",
        "\n>",
        "<|<|end|>",
        "<|end|><|end|>",
        "<\u{fdd0}|end|>",
        "\u{fdd0}",
    ];
    for (source, typed) in templates.iter().flat_map(|source| typed.map(|typed| (source, typed))) {
        let message = json!({"role": typed, "content": typed, "name": typed});
        let plain = template(source).render_text(std::slice::from_ref(&message), &json!([]), &json!({})).unwrap();
        let parts = template(source).render(&[message], &scripted()).unwrap();
        assert!(parts.iter().all(|part| matches!(part, PromptPart::Text(_))), "{source} {typed:?}: {parts:?}");
        assert_eq!(show(&parts), plain, "{source} {typed:?}: nothing is lost or added");
    }
}

#[test]
fn only_known_roles_make_control_tokens() {
    let tokenizer = scripted();
    let source = template("<|{{ messages[0].role }}|>{{ bos_token }}");
    let parts = source.render(&[json!({"role": "end", "content": ""})], &tokenizer).unwrap();
    assert_eq!(parts, [PromptPart::Text("<|end|>".to_owned()), PromptPart::Control(TokenId(256))]);
}

#[test]
fn every_noncharacter_at_once_is_refused() {
    let all: String = shield::noncharacters().collect();
    assert_eq!(all.chars().count(), 66);
    let refused = template("{{ messages[0].content }}").render(&[json!({"content": all})], &scripted());
    assert!(refused.unwrap_err().contains("noncharacter"));
}

#[test]
fn a_template_refuses_in_its_own_words() {
    let check = |source: &str, want: &str| {
        let error = template(source).render(&[json!({"role": "system", "content": "s"})], &scripted()).unwrap_err();
        assert!(error.contains(want), "{source}: {error}");
    };
    check("{{ raise_exception('no system role') }}", "no system role");
    check("{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{{ m() }}", "deep");
    check("{{ messages[0].nosuch.deeper }}", "the chat template fails");
    check("{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}", "too much work");
    check(
        "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s * 2 %}{% endfor %}",
        "too much work",
    );
    assert_eq!(
        template("{{ raise_exception('exact') }}").render(&[], &scripted()).unwrap_err(),
        "exact",
        "nothing is put around the template's words"
    );
}

#[test]
fn a_broken_template_does_not_compile() {
    let error = ChatTemplate::compile("{% for %}", None, None).unwrap_err().to_string();
    assert!(error.contains("does not compile"), "{error}");
}

#[test]
fn templates_written_for_python_work() {
    let source = "{%- for m in messages %}\n    {%- if loop.last %}{% break %}{% endif %}\n{{ m['role'].upper() + m.content.strip() }}\
                  {{ m.content.split('+')[0].startswith(' W') }}{%- endfor %}{{ messages[::-1][0].role }}\
                  {% set ns = namespace(found=false) %}{% if tools is none %} {{ {'a': 1}|tojson }}{% endif %}";
    let messages = [json!({"role": "user", "content": " W+ "}), json!({"role": "assistant", "content": null})];
    let parts = template(source).render(&messages, &scripted()).unwrap();
    assert_eq!(show(&parts), "USERW+Trueassistant {\"a\": 1}");
}

#[test]
fn a_long_chat_is_not_refused_for_its_work() {
    let (template, tokenizer) = real();
    let content = "word ".repeat(600_000);
    assert_eq!(template.render(&[json!({"role": "user", "content": content})], &tokenizer).unwrap().len(), 10);
    let turns = vec![json!({"role": "user", "content": "a"}); 20_000];
    assert!(template.render(&turns, &tokenizer).is_ok());
}

#[test]
fn the_scripted_model_has_no_template() {
    assert!(ChatTemplate::for_source(&ModelSource::Scripted(String::new())).unwrap().is_none());
}

#[test]
fn variables_of_the_caller_reach_the_template_and_write_no_control_tokens() {
    let tokenizer = scripted();
    let template = template("{% if loud %}!{% endif %}{{ style }}{{ messages[0].content }}");
    let render = |extra: Value| {
        let messages = [json!({"role": "user", "content": "a"})];
        show(&template.render_with(&messages, &[], extra.as_object().unwrap(), &tokenizer).unwrap())
    };
    assert_eq!(render(json!({})), show(&template.render(&[json!({"content": "a"})], &tokenizer).unwrap()));
    let plain = |text: &str| show(&[PromptPart::Text(text.to_owned())]);
    assert_eq!(render(json!({"loud": true, "style": "x"})), plain("!xa"));
    assert_eq!(render(json!({"style": "<|end|>", "messages": []})), plain("<|end|>a"));
}

#[test]
fn tools_are_shown_as_python_writes_json() {
    let tools = [json!({"type": "function", "function": {"name": "a<b", "tags": ["é", 1, null], "end": "<|end|>"}})];
    let show = |source: &str, tools: &[Value]| {
        let parts = template(source).render_with(&[], tools, &Map::new(), &scripted()).unwrap();
        assert!(parts.iter().all(|part| matches!(part, PromptPart::Text(_))), "{parts:?}");
        show(&parts)
    };
    let source = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% else %}none{% endif %}";
    let json = r#"{"type": "function", "function": {"name": "a<b", "tags": ["é", 1, null], "end": "<|end|>"}}"#;
    assert_eq!((show(source, &tools), show(source, &[])), (json.to_owned(), "none".to_owned()));
    let indented = show("{{ tools[0].function.tags | tojson(indent=2) }}", &tools);
    assert_eq!(indented, "[\n  \"é\",\n  1,\n  null\n]");
}
