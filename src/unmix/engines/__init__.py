"""Engines: who carries the calls of a fit to workers, in this process or on many machines."""
