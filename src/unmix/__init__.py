"""unmix."""
