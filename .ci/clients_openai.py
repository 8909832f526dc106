"""The openai and litellm packages, unmodified, against a server that runs: `clients_openai.py URL`."""

import sys

import litellm
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
hello = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}]


def chat():
    answer = client.chat.completions.create(model="default", messages=hello, max_tokens=12, temperature=0, logprobs=True)
    text, usage = answer.choices[0].message.content, answer.usage
    assert text and answer.choices[0].finish_reason in ("stop", "length"), answer
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    assert len(answer.choices[0].logprobs.content) == usage.completion_tokens, answer
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model="default", messages=hello, max_tokens=12, temperature=0, stream=True, stream_options=options
    )
    chunks = list(stream)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text, (streamed, text)
    assert chunks[-1].usage.completion_tokens == usage.completion_tokens, chunks[-1]


def completions():
    answer = client.completions.create(model="default", prompt=["Once upon", "A cat"], max_tokens=6, n=2, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3], answer
    assert answer.choices[0].text.startswith("Once upon"), answer
    stream = client.completions.create(model="default", prompt="Once upon", max_tokens=6, stream=True, logprobs=2)
    pieces = list(stream)
    assert pieces[-1].choices[0].finish_reason, pieces[-1]
    assert sum(len(piece.choices[0].logprobs.tokens) for piece in pieces if piece.choices[0].logprobs) == 6


def models():
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id


def errors():
    def raises(kind, **fields):
        body = {"model": "default", "messages": hello, "max_tokens": 1} | fields
        try:
            client.chat.completions.create(**body)
        except kind as error:
            assert error.body["message"], error.body
            return error
        raise AssertionError(f"{fields} is no {kind}")

    assert raises(openai.BadRequestError, temperature=-1).param == "temperature"
    assert raises(openai.BadRequestError, max_tokens=10_000_000).code == "context_length_exceeded"
    assert raises(openai.NotFoundError, model="nosuch").code == "model_not_found"
    try:
        client.embeddings.create(model="default", input="a")
    except openai.BadRequestError as error:
        assert "embed" in error.message, error
    else:
        raise AssertionError("a model that generates does not embed")
    try:
        client.responses.create(model="default", input="a")
    except openai.InternalServerError as error:
        assert error.status_code == 501, error


def cut_off():
    with client.chat.completions.create(model="default", messages=hello, max_tokens=2000, stream=True) as stream:
        next(iter(stream))


def through_litellm():
    fields = {"model": "openai/default", "api_base": f"{url}/v1", "api_key": "none", "messages": hello, "max_tokens": 8}
    answer = litellm.completion(**fields, temperature=0)
    assert answer.choices[0].message.content and answer.usage.completion_tokens, answer
    streamed = "".join(c.choices[0].delta.content or "" for c in litellm.completion(**fields, temperature=0, stream=True))
    assert streamed == answer.choices[0].message.content, streamed
    answer = litellm.text_completion(
        model="text-completion-openai/default", api_base=f"{url}/v1", api_key="none", prompt="Once upon", max_tokens=4
    )
    assert answer.choices[0].text, answer
    try:
        litellm.completion(**(fields | {"max_tokens": 10_000_000}))
    except litellm.BadRequestError as error:
        assert error.status_code == 400, error
    else:
        raise AssertionError("no error")


for check in (chat, completions, models, errors, cut_off, through_litellm):
    check()
    print(f"{check.__name__}: works")
