//! What a grammar lets through, and which grammars are refused.

use super::*;
use crate::io_struct::{ModelSource, ModelTask};
use crate::telemetry::labels::GrammarField;
use crate::tokenizer::bytes::{END_OF_TURN, VOCAB_SIZE};

/// A model whose tokens are bytes.
fn bytes() -> (Tokenizer, ModelInfo) {
    let source = ModelSource::Scripted(String::new());
    let info = ModelInfo {
        source: source.clone(),
        name: "bytes".to_owned(),
        architecture: "scripted".to_owned(),
        task: ModelTask::Generate,
        vocab_size: VOCAB_SIZE,
        context_length: 1,
        eos_token_ids: vec![END_OF_TURN],
        max_total_tokens: 1,
        kernels: None,
        kv_cache_dtype: None,
        weight_bytes: 0,
        load_seconds: 0.0,
    };
    (Tokenizer::for_source(&source).unwrap(), info)
}

pub fn following() -> Grammars {
    let (tokenizer, info) = bytes();
    Grammars::to_follow(tokenizer, &info).unwrap()
}

fn grammar(syntax: GrammarSyntax, text: &str) -> Grammar {
    Grammar { field: GrammarField::Ebnf, syntax, text: text.into() }
}

fn allows(mask: &TokenMask, token: TokenId) -> bool {
    mask.words()[token.index() / 32] >> (token.0 % 32) & 1 == 1
}

/// `Some(true)`: all of `text` follows, and nothing can come after it; `Some(false)`: it may end there or go on.
/// `None`: it does not follow, or may not end there.
fn matches(follower: &mut Follower, text: &str) -> Option<bool> {
    for byte in text.bytes() {
        let token = TokenId(byte.into());
        if !allows(&follower.mask().unwrap(), token) {
            return None;
        }
        if follower.take(token).unwrap() == Progress::Complete {
            return Some(true);
        }
    }
    allows(&follower.mask().unwrap(), END_OF_TURN).then_some(false)
}

