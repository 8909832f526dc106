"""Whether the other pages can be believed: scrapes, traces, logs, rules."""

from .board import dashboard, document, runbook
from .panels import GREEN, RED, Json, Panel, Query, lines, stat, steps, timeline
from .promql import increase, rate, series, sum_by


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "radiosonde-telemetry", "radiosonde: Telemetry health",
        "Can you believe the other pages? Holes in scrapes, lost spans and dead rules look like good health. Read this "
        "page first when everything is green and users complain.",
        [("Scrapes", _scrapes()), ("Traces", _traces()), ("Logs", _logs()), ("Prometheus", _prometheus())],
    )


def _scrapes() -> list[Panel]:
    return [
        timeline("Is it scraped?", "Does Prometheus reach each instance? Red: every other panel of this instance is old or "
                 "empty. No line at all: discovery has lost it.",
                 "short", Query(f"max by (instance) ({series('up')})", "{{instance}}"),
                 thresholds=steps((None, RED), (1, GREEN)),
                 mappings=[{"type": "value", "options": {"0": {"text": "no", "index": 0},
                                                         "1": {"text": "yes", "index": 1}}}],
                 width=8, links=[runbook("RadiosondeDown")]),
        lines("Duration of a scrape", "Is /metrics still quick? Milliseconds are normal, whatever the engine does. Above a "
              "second the host is starved; near the scrape timeout holes appear.",
              "s", Query(series("scrape_duration_seconds"), "{{instance}}"), width=8,
              links=[runbook("RadiosondeScrapeSlow")]),
        lines("Samples of a scrape", "Do labels explode? The count is flat from the first scrape on: every legal "
              "combination is there from the start. Growth is a defect, report it.",
              "short", Query(series("scrape_samples_scraped"), "{{instance}}"), width=8),
    ]


def _traces() -> list[Panel]:
    dropped = f"{sum_by('instance, reason', increase('radiosonde_trace_spans_dropped_total'))} > 0"
    return [
        lines("Spans", "Do traces leave? Exported went to the collector, unsampled was left out on purpose. Exported at zero "
              "while probes run: no collector is configured, or it is gone.",
              "short", Query(sum_by("instance", rate("radiosonde_trace_spans_exported_total")), "{{instance}} exported/s"),
              Query(sum_by("instance", rate("radiosonde_trace_spans_unsampled_total")), "{{instance}} unsampled/s"),
              width=8),
        lines("Spans lost", "Do traces have holes? queue_full: more than the exporter can send. export_failed: the collector "
              "refuses or does not answer. Dots and links to these traces lead nowhere. Empty is good.",
              "short", Query(dropped, "{{instance}} {{reason}}"), stacked=True, bars=True, color=RED, width=8,
              links=[runbook("RadiosondeSpansDropped")]),
        lines("Spans that wait", "Does the export keep up? Near the queue's size of 2048 spans will be lost next.",
              "short", Query(series("radiosonde_trace_spans_queued"), "{{instance}}"), width=8),
    ]


def _logs() -> list[Panel]:
    dropped = f"{sum_by('instance, reason', increase('radiosonde_log_records_dropped_total'))} > 0"
    return [
        lines("Log records exported", "Do logs leave by OTLP? Zero if that is not configured; standard error has them all "
              "the same.",
              "short", Query(sum_by("instance", rate("radiosonde_log_records_exported_total")), "{{instance}} records/s"),
              width=8, links=[document("Monitoring", "monitoring.md")]),
        lines("Log records lost", "Are there holes in the exported logs? As for spans. Empty is good.",
              "short", Query(dropped, "{{instance}} {{reason}}"), stacked=True, bars=True, color=RED, width=8,
              links=[runbook("RadiosondeLogsDropped")]),
        lines("Lines suppressed", "Is something repeating itself? The rate limit left these lines out; the last one that was "
              "written says what it is.",
              "short", Query(sum_by("instance", increase("radiosonde_log_lines_suppressed_total")), "{{instance}}"),
              bars=True, width=8),
    ]


def _prometheus() -> list[Panel]:
    failures = "sum by (instance) (increase(prometheus_rule_evaluation_failures_total[$__rate_interval]))"
    dropped = "sum by (instance) (increase(prometheus_notifications_dropped_total[$__rate_interval]))"
    return [
        stat("Watchdog", "Do the rules run? The watchdog always fires. No value: rules are not loaded or not evaluated, and "
             "no alert of ours can reach you.",
             "none", Query('sum(ALERTS{alertname="RadiosondeWatchdog", alertstate="firing"}) or vector(0)', "watchdog"),
             thresholds=steps((None, RED), (1, GREEN)),
             mappings=[{"type": "value", "options": {"0": {"text": "silent", "index": 0},
                                                     "1": {"text": "fires", "index": 1}}}],
             width=8, links=[runbook("RadiosondeWatchdog")]),
        lines("Rules that fail", "Does Prometheus fail to evaluate rules? Anything above zero is an alert that cannot fire. "
              "Its log has the reason.",
              "short", Query(failures, "{{instance}}"), width=8),
        lines("Notifications lost", "Do alerts reach Alertmanager? Anything above zero is a page that was not sent.",
              "short", Query(dropped, "{{instance}}"), width=8),
    ]
