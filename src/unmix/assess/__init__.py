"""How good it is, with labels and without: evaluation, diagnosis, prevalence."""
