"""Sets: drawing them, reading yours, the benchmarks, batching. Holds labels; trains nothing."""
