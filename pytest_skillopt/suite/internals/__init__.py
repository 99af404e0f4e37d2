"""Every private touch of pytest, pytest-xdist and execnet, each in one function.

``probe`` and ``probe_xdist`` are called at the start of a session that needs them and fail with a
message that names the versions, so that a future release breaks here, loudly, and nowhere else.
See docs/decisions/workers.md for what is relied on and why nothing public does it.
"""
