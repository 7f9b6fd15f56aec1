"""carla-lite for tests: servers on free ports that end with their test, and worlds that are left clean.

``server`` and ``servers`` need no pytest; the fixtures are in ``plugin``, which pytest finds by itself.
"""

from __future__ import annotations

from carla_lite.testing.servers import LiteServer as LiteServer
from carla_lite.testing.servers import ServerError as ServerError
from carla_lite.testing.servers import free_port as free_port
from carla_lite.testing.servers import server as server
from carla_lite.testing.servers import servers as servers
from carla_lite.testing.servers import tell as tell
from carla_lite.testing.worlds import synchronous as synchronous
