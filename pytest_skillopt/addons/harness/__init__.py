"""Skills inside coding agents: ``agent`` makes a run, ``binding`` alone knows pytest."""
