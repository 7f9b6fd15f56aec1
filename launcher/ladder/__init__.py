"""The ways to give way, as data: what each changes, what it frees in which pool, what it costs; and what fits."""
