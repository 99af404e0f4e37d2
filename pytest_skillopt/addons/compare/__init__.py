"""Mode ``--skillopt-compare``: which of two skills is better?"""
