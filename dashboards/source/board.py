"""A whole dashboard: rows of panels, variables, annotations, and the links between them."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

from .panels import DATASOURCE, SCHEMA_VERSION, WIDTH, Json, Panel
from .promql import series

TAG = "radiosonde"
RUNBOOKS = "https://github.com/radiosonde/radiosonde/blob/main/docs/runbooks"
DOCS = "https://github.com/radiosonde/radiosonde/blob/main/docs"
JAEGER = "http://localhost:16686"


def runbook(alert: str) -> Json:
    """A link to what to do when `alert` fires."""
    return {"title": f"Runbook: {alert}", "url": f"${{runbooks}}/{alert}.md", "targetBlank": True}


def document(title: str, path: str) -> Json:
    """A link to a page of the documentation."""
    return {"title": title, "url": f"{DOCS}/{path}", "targetBlank": True}


def traces(title: str, service: str = "radiosonde", **tags: str) -> Json:
    """A link to Jaeger: the traces of this time range with `tags`, where `__` stands for a dot.

    Not by `error=true`: Jaeger makes that tag when it shows a span, and finds nothing by it.
    """
    wanted = {key.replace("__", "."): value for key, value in tags.items()}
    search = f"service={service}&start=${{__from}}000&end=${{__to}}000&limit=50"
    if wanted:
        # Grafana's variables stay as they are, to be filled in by Grafana.
        tags = quote(json.dumps(wanted, separators=(",", ":")))
        search += "&tags=" + re.sub(r"%24%7B([\w.]+)%7D", r"${\1}", tags)
    return {"title": title, "url": f"${{jaeger}}/search?{search}", "targetBlank": True}


def board(uid: str, title: str, link: str = "") -> Json:
    """A link to another dashboard of ours, with the time range and the variables kept."""
    instance = f"&var-instance=${{{link}}}" if link else "&${instance:queryparam}"
    url = f"/d/{uid}?${{__url_time_range}}&${{job:queryparam}}{instance}&${{datasource:queryparam}}"
    return {"title": title, "url": url, "targetBlank": False}


def dashboard(uid: str, title: str, description: str, rows: list[tuple[str, list[Panel]]]) -> Json:
    """Lays the rows out from top to bottom, each from left to right."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "weekStart": "",
        "links": [_other_dashboards()],
        "templating": {"list": _variables()},
        "annotations": {"list": _annotations()},
        "panels": list(_layout(rows)),
    }


def _layout(rows: list[tuple[str, list[Panel]]]) -> Any:
    number, y = 1, 0
    for title, panels in rows:
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "panels": [],
               "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}}
        number, y, x, height = number + 1, y + 1, 0, 0
        for panel in panels:
            if x + panel.width > WIDTH:
                y, x, height = y + height, 0, 0
            yield panel.json(number, x, y)
            number, x, height = number + 1, x + panel.width, max(height, panel.height)
        y += height


def _other_dashboards() -> Json:
    return {"type": "dashboards", "title": "radiosonde", "tags": [TAG], "asDropdown": False, "includeVars": True,
            "keepTime": True, "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}


def _variables() -> list[Json]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
         "hide": 0, "includeAll": False, "multi": False, "options": [], "regex": "", "skipUrlSync": False},
        _labels("job", "Job", "label_values(radiosonde_build_info, job)"),
        _labels("instance", "Instance", 'label_values(radiosonde_build_info{job=~"$job"}, instance)'),
        _constant("jaeger", "Address of Jaeger's pages", JAEGER),
        _constant("runbooks", "Address of the runbooks", RUNBOOKS),
    ]


def _labels(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2,
        "sort": 1,
        "hide": 0,
        "includeAll": True,
        "allValue": ".+",
        "multi": True,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "options": [],
        "regex": "",
        "skipUrlSync": False,
    }


def _constant(name: str, label: str, value: str) -> Json:
    return {"name": name, "label": label, "type": "constant", "query": value, "hide": 2, "skipUrlSync": True,
            "current": {"selected": False, "text": value, "value": value}, "options": []}


def _annotations() -> list[Json]:
    restarts = f"changes({series('process_start_time_seconds')}[$__rate_interval]) > 0"
    engines = f"increase({series('radiosonde_engine_restarts_total')}[$__rate_interval]) > 0"
    firing = series("ALERTS", 'alertstate="firing"', 'alertname=~"Radiosonde.+"', 'severity!="none"')
    return [
        {"name": "Annotations & Alerts", "type": "dashboard", "builtIn": 1, "enable": True, "hide": True,
         "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "iconColor": "rgba(0, 211, 255, 1)"},
        _annotation("Firing alerts", firing, "red", "{{alertname}}", "alertname,instance,hop,cause,severity"),
        _annotation("Server restarts", restarts, "purple", "server restarted", "instance"),
        _annotation("Engine restarts", engines, "orange", "engine restarted", "instance"),
    ]


def _annotation(name: str, expr: str, color: str, title: str, tags: str) -> Json:
    return {"name": name, "datasource": DATASOURCE, "enable": True, "hide": False, "expr": expr, "iconColor": color,
            "titleFormat": title, "textFormat": "{{instance}}", "tagKeys": tags, "step": "15s",
            "useValueForTime": False}
