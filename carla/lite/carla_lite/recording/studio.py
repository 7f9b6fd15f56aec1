"""The recorder for clients: one recording or one replay at a time, and texts about files.

Owns which of the two is active, the answer to each call, and how both end: by a call, by themselves, with the episode,
or by a fault, which is one sentence in the log and never ends the world.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator

from carla_lite.protocol import wire
from carla_lite.protocol.wire import RpcError
from carla_lite.recording import replayer
from carla_lite.recording.folder import Folder, OutsideError
from carla_lite.recording.layout import RecordingError
from carla_lite.recording.reading import NotARecordingError, Recording
from carla_lite.recording.recorder import Recorder
from carla_lite.recording.replayer import Part, Replayer, ReplayOptions
from carla_lite.recording.stage import Hits, Stage
from carla_lite.recording.writing import Writer
from carla_lite.scenery.projection import Pose


class Studio:
    """The recorder of a world."""

    def __init__(self, stage: Stage, folder: Folder) -> None:
        self._stage, self._folder = stage, folder
        self.options = ReplayOptions()
        self._recorder: Recorder | None = None
        self._replayer: Replayer | None = None
        self._known: dict[int, int] = {}
        """Ids here of actors that replays of this episode have had, by their recorded ids."""

    @property
    def active(self) -> bool:
        """Whether ``tick`` must be called."""
        return self._recorder is not None or self._replayer is not None

    def start(self, name: str, additional: bool) -> str:
        """Begin a recording, after ending an active one or a replay, and return the path of its file.

        As CARLA does for a file that can't be opened, return an empty text for a name outside the folder.

        Raises:
            RpcError: the file can't be created, or mustn't be replaced.
        """
        try:
            path, most_bytes = self._folder.begin(name)
        except OutsideError as error:
            _say(f"nothing is recorded: {error}")
            return ""
        self.stop()
        self.stop_replaying(keep_actors=False)
        try:
            writer = Writer(path, self._stage.network.name, most_bytes)
        except (OSError, RecordingError) as error:
            raise RpcError(f"can't record to {path}: {_why(error)}") from None
        self._recorder = Recorder(self._stage, writer, additional)
        return str(path)

    def stop(self) -> None:
        """End the recording, if there is one."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            try:
                recorder.close()
            except (OSError, RecordingError) as error:
                _say(f"the recording ends without its last frame: {_why(error)}")

    def replay(self, name: str, start_s: float, duration_s: float, follow_id: int, sensors: bool, offset: Pose) -> str:
        """Begin a replay, after ending an active one or a recording, and return CARLA's message.

        Args:
            name: of the file.
            start_s: time in the recording; negative values count from its end.
            duration_s: duration; everything if it is not above 0.
            follow_id: id of the recorded actor that the spectator follows, or 0.
            sensors: whether sensors are replayed.
            offset: place of the spectator relative to that actor.

        Raises:
            RpcError: the file is no recording, or broken.
        """
        path = self._folder.path_of(name)
        self.stop()
        self.stop_replaying(keep_actors=False)
        said = f"Replaying File: {path}\n"
        if not path.is_file():
            return f"{said}File {path} not found on server\n"
        with _refused(name), contextlib.ExitStack() as closed_on_error:
            recording = closed_on_error.enter_context(Recording(path))
            length = replayer.check(recording)
            if recording.map.rsplit("/", 1)[-1] != self._stage.network.name:
                try:
                    network = self._stage.maps.load(recording.map)
                except RpcError:
                    return f"{said}Could not load mapfile {recording.map}\n"
                # CARLA's replayer loads a map with the settings of its start, too.
                self._stage.settings = wire.default_settings()
                self._stage.load(network)
                said += f"Loading map {recording.map}\nReplayer will start after map is loaded...\n"
            begin_s = start_s if start_s >= 0.0 else max(0.0, length.total_s + start_s)
            end_s = begin_s + duration_s if duration_s > 0.0 else length.total_s
            stop_s = end_s if duration_s > 0.0 else end_s + length.last_step_s
            part = Part(begin_s, stop_s, length.last_step_s, follow_id, offset, sensors)
            self._replayer = Replayer(self._stage, recording, part, self.options, self._known)
            closed_on_error.pop_all()
        said += f"Total time recorded: {length.total_s:g}\n"
        said += (
            f"Replaying from {begin_s:g} s - {end_s:g} s ({length.total_s:g} s) at {self.options.time_factor:.1f}x\n"
        )
        said += "Ignoring Hero vehicle\n" if self.options.ignore_hero else ""
        said += "Ignoring Spectator camera\n" if self.options.ignore_spectator else ""
        return said + (
            f"The file ends within frame {recording.torn_in}, which is left out\n" if recording.torn_in else ""
        )

    def stop_replaying(self, keep_actors: bool) -> None:
        """End the replay, if there is one."""
        running, self._replayer = self._replayer, None
        if running is not None:
            with _refused("the recording"):
                running.stop(keep_actors)

    def leave_episode(self) -> None:
        """End recording and replay, and leave the actors as they are."""
        self.stop()
        self._known.clear()
        if self._replayer is not None:
            self._replayer.abandon()
        self._replayer = None

    def tick(self, delta_s: float, hits: Hits) -> None:
        """Record a tick, or advance the replay by one. A fault ends either, but not the world."""
        recorder, running = self._recorder, self._replayer
        try:
            if recorder is not None:
                recorder.tick(delta_s, hits)
            elif running is not None:
                running.tick(delta_s)
                if running.ended:
                    self._replayer = None
        except Exception as error:  # no content of a file may end the world
            if not isinstance(error, OSError | RecordingError | RpcError):
                traceback.print_exc(file=sys.stderr)
            _say(f"the {'recording' if recorder is not None else 'replay'} ends: {_why(error)}")
            if recorder is not None:
                recorder.abandon()
            elif running is not None:
                running.stop(keep_actors=True)
            self._recorder = self._replayer = None

    def tell(self, name: str, query: Callable[[Recording], str]) -> str:
        """Return a text about a recording, or CARLA's message if there is none.

        Raises:
            RpcError: the file is broken, or the name is invalid.
        """
        path = self._folder.path_of(name)
        if not path.is_file():
            return f"File {path} not found on server\n"
        try:
            with _refused(name), Recording(path) as recording:
                return query(recording)
        except _UnknownFileError:
            return "File is not a CARLA recorder\n"


class _UnknownFileError(RpcError):
    """A file for which CARLA's queries have a message."""


@contextlib.contextmanager
def _refused(name: str) -> Iterator[None]:
    """Turn errors of a file into a sentence for the client."""
    try:
        yield
    except NotARecordingError as error:
        raise _UnknownFileError(f"{name}: {error}") from None
    except (OSError, RecordingError) as error:
        raise RpcError(f"{name} can't be replayed or read: {_why(error)}") from None


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _say(sentence: str) -> None:
    print(f"carla-lite: {sentence}", flush=True)
