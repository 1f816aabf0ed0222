# ruff: noqa: F821 - MicroPython's build defines these functions
metadata(description="FMQP and LightMQ client", version="0.1.0")

# To freeze it: include("…/client_upy/manifest.py"). _cpython.py is for PCs only.
package(
    "umotemq",
    files=("__init__.py", "fmqp.py", "lightmq.py", "link.py", "tcp.py", "topic.py", "uart.py"),
    opt=0,
)
