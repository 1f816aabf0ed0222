"""What is put on boards: the node app, the HIL agent, and the recipes that build MicroPython.

``cache`` builds a thing once per content hash; ``cli`` is ``motemq firmware``. The files in
``node/`` run on boards, not here.
"""
