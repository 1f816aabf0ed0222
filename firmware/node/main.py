# Starts the node only if node.json says so: Ctrl-C or a soft reset always gives a REPL.
import node

try:
    _autostart = node.load().get("autostart")
except (OSError, ValueError) as error:
    print("node: failed: %s" % error)
    _autostart = False
if _autostart:
    node.main()
