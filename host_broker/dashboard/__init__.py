"""The dashboard's page: plain ES modules, no build step; ``net/http/dashboard.py`` serves it.

``index.html``, ``app.js`` (what is shown where), ``live.js`` (the connection by UMQ, and what it
has told), one module a view in ``views/``, ``vendor/`` (preact and htm, uPlot, with licences).
"""
