"""Add-on for skills in coding agents: ``agent`` runs one, only ``binding`` depends on pytest."""
