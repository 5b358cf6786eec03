"""The mathematics: transition, losses, risks, penalties. Knows no model, file or device."""
