//! Which tools may be called, and what forces a call.

use super::*;

fn check(body: Value) -> Result<Option<Tools>, ApiError> {
    let (choice, parallel) = (body.get("tool_choice").cloned(), body["parallel_tool_calls"].as_bool());
    ToolFields { tools: serde_json::from_value(body["tools"].clone()).unwrap(), choice, parallel }.check()
}

fn tools() -> Value {
    let point = json!({"type": "object", "properties": {"at": {"$ref": "#/$defs/point"}}, "$defs": {"point": {"type": "integer"}}});
    json!([
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": point, "strict": true}},
        {"function": {"name": "g"}}
    ])
}

#[test]
fn who_decides_on_a_call() {
    let choose = |choice: Value| check(json!({"tools": tools(), "tool_choice": choice})).unwrap();
    assert!(choose(json!("none")).is_none());
    for choice in [json!(null), json!("auto")] {
        assert!(choose(choice).unwrap().grammar().unwrap().is_none());
    }
    assert!(check(json!({"tools": [], "tool_choice": "auto"})).unwrap().is_none());
    assert!(check(json!({"tools": null})).unwrap().is_none());
    let schema = |tools: Tools| -> Value { serde_json::from_str(&tools.grammar().unwrap().unwrap().text).unwrap() };
    let named = schema(choose(json!({"type": "function", "function": {"name": "g"}})).unwrap());
    assert_eq!(
        (&named["maxItems"], &named["items"]["anyOf"][0]["properties"]["name"]),
        (&json!(1), &json!({"const": "g"}))
    );
    let required = schema(choose(json!("required")).unwrap());
    assert_eq!(required["items"]["anyOf"].as_array().unwrap().len(), 2);
    assert_eq!((&required["maxItems"], &required["minItems"]), (&Value::Null, &json!(1)));
    assert_eq!(required["$defs"], json!({"point": {"type": "integer"}}), "where references look for it");
    let one =
        check(json!({"tools": tools(), "tool_choice": "required", "parallel_tool_calls": false})).unwrap().unwrap();
    assert_eq!(schema(one)["maxItems"], 1);
}

#[test]
fn templates_see_what_was_sent() {
    let seen = check(json!({"tools": tools()})).unwrap().unwrap().for_template();
    let keys: Vec<&str> = seen[0]["function"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        (keys, &seen[1]),
        (vec!["name", "description", "parameters"], &json!({"type": "function", "function": {"name": "g"}}))
    );
}

#[test]
fn what_is_refused() {
    let refuse =
        |body: Value, param: &str| assert_eq!(check(body.clone()).unwrap_err().param.as_deref(), Some(param), "{body}");
    let function = |name: &str| json!({"function": {"name": name}});
    refuse(json!({"tool_choice": "required"}), "tool_choice");
    refuse(json!({"tool_choice": {"type": "function", "function": {"name": "f"}}}), "tool_choice");
    refuse(json!({"tools": tools(), "tool_choice": "nosuch"}), "tool_choice");
    refuse(json!({"tools": tools(), "tool_choice": {"function": {"name": "h"}}}), "tool_choice");
    refuse(json!({"tools": [{"type": "nosuch", "function": {"name": "f"}}]}), "tools[0].type");
    refuse(json!({"tools": [function("a"), function("")]}), "tools[1].function.name");
    refuse(json!({"tools": [function("a"), function("a")]}), "tools[1].function.name");
    refuse(json!({"tools": [function(&"a".repeat(129))]}), "tools[0].function.name");
    refuse(json!({"tools": [{"function": {"name": "a", "parameters": 7}}]}), "tools[0].function.parameters");
    refuse(json!({"tools": (0..129).map(|i| function(&i.to_string())).collect::<Vec<_>>()}), "tools");
    let mut clash = tools();
    clash[1]["function"]["parameters"] = json!({"$defs": {"point": {"type": "string"}}});
    let clash = check(json!({"tools": clash, "tool_choice": "required"})).unwrap().unwrap();
    assert_eq!(clash.grammar().unwrap_err().param.as_deref(), Some("tools"));
    let auto = check(json!({"tools": tools()})).unwrap().unwrap();
    assert_eq!(auto.format(None, None).unwrap_err().param.as_deref(), Some("tools"));
    assert_eq!(auto.format(Some(CallFormat::Hermes), None), Ok(CallFormat::Hermes));
}