#[test]
fn what_follows_a_grammar() {
    let grammars = following();
    let check = |syntax, text: &str, output: &str, want: Option<bool>| {
        let mut follower = grammars.follow(&grammar(syntax, text)).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(matches(&mut follower, output), want, "{text} {output}");
    };
    check(GrammarSyntax::Regex, "[0-9]{3}", "123", Some(true));
    check(GrammarSyntax::Regex, "[0-9]{3}", "12", None);
    check(GrammarSyntax::Regex, "[0-9]+", "12", Some(false));
    check(GrammarSyntax::Regex, "(yes|no)/maybe", "yes/maybe", Some(true));
    check(GrammarSyntax::Regex, "é+", "éé", Some(false));
    let schema =
        r#"{"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"boolean"}},"required":["b","a"]}"#;
    check(GrammarSyntax::JsonSchema, schema, r#"{"b":7,"a":true"#, None);
    check(GrammarSyntax::JsonSchema, schema, r#"{"b":7,"c":"#, None);
    let closed = format!("{},\"additionalProperties\":false}}", schema.strip_suffix('}').unwrap());
    check(GrammarSyntax::JsonSchema, &closed, r#"{"b":7,"a":true}"#, Some(true));
    check(GrammarSyntax::JsonSchema, &closed, "{ \"b\" : -7,\n  \"a\" : false}", Some(true));
    check(GrammarSyntax::JsonSchema, &closed, r#"{"a":true"#, None);
    check(GrammarSyntax::JsonSchema, &closed, &format!("{{{}", " ".repeat(41)), None);
    check(GrammarSyntax::JsonSchema, r#"{"enum":["x",1,null]}"#, "null", Some(true));
    check(GrammarSyntax::Ebnf, "start: \"a\" | \"b\" start", "bba", Some(true));
    let gbnf = "# an answer\nroot ::= yes-No | \"(\" root \")\"\nyes-No ::= (\"y\" | [^\\]a-y\\/])\n  word{2}\nword ::= \" \" [a-z]+";
    check(GrammarSyntax::Ebnf, gbnf, "(y ab cd)", Some(true));
    check(GrammarSyntax::Ebnf, gbnf, "(z a b)", Some(true));
    check(GrammarSyntax::Ebnf, gbnf, "(/", None);
}

/// Two tags behind one trigger, and one behind another.
fn tags() -> Value {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false});
    json!({
        "structures": [
            {"begin": "<f=\"a\">", "schema": schema, "end": "</f>"},
            {"begin": "<f=b>", "schema": {"enum": [1, 2]}, "end": ""},
            {"begin": "[", "schema": {"type": "boolean"}, "end": "]"},
        ],
        "triggers": ["<f=", "["],
    })
}

#[test]
fn what_follows_structural_tags() {
    let grammars = following();
    let check = |tags: &Value, output: &str, want: Option<bool>| {
        let mut follower = grammars.follow(&grammar(GrammarSyntax::StructuralTag, &tags.to_string())).unwrap();
        assert_eq!(matches(&mut follower, output), want, "{output}");
    };
    let old = tags();
    for (output, want) in [
        ("", Some(false)),
        ("no tag\nat all, </f> < <f <f[", None),
        ("no tag\nat all, </f> < <f", Some(false)),
        (r#"é <f="a">{"n":7}</f> and <f=b>2[true]."#, Some(false)),
        (r#"<f="a">{"n":"#, None),
        (r#"<f="a">{"m":7}</f>"#, None),
        (r#"<f="a">{"n":7}</g>"#, None),
        ("<f=c>", None),
        ("<f=b>3", None),
        ("x[7]", None),
    ] {
        check(&old, output, want);
    }
    let boolean = json!({"type": "json_schema", "json_schema": {"type": "boolean"}});
    let new = |at_least_one: bool, stop_after_first: bool| {
        let tags = json!([{"type": "tag", "begin": "<a>", "content": boolean, "end": "</a>"}]);
        json!({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<a>", "<a"], "tags": tags,
            "at_least_one": at_least_one, "stop_after_first": stop_after_first}})
    };
    check(&new(false, false), "x<a>true</a>x<a>false</a>", Some(false));
    check(&new(true, false), "x", None);
    check(&new(true, false), "<a>true</a>x<a>false</a>x", Some(false));
    check(&new(false, true), "x", Some(false));
    check(&new(false, true), "x<a>true</a>", Some(true));
    check(&new(true, true), "<a>true</a>", Some(true));
}

#[test]
fn an_end_of_turn_is_taken_where_the_grammar_may_end() {
    let grammars = following();
    let mut follower = grammars.follow(&grammar(GrammarSyntax::Regex, "a*")).unwrap();
    assert_eq!(follower.take(TokenId(97)), Ok(Progress::Open));
    assert_eq!(follower.take(END_OF_TURN), Ok(Progress::Complete));
    let mut follower = grammars.follow(&grammar(GrammarSyntax::Regex, "ab")).unwrap();
    assert!(follower.take(TokenId(98)).is_err(), "not what comes first");
}

#[test]
fn grammars_that_are_refused() {
    let (tokenizer, info) = bytes();
    let grammars = Grammars::to_check(&tokenizer, &info).unwrap();
    let check = |syntax, text: &str, why: &str| {
        let error = grammars.follow(&grammar(syntax, text)).err().unwrap_or_else(|| panic!("{text} is taken"));
        assert!(error.0.contains(why), "{text}: {error}");
    };
    check(GrammarSyntax::Regex, "(", "");
    check(GrammarSyntax::Regex, &"(".repeat(100_000), "");
    check(GrammarSyntax::JsonSchema, "{", "not JSON");
    check(GrammarSyntax::JsonSchema, "7", "object");
    check(GrammarSyntax::JsonSchema, "false", "object");
    check(GrammarSyntax::JsonSchema, r#"{"type":"nosuch"}"#, "nosuch");
    check(GrammarSyntax::JsonSchema, r#"{"type":"string","pattern":"("}"#, "");
    check(GrammarSyntax::JsonSchema, r#"{"not":{"type":"string"},"type":"string"}"#, "");
    check(GrammarSyntax::JsonSchema, r#"{"$ref":"http://localhost/nosuch.json"}"#, "");
    check(GrammarSyntax::Ebnf, "", "");
    check(GrammarSyntax::Ebnf, "start: nosuch", "nosuch");
    check(GrammarSyntax::Ebnf, &format!("start: {}", "(".repeat(100_000)), "");
    check(GrammarSyntax::Ebnf, "a ::= \"b\"", "root");
    check(GrammarSyntax::Ebnf, "root ::= \"b", "missing");
    check(GrammarSyntax::Ebnf, "root ::= b!", "'!'");
    let tag = |pairs: &[(&str, Value)]| {
        let mut tags = tags();
        pairs.iter().for_each(|(field, value)| tags[*field] = value.clone());
        tags.to_string()
    };
    check(GrammarSyntax::StructuralTag, "x", "expected value");
    check(GrammarSyntax::StructuralTag, "{}", "structures and triggers");
    check(GrammarSyntax::StructuralTag, &tag(&[("format", json!({"type": "any_text"}))]), "any_text");
    check(GrammarSyntax::StructuralTag, &tag(&[("triggers", json!([]))]), "triggers");
    check(GrammarSyntax::StructuralTag, &tag(&[("triggers", json!(["<f=", "[", ""]))]), "triggers");
    check(GrammarSyntax::StructuralTag, &tag(&[("triggers", json!(["<f="]))]), "\"[\" begins with none");
    check(GrammarSyntax::StructuralTag, &tag(&[("triggers", json!(["<f=", "[", "x"]))]), "trigger \"x\"");
    check(
        GrammarSyntax::StructuralTag,
        &tag(&[("structures", json!([{"begin": "[", "end": 1}]))]),
        "structures[0].end",
    );
    let bad = json!([{"begin": "<f=", "schema": {"type": "nosuch"}, "end": ""}, {"begin": "[", "end": ""}]);
    check(GrammarSyntax::StructuralTag, &tag(&[("structures", bad)]), "nosuch");
    check(GrammarSyntax::Ebnf, &"x".repeat(MAX_GRAMMAR_BYTES + 1), "the limit is 1048576");
}
