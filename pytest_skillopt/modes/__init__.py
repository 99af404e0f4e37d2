"""What a session can do: one function a mode, from a ``Run`` to a ``Result``."""
