"""Mode ``--skillopt-check``, and the same check of a training on further targets."""
