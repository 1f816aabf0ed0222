# ruff: noqa: F821 - MicroPython's build defines these functions
metadata(description="FMQP, LightMQ and MicroMsg2 client", version="0.3.0")

# To freeze it: include("…/client_upy/manifest.py"), or with protocol="fmqp", "lightmq" or
# "micromsg2" one of them without asyncio, TLS and the rest. What begins with _cpython is for PCs.
options.defaults(protocol="all")
_FILES = {
    "fmqp": (
        *("__init__.py", "alike.py", "fmqp.py", "link.py", "mistakes.py", "ping.py", "tcp.py"),
        "topic.py",
    ),
    "lightmq": ("__init__.py", "lightmq.py", "link.py", "mistakes.py", "ping.py", "tcp.py"),
    "micromsg2": (
        *("__init__.py", "link.py", "micromsg2.py", "mistakes.py", "outage.py", "ping.py"),
        *("store.py", "tcp.py", "topic.py"),
    ),
    "all": (
        *("__init__.py", "aio.py", "alike.py", "batch.py", "carried.py", "chunks.py", "console.py"),
        *("fmqp.py", "fragments.py", "lightmq.py", "link.py", "messages.py"),
        *(
            "micromsg2.py",
            "mistakes.py",
            "outage.py",
            "ping.py",
            "queued.py",
            "reliable.py",
            "store.py",
            "tcp.py",
        ),
        *("tls.py", "topic.py", "uart.py", "wanted.py", "wifi.py"),
    ),
}
# Optimised: tracebacks name functions, but no lines, and it is a tenth smaller.
package("umotemq", files=_FILES[options.protocol], opt=3)
