"""The mechanisms of SkillOpt, SkillOpt-Sleep and skillrl under their own names."""
