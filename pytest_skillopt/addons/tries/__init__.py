"""Mode ``--skillopt-try``: is a change that was made elsewhere any good?"""
