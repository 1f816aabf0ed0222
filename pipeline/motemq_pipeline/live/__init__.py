"""A page that shows any board over any time, and goes on as readings come; it needs no Spark.

- ``series``  what is to be seen, from the table that has it as finely as a plot can show it
- ``figure``  a Plotly figure of it
- ``site``    both by HTTP, with the page that asks for them
"""
