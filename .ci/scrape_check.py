"""Reads the pages of live servers with the parsers of Python's Prometheus client: scrape_check.py URL..."""

import sys
import urllib.request

from prometheus_client import parser as text
from prometheus_client.openmetrics import parser as openmetrics

FORMATS = [
    ("text/plain", "text/plain; version=0.0.4; charset=utf-8", text.text_string_to_metric_families),
    (
        "application/openmetrics-text; version=1.0.0",
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        openmetrics.text_string_to_metric_families,
    ),
]


def samples(url, accept, content_type, parse):
    """Every sample of the page: name, labels and value."""
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=5) as answer:
        assert answer.headers["Content-Type"] == content_type, answer.headers["Content-Type"]
        page = answer.read().decode()
    found = {}
    for family in parse(page):
        assert family.samples, f"{family.name} has no samples"
        assert family.documentation, f"{family.name} has no help"
        for sample in family.samples:
            # Edges are 1 in one format and 1.0 in the other.
            labels = {name: float(value) if name == "le" else value for name, value in sample.labels.items()}
            key = (sample.name, *sorted(labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    print(f"{url}: {content_type}: {len(found)} samples, {len(page)} bytes")
    return found


for url in sys.argv[1:]:
    in_text, in_openmetrics = (samples(url, *form) for form in FORMATS)
    assert in_text.keys() == in_openmetrics.keys(), in_text.keys() ^ in_openmetrics.keys()
