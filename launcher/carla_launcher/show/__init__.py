"""Output for users: status, plan, report, doctor.

Reads the files of a run (doctor: the machine) and writes the report's two files; starts and changes nothing else. The
launcher imports only the parts that ``up`` prints; a child process writes the report.
"""
