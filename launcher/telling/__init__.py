"""What people are told: the live table and the report, both from the files of the run alone."""
