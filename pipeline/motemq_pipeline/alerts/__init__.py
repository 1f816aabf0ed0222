"""Alerts with state: silent boards, values out of range, wills, loss and disorder.

The rules are pure Python, events and ``now`` in, alerts out; Spark only carries their state.

- ``settings``    what may be set (docs/alerts.md)
- ``events``      what happened, and what an alert is
- ``limits``      which limits hold for a reading
- ``numbering``   a board's sequence numbers: what is missing, what came late
- ``board``       one board's alerts
- ``fleet``       many boards: how many, how long, after a pause; as text and back
- ``signals``     DataFrames to rows of events
- ``processor``   a fleet in the hands of Spark's ``transformWithState``
- ``stream``      ``alert_stream``: DataFrame to DataFrame
- ``outlet``      alerts to the broker
"""
