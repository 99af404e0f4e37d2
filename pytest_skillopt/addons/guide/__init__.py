"""The skill that tells coding agents how to use the plugin, and the command that installs it."""
