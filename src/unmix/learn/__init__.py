"""Models, methods, the training loop. No function here has a parameter for labels."""
