//! What is a call and what is text, however it is cut.

use super::*;

/// The text, and each call's name and arguments.
type Read = (String, Vec<(String, String)>);

fn gather(pieces: Vec<Piece>) -> Read {
    let (mut said, mut calls) = (String::new(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => said.push_str(&text),
            Piece::Call { index, name } => {
                assert_eq!(index as usize, calls.len());
                calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => {
                assert!(index as usize + 1 == calls.len() && !text.is_empty());
                calls[index as usize].1.push_str(&text);
            }
        }
    }
    (said, calls)
}

/// The same, whole, letter by letter and in pieces of every other size.
fn check(format: CallFormat, output: &str, said: &str, calls: &[(&str, &str)]) {
    let letters: Vec<char> = output.chars().collect();
    let calls: Vec<_> = calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect();
    for size in 1..=letters.len().max(1) {
        let mut stream = CallStream::new(format, vec!["f".to_owned(), "get weather".to_owned()], 8);
        let mut pieces: Vec<Piece> =
            letters.chunks(size).flat_map(|chunk| stream.push(&chunk.iter().collect::<String>())).collect();
        pieces.extend(stream.finish());
        assert_eq!(stream.has_calls(), !calls.is_empty());
        assert_eq!(gather(pieces), (said.to_owned(), calls.clone()), "{output} in pieces of {size}");
    }
}

#[test]
fn hermes() {
    let check = |output: &str, said: &str, calls: &[(&str, &str)]| check(CallFormat::Hermes, output, said, calls);
    check("", "", &[]);
    check("Just text, 1 < 2. \n", "Just text, 1 < 2. \n", &[]);
    let call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {}], \"b\": \"}\\\"{ é\"}}\n</tool_call>";
    let arguments = "{\"a\": [1, {}], \"b\": \"}\\\"{ é\"}";
    check(call, "", &[("f", arguments)]);
    check(&format!("Let me see.\n\n{call}\n{call}\n"), "Let me see.", &[("f", arguments), ("f", arguments)]);
    check(&format!("{call}Done."), "Done.", &[("f", arguments)]);
    check(
        "<tool_call>{\"arguments\":{\"a\":1},\"name\":\"get weather\"}</tool_call>",
        "",
        &[("get weather", "{\"a\":1}")],
    );
    check("<tool_call>{\"name\":\"f\",\"parameters\":{}}", "", &[("f", "{}")]);
    check("<tool_call>{\"name\":\"f\"}</tool_call>", "", &[("f", "{}")]);
    check("<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>", "", &[("f", "{}")]);
    check("<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>", "", &[("f", "{\"a\":1}")]);
}

#[test]
fn what_is_no_call_is_text() {
    let same = |output: &str| check(CallFormat::Hermes, output, output, &[]);
    same("<tool_call>nothing</tool_call>");
    same("<tool_call>\n{\"name\": \"nosuch\", \"arguments\": {}}\n</tool_call>");
    same("<tool_call>{\"arguments\": {}}</tool_call> and more");
    same("<tool_call>{\"na");
    same("<tool_call>");
    same("a <tool_cal");
    check(CallFormat::Hermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a", "", &[("f", "{\"a")]);
    check(CallFormat::Llama3, "{\"answer\": 4}", "{\"answer\": 4}", &[]);
    check(CallFormat::Llama3, "In JSON: {\"name\":\"f\"}", "In JSON: {\"name\":\"f\"}", &[]);
}

#[test]
fn llama_and_lists() {
    let call = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
    let f = ("f", "{\"a\": 1}");
    check(CallFormat::Llama3, call, "", &[f]);
    check(CallFormat::Llama3, &format!("\n{call}; {call}"), "", &[f, f]);
    check(CallFormat::Llama3, &format!("<|python_tag|>{call}"), "", &[f]);
    check(CallFormat::Llama3, &format!("Well. <|python_tag|>{call}"), "Well.", &[f]);
    check(CallFormat::Llama3, &format!("{call} That is it."), "That is it.", &[f]);
    check(CallFormat::List, &format!("[{call}, {call} ]"), "", &[f, f]);
    check(CallFormat::List, "[]", "", &[]);
    check(CallFormat::List, "[{\"name\": \"f\", \"parameters\": {\"a\"", "", &[("f", "{\"a\"")]);
    check(CallFormat::List, "no list", "no list", &[]);
}

#[test]
fn arguments_come_as_they_are_written() {
    let mut stream = CallStream::new(CallFormat::Hermes, vec!["f".to_owned()], 8);
    assert_eq!(stream.push("<tool_call>{\"name\": \"f"), []);
    assert_eq!(stream.push("\", \"argu"), [Piece::Call { index: 0, name: "f".to_owned() }]);
    assert_eq!(stream.push("ments\": {\"a\""), [Piece::Arguments { index: 0, text: "{\"a\"".to_owned() }]);
    assert_eq!(stream.push(": 1}"), [Piece::Arguments { index: 0, text: ": 1}".to_owned() }]);
    assert_eq!(stream.push(" }</tool_call>"), []);
}

#[test]
fn no_more_calls_than_are_wanted() {
    let mut stream = CallStream::new(CallFormat::Llama3, vec!["f".to_owned()], 1);
    let mut pieces = stream.push("{\"name\":\"f\",\"parameters\":{}};{\"name\":\"f\",\"parameters\":{\"a\":1}}");
    pieces.extend(stream.finish());
    assert_eq!(gather(pieces), (String::new(), vec![("f".to_owned(), "{}".to_owned())]));
}
