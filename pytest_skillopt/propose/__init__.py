"""What a training found, brought to people: pull requests, and trainings that start themselves."""
