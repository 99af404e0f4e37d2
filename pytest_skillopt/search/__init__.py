"""The training: what is proposed, sampled, kept and compared, and what that may cost."""
