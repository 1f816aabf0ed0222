"""The verbs of ``motemq rig``, one module each; ``exits`` is what they share: how they end."""
