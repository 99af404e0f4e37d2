"""Add-on with the published methods of SkillOpt, SkillOpt-Sleep and skillrl, by their names."""
