"""The launcher's command line: ``python scripts/launch.py up | status | report``."""

from carla_launcher.__main__ import main

if __name__ == "__main__":
    main()
