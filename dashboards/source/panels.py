"""Panels, rows and dashboards as Grafana's classic JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
SCHEMA_VERSION = 39
WIDTH = 24

GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"


@dataclass
class Query:
    """One expression of a panel."""

    expr: str
    legend: str = ""
    exemplar: bool = False
    instant: bool = False
    heatmap: bool = False

    def json(self, ref: str) -> Json:
        """The target with the name `ref`."""
        target: Json = {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "instant": self.instant,
            "legendFormat": self.legend or "__auto",
            "range": not self.instant,
            "refId": ref,
        }
        if self.exemplar:
            target["exemplar"] = True
        if self.heatmap:
            target["format"] = "heatmap"
        elif self.instant:
            target["format"] = "table"
        return target


@dataclass
class Panel:
    """One picture: the question it answers, and what to do about the answer."""

    title: str
    description: str
    kind: str
    unit: str
    queries: list[Query]
    width: int = 12
    height: int = 8
    custom: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: list[Json] = field(default_factory=list)
    options: Json = field(default_factory=dict)
    transformations: list[Json] = field(default_factory=list)
    links: list[Json] = field(default_factory=list)
    repeat: str = ""
    interval: str = ""

    def json(self, number: int, x: int, y: int) -> Json:
        """The panel at its place."""
        refs = (chr(ord("A") + i) for i in range(26))
        panel: Json = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {
                "defaults": {"unit": self.unit, "custom": self.custom, **self.defaults},
                "overrides": self.overrides,
            },
            "options": self.options,
            "targets": [query.json(ref) for query, ref in zip(self.queries, refs)],
        }
        if self.transformations:
            panel["transformations"] = self.transformations
        if self.links:
            panel["links"] = self.links
        if self.repeat:
            # Grafana shares the whole width among the copies, so nothing else may stand beside them.
            panel |= {"repeat": self.repeat, "repeatDirection": "h", "maxPerRow": 2}
        if self.interval:
            panel["interval"] = self.interval
        return panel


def steps(*pairs: tuple[float | None, str]) -> Json:
    """Thresholds: from each value on, the colour. The first value is None."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for value, color in pairs]}


def values(**texts: tuple[float, str]) -> list[Json]:
    """Texts and colours for single values: `up=(2, GREEN)`."""
    options = {
        str(value): {"text": text.replace("_", " "), "color": color, "index": index}
        for index, (text, (value, color)) in enumerate(texts.items())
    }
    return [{"type": "value", "options": options}]


def dashed(pattern: str, color: str = RED) -> Json:
    """Draws the series whose names match as a dashed line: a limit, not a measurement."""
    return {
        "matcher": {"id": "byRegexp", "options": pattern},
        "properties": [
            {"id": "custom.lineStyle", "value": {"dash": [8, 8], "fill": "dash"}},
            {"id": "custom.fillOpacity", "value": 0},
            {"id": "custom.stacking", "value": {"group": "A", "mode": "none"}},
            {"id": "color", "value": {"fixedColor": color, "mode": "fixed"}},
        ],
    }


def shades(color: str, pattern: str) -> Json:
    """Draws the series whose names match in shades of one colour, so that good and bad look it."""
    return {"matcher": {"id": "byRegexp", "options": pattern},
            "properties": [{"id": "color", "value": {"fixedColor": color, "mode": "shades"}}]}


# A table of many lines is cut off below a small panel: the names alone have room, and the pointer shows the values.
NAMES: Json = {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True}
# The greatest first, with its value, beside a panel that is wide enough.
RANKED: Json = {"calcs": ["lastNotNull"], "displayMode": "table", "placement": "right", "showLegend": True,
                "sortBy": "Last *", "sortDesc": True}


def lines(title: str, description: str, unit: str, *queries: Query, stacked: bool = False, bars: bool = False,
          log: bool = False, highest: float | None = None, color: str = "", legend: Json = NAMES, **more: Any) -> Panel:
    """Values over time. Zero is always in the picture, unless the axis is logarithmic.

    `color` is for a panel that has only one kind of news, bad as a rule; else each series has its own.
    """
    custom: Json = {
        "drawStyle": "bars" if bars else "line",
        "fillOpacity": 60 if bars else 25 if stacked else 0,
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    defaults: Json = {"color": {"fixedColor": color, "mode": "shades"} if color else {"mode": "palette-classic"}}
    if not log:
        defaults["min"] = 0
    if highest is not None:
        defaults["max"] = highest
    options = {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    return Panel(title, description, "timeseries", unit, list(queries), custom=custom, defaults=defaults,
                 options=options, **more)


def stat(title: str, description: str, unit: str, *queries: Query, thresholds: Json, mappings: list[Json] | None = None,
         decimals: int | None = None, **more: Any) -> Panel:
    """The latest value, in its colour, one tile for each instance."""
    defaults: Json = {"thresholds": thresholds, "color": {"mode": "thresholds"}, "mappings": mappings or []}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    }
    return Panel(title, description, "stat", unit, list(queries), defaults=defaults, options=options, **more)


def timeline(title: str, description: str, unit: str, *queries: Query, thresholds: Json,
             mappings: list[Json] | None = None, **more: Any) -> Panel:
    """States over time, one line for each series."""
    defaults: Json = {"thresholds": thresholds, "color": {"mode": "thresholds"}, "mappings": mappings or []}
    custom = {"fillOpacity": 80, "lineWidth": 0}
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.85,
        "showValue": "auto",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return Panel(title, description, "state-timeline", unit, list(queries), custom=custom, defaults=defaults,
                 options=options, **more)


def heatmap(title: str, description: str, unit: str, query: Query, **more: Any) -> Panel:
    """How many observations fell into which bucket, over time."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange",
                  "scale": "exponential", "reverse": False},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": False},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    custom = {"scaleDistribution": {"type": "linear"}, "hideFrom": {"legend": False, "tooltip": False, "viz": False}}
    return Panel(title, description, "heatmap", "short", [query], custom=custom, options=options, **more)


def table(title: str, description: str, unit: str, query: Query, *, columns: list[str], value: str = "", empty: str,
          column_links: dict[str, list[Json]] | None = None, **more: Any) -> Panel:
    """The latest values with their labels as columns. Without a name for the value, the labels alone."""
    query.instant = True
    hidden = {"Time": True, "__name__": True, "alertstate": True, "job": "job" not in columns}
    organize = {
        "id": "organize",
        "options": {
            "excludeByName": hidden if value else hidden | {"Value": True},
            "indexByName": {name: index for index, name in enumerate([*columns, "Value"])},
            "renameByName": {"Value": value} if value else {},
        },
    }
    overrides = [
        {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "links", "value": links}]}
        for column, links in (column_links or {}).items()
    ]
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    options = {"cellHeight": "sm", "footer": {"show": False}, "showHeader": True}
    return Panel(title, description, "table", unit, [query], custom=custom, defaults={"noValue": empty},
                 overrides=overrides, options=options, transformations=[organize], **more)
