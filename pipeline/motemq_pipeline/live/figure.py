"""A Plotly figure of an excerpt: a plot a sensor, one below the other, and what was alarming."""

import html
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from host_broker.printable import printable
from motemq_pipeline.live.series import Alert, Excerpt, Series

_PLOT_PX = 210
_AROUND_PX = 90
_FOR_A_NAME = 0.15  # of the width of a plot
_LINE = "#2a78d6"
_BAND = "rgba(42,120,214,0.18)"
_ALARM = "rgba(208,50,45,0.16)"


def figure(shown: Excerpt, dark: bool = False) -> go.Figure:
    """Return the figure; its page keeps zoom and hidden lines as long as the board is the same."""
    count = max(1, len(shown.series))
    titles = [
        _plain(f"{one.sensor}, {one.unit}" if one.unit else one.sensor) for one in shown.series
    ]
    found = make_subplots(
        rows=count,
        cols=1,
        shared_xaxes=True,
        vertical_spacing=min(0.08, 0.3 / count),
        subplot_titles=titles or None,
    )
    for row, one in enumerate(shown.series, start=1):
        for trace in _traces(one):
            found.add_trace(trace, row, 1)
        for alert in shown.alerts:
            if alert.sensor in ("", one.sensor):
                _mark(found, alert, shown, row)
    found.update_xaxes(range=[shown.since, shown.until], type="date")
    found.update_layout(
        template="plotly_dark" if dark else "plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        height=_AROUND_PX + _PLOT_PX * count,
        margin={"l": 60, "r": 20, "t": 40, "b": 40},
        showlegend=False,
        hovermode="x unified",
        uirevision=shown.board,
    )
    return found


def _traces(one: Series) -> list[Any]:
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip"}
    # A few points are shown as such: a line between two readings says nothing of the time between.
    mode = "lines+markers" if len(one.at) < 100 else "lines"
    return [
        go.Scatter(x=one.at, y=one.high, **edge),
        go.Scatter(x=one.at, y=one.low, fill="tonexty", fillcolor=_BAND, **edge),
        go.Scatter(x=one.at, y=one.mean, name=_plain(one.sensor), mode=mode, line={"color": _LINE}),
    ]


def _mark(found: go.Figure, alert: Alert, shown: Excerpt, row: int) -> None:
    begin = max(alert.raised_at, shown.since)
    late = shown.until - begin < _FOR_A_NAME * (shown.until - shown.since)
    found.add_vrect(
        x0=begin,
        x1=min(alert.cleared_at or shown.until, shown.until),
        fillcolor=_ALARM,
        line_width=0,
        annotation_text=_plain(alert.kind),
        annotation_position="top left",
        annotation_xanchor="right" if late else "left",  # else it would be cut off
        annotation_hovertext=_plain(alert.message),
        row=row,
        col=1,
    )


def _plain(text: str) -> str:
    """Return a text as it is: Plotly takes some HTML in texts, and these are from boards."""
    return html.escape(printable(text), quote=False)
