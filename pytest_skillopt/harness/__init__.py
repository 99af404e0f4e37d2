"""Skills inside the coding agents that their users run them in: Claude Code, Codex and the like.

``agent`` makes one run, with ``adapters`` and ``acp`` (the harnesses), ``workspace`` (files before
and after), ``processes`` and ``guard`` (start and end), ``sandbox`` and ``proxy`` (the way to the
model). ``binding`` alone knows pytest and the settings. A test that asks for it imports it first.
"""
