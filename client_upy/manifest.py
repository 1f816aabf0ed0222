# ruff: noqa: F821 - MicroPython's build defines these functions
metadata(description="FMQP and LightMQ client", version="0.3.0")

# To freeze it: include("…/client_upy/manifest.py"), or with protocol="fmqp" or "lightmq" one of
# the two without asyncio, TLS and the rest. What begins with _cpython is for PCs only.
options.defaults(protocol="both")
_FILES = {
    "fmqp": ("__init__.py", "alike.py", "fmqp.py", "link.py", "tcp.py", "topic.py"),
    "lightmq": ("__init__.py", "lightmq.py", "link.py", "tcp.py"),
    "both": (
        *("__init__.py", "aio.py", "alike.py", "carried.py", "chunks.py", "console.py"),
        *("fmqp.py", "lightmq.py", "link.py", "messages.py", "outage.py", "reliable.py"),
        *("store.py", "tcp.py", "tls.py", "topic.py", "uart.py", "wanted.py", "wifi.py"),
    ),
}
# Optimised: tracebacks name functions, but no lines, and it is a tenth smaller.
package("umotemq", files=_FILES[options.protocol], opt=3)
