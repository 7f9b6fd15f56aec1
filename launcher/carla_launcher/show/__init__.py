"""What people are shown of a run or a machine: status, plan, report, doctor.

Reads the files of a run (and for doctor the machine) and writes the report's two files; starts and changes nothing
else. The launcher itself imports only what ``up`` prints; the report is written by a child process.
"""
