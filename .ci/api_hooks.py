"""What schemathesis cannot know: the name of the model that the server has, and how long answers take."""

import schemathesis

LIMITS = {"max_tokens": 8, "max_completion_tokens": 8, "max_new_tokens": 8, "n": 2, "best_of": 2}


@schemathesis.hook
def map_body(context, body):
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("model"), str):
        body["model"] = "default"
    if "messages" in body:
        body.setdefault("max_tokens", 8)
    nested = body.get("sampling_params")
    for fields in (body, *(nested if isinstance(nested, list) else [nested])):
        if isinstance(fields, dict):
            shorten(fields)
    return body


def shorten(fields):
    """What is wrong stays wrong; what is right is not too long."""
    for name, limit in LIMITS.items():
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and limit < value <= 128:
            fields[name] = limit
