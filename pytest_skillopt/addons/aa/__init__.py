"""Mode ``--skillopt-aa``: how noisy is the suite?"""
