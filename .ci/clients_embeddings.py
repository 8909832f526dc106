"""Embeddings by the openai package and litellm, unmodified: `clients_embeddings.py URL`."""

import sys

import litellm
import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)

texts = ["the cat sat", "a quantum of light"]
packed = client.embeddings.create(model="default", input=texts)  # asks for base64 on its own
plain = client.embeddings.create(model="default", input=texts, encoding_format="float")
for a, b in zip(packed.data, plain.data, strict=True):
    assert a.index == b.index and len(a.embedding) == len(b.embedding) > 0
    assert max(abs(x - y) for x, y in zip(a.embedding, b.embedding)) < 1e-6
assert client.embeddings.create(model="default", input=[1, 2, 3]).usage.prompt_tokens == 3
answer = litellm.embedding(model="openai/default", api_base=f"{url}/v1", api_key="none", input=texts)
assert len(answer.data) == 2, answer
print("embeddings: work")
