"""Skills inside the coding agents that their users run them in: Claude Code, Codex and the like.

``agent`` makes one run, with ``adapters`` and ``acp`` (the harnesses), ``workspace`` (files before
and after), ``processes`` and ``guard`` (start and end), ``sandbox``, ``proxy`` and ``upstream``
(the way to the model). ``binding`` alone knows pytest and the settings. Nothing of it is imported
before a test asks for it.
"""
