"""Skills inside the coding agents that their users run them in: Claude Code, Codex and the like.

``records`` says what a harness is, ``adapters`` holds those that are known, ``acp`` drives any
other over the Agent Client Protocol. ``agent`` makes one run of one, with ``workspace`` (files
before and after), ``processes`` and ``guard`` (start and end), ``sandbox``, ``proxy`` and
``upstream`` (the way to the model) and ``kept`` (runs that need not be made again). ``binding``
alone knows pytest, the settings and the rest of the package. Nothing of it is imported before a
test asks for it.
"""
