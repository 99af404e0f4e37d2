"""Mode ``--skillopt-drift``: does a skill still help today's model?"""
