"""Which process listens on a TCP port, as far as /proc tells us."""

from pathlib import Path

_LISTEN = "0A"


def port_owner(port: int) -> str:
    """Return e.g. ``"python3 (process 4711)"``; "" if /proc does not tell or we may not look."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            links = (entry.readlink() for entry in (process / "fd").iterdir())
            if any(str(link) in sockets for link in links):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
        except OSError:
            continue  # it has ended, or belongs to another user
    return ""


def _listening_inodes(port: int) -> set[str]:
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue  # no /proc, or no IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes
