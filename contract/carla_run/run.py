"""Reports a training to the launcher that started it, and receives requests: ``with run.report() as r: r.step(n)``.

The launcher names the run's folder in the variable CARLA_RUN_DIR. Without that variable nothing is written, no thread
is started and no request comes. A write that fails never stops the training; stderr says so once. A process that is
forked from the reporting one, such as a DataLoader's worker, writes nothing.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, ClassVar, Deque, Dict, List, Mapping, Optional, Tuple, Union

from carla_run.event_log import EventLog, JsonLines
from carla_run.exits import Exit
from carla_run.heartbeat import Heartbeat, Phase
from carla_run.heartbeat_writer import HeartbeatWriter
from carla_run.listener import Listener, Progress
from carla_run.locks import HeldError, Lock
from carla_run.memory import errors
from carla_run.paths import RunPaths
from carla_run.requests import Request, RequestKind, Result
from carla_run.signals import StopRequests

FOLDER = "CARLA_RUN_DIR"
MAX_FIGURES = 10_000
"""Calls whose figures wait for the next row."""
POLL_S = 0.1
"""Between two looks for a request."""
NAMES = {"reward": "rollout/ep_rew_mean"}
"""Figures that have another name in ``metrics.jsonl``, as Stable-Baselines3 calls them."""
NOT_DONE = "This program doesn't do that."


class ReportError(RuntimeError):
    """A report that is used wrongly; the message is one sentence for a person."""


def report(total_steps: int = 0, *, sigterm: bool = False) -> Report:
    """Return the report of this process, a context manager.

    Args:
        total_steps: that the training is to make in all; 0 where that is unknown.
        sigterm: under a launcher, let SIGTERM ask for a stop, as a request does, instead of ending the process.
    """
    folder = os.environ.get(FOLDER)
    return Report(RunPaths(Path(folder)) if folder else None, total_steps, sigterm)


class PendingRequest:
    """A request.

    Attributes:
        kind: compares with its word: checkpoint, drain, resume, apply or stop.
        values: of apply, by dotted key; of another empty.
    """

    def __init__(self, of: Report, request: Optional[Request]) -> None:
        self.kind = RequestKind.STOP if request is None else request.kind
        self.values: Mapping[str, Any] = {} if request is None else request.values
        self._report, self._request = of, request

    def done(self, checkpoint: Optional[str] = None) -> None:
        """Answer that it is done.

        Args:
            checkpoint: name of the one that was written.
        """
        if checkpoint is not None:
            self._report.saved(checkpoint)
        if self.kind is not RequestKind.STOP:  # that is done when the report ends
            self._answer(Result.OK, f"The program did it: {self.kind}.")

    def refuse(self, sentence: str) -> None:
        """Answer that it isn't done, and why; the program then goes on, also after a stop."""
        if self.kind is RequestKind.STOP:
            self._report.stop_asked = False
        self._answer(Result.REFUSED, sentence)

    def _answer(self, result: Result, sentence: str) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._report._answer(request, result, sentence)

    def _close(self) -> None:
        if self.kind is not RequestKind.STOP:
            self._answer(Result.REFUSED, NOT_DONE)


class Report:
    """The report of one process; use as a context manager.

    Attributes:
        total_steps: that the training is to make in all; 0 where that is unknown.
        updates: of the networks, so far.
        episode: how many have ended.
        device: on which it computes; None: cuda once PyTorch uses it, else cpu.
        batch: rows of an update.
        micro_batch: rows that it computes at once; 0: as ``batch``.
        stop_asked: a request or SIGTERM asked for an end.
    """

    _present: ClassVar[Optional[Report]] = None
    """That of this process, while it is open."""

    def __init__(self, run: Optional[RunPaths], total_steps: int, sigterm: bool) -> None:
        """Open nothing; ``run`` is None where there is no launcher."""
        self.total_steps, self.updates, self.episode = total_steps, 0, 0
        self.device: Optional[str] = None
        self.batch = self.micro_batch = 0
        self.stop_asked = False
        self._run = run
        self._signals, self._heeded = StopRequests() if sigterm else None, 0
        self._step, self._phase = 0, Phase.STARTING
        self._saved: Tuple[int, int, str] = (0, 0, "")
        self._figures: Deque[Tuple[int, Mapping[str, float]]] = deque(maxlen=MAX_FIGURES)
        self._exit_code: Optional[int] = None
        self._pid, self._polled_s = 0, -math.inf
        self._asked: Optional[PendingRequest] = None
        self._open = contextlib.ExitStack()
        self._files: Optional[_Files] = None
        """None where nothing is written."""

    def __enter__(self) -> Report:
        """Begin.

        Raises:
            ReportError: this process reports already, or isn't in the main thread, where SIGTERM can be taken.
        """
        if Report._present is not None:
            raise ReportError(
                f"This process reports already, now step {Report._present._step}: pass that report on, or leave its "
                f"`with` block first."
            )
        if self._signals is not None and threading.current_thread() is not threading.main_thread():
            raise ReportError("sigterm=True is for the main thread; begin the report there.")
        Report._present, self._pid = self, os.getpid()
        self._open.callback(setattr, Report, "_present", None)
        if self._run is not None:
            self._begin(self._run)
        return self

    def __exit__(self, _kind: object, error: Optional[BaseException], _traceback: object) -> None:
        if self._pid != os.getpid():
            return
        try:
            self._end(error)
        finally:
            self._open.close()

    def step(self, step: int, **figures: Any) -> None:
        """Say how far the training is. Cheap: a thread writes it, once a second.

        Args:
            step: training steps so far.
            figures: numbers by name, such as ``reward``, the mean return of the last episodes: the newest of each
                second are kept. A tensor on a GPU is waited for.
        """
        self._step = _count(step, self._step)
        if figures and self._files is not None:
            self._figures.append((self._step, _numbers(figures)))
        if self._phase is Phase.STARTING:
            self._phase = Phase.UPDATING

    def phase(self, name: Union[Phase, str]) -> None:
        """Say what the training is at: updating (after the first step), evaluating, saving…

        Raises:
            ReportError: there is no such phase.
        """
        try:
            self._phase = Phase(name)
        except ValueError:
            raise ReportError(f"phase is {name!r}; expected {', '.join(Phase)}") from None

    def saved(self, checkpoint: str) -> None:
        """Say that a checkpoint holds what is learned until now."""
        self._saved = self._step, _count(self.updates), str(checkpoint)
        self._log("checkpoint", str(checkpoint), steps=self._step, updates=_count(self.updates))

    def requests(self) -> List[PendingRequest]:
        """Return what is newly asked for, nothing or one request.

        One that has neither ``done`` nor ``refuse`` at the next call is refused, but for a stop.
        """
        if self._signals is not None and self._signals.count > self._heeded:
            self._heeded, self.stop_asked = self._signals.count, True
            return [PendingRequest(self, None)]
        now_s = time.monotonic()
        if self._files is None or now_s - self._polled_s < POLL_S:
            return []
        self._polled_s = now_s
        if self._asked is not None:
            self._asked._close()
        request = self._files.listener.take(self._progress)
        self._asked = None if request is None else PendingRequest(self, request)
        if self._asked is None:
            return []
        self.stop_asked = self.stop_asked or self._asked.kind is RequestKind.STOP
        return [self._asked]

    def wait_for_resume(self) -> bool:
        """Wait, after a drain, without the simulator; return whether to go on with it: False is to stop.

        Without a launcher it returns at once.
        """
        before, self._phase = self._phase, Phase.DRAINED
        while self._files is not None and not self.stop_asked:
            for request in self.requests():
                if request.kind is RequestKind.RESUME:
                    request.done()
                    self._phase = before
                    return True
                if request.kind is RequestKind.APPLY:
                    request.refuse("The program is drained; ask for resume first.")
                else:
                    request.done()
            time.sleep(POLL_S)
        self._phase = before
        return not self.stop_asked

    @property
    def exit_code(self) -> int:
        """With which the program is best ended: 75 after a stop, so that the launcher knows it is to be resumed."""
        return Exit.STOPPED if self.stop_asked else Exit.FINISHED

    @property
    def _progress(self) -> Progress:
        done = self._step, _count(self.updates)
        return Progress(*done, self._saved[2] if self._saved[:2] == done else None)

    def _begin(self, run: RunPaths) -> None:
        try:
            files = self._open.enter_context(_Files(run))
            files.listener.begin(self._progress)
            self._open.enter_context(HeartbeatWriter(run.heartbeat, self._beat))
        except HeldError as error:
            _say(f"{run.path}: process {error.holder} reports for this run; this one doesn't.")
        except OSError as error:
            _say(f"{run.path}, which {FOLDER} names, can't be written ({error.strerror}); nothing is reported.")
        except RuntimeError as error:  # no room for a thread
            _say(f"{error}; nothing is reported.")
        else:
            self._files = files
            if self._signals is not None:
                self._open.callback(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM) or signal.SIG_DFL)
                self._signals.install(interrupt=False)

    def _end(self, error: Optional[BaseException]) -> None:
        self._exit_code = code = _exit_code(error, self.exit_code)
        failure = None
        if isinstance(error, Exception):
            failure = str(error)
            self._log(**errors.failure(error, code, errors.exhausted_pool(error), self._step).row())
        elif code in (Exit.FINISHED, Exit.STOPPED):
            self._phase = Phase.STOPPED if code == Exit.STOPPED else Phase.FINISHED
            self._log(self._phase.value, steps=self._step, updates=_count(self.updates))
        if self._files is not None:
            self._files.listener.end(self._progress, failure)

    def _log(self, event: str, cause: str = "", **numbers: Any) -> None:
        if self._files is not None:
            self._files.events.append(event, cause, **numbers)

    def _answer(self, request: Request, result: Result, sentence: str) -> None:
        if self._files is not None:
            self._files.listener.answer(request, result, sentence, self._progress)

    def _beat(self) -> Heartbeat:
        """Return the heartbeat, and write the figures since the last one as a row; called in the thread."""
        row: Dict[str, float] = {}
        for _ in range(len(self._figures)):
            step, figures = self._figures.popleft()
            row = {**row, "step": step, **figures}
        if row and self._files is not None:
            self._files.metrics.append(row)
        return Heartbeat(
            time=round(time.time(), 3),
            pid=self._pid,
            phase=self._phase,
            step=self._step,
            total_steps=_count(self.total_steps),
            updates=_count(self.updates),
            episode=_count(self.episode),
            device=_device() if self.device is None else str(self.device),
            batch=_count(self.batch),
            micro_batch=_count(self.micro_batch) or _count(self.batch),
            exit_code=self._exit_code,
        )

    @classmethod
    def _in_child(cls) -> None:
        """Silence the report in a process that was forked: files and lock are the parent's."""
        left, cls._present = cls._present, None
        if left is not None and left._files is not None:
            left._files.lock.release()  # the parent holds it still
        if left is not None:
            left._files = left._signals = None


class _Files:
    """Files that a report writes in addition to the heartbeat.

    Raises:
        HeldError: another process reports for the run.
        OSError: its folder can't be written.
    """

    def __init__(self, run: RunPaths) -> None:
        self.lock = Lock(run.learner_lock)
        self.events, self.metrics = EventLog(run.agent_events), JsonLines(run.metrics)
        self.listener = Listener(run, self.events)

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()


os.register_at_fork(after_in_child=Report._in_child)


def _exit_code(error: Optional[BaseException], otherwise: int) -> int:
    """Return with which code a program ends that lets an error through."""
    if error is None:
        return otherwise
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if not isinstance(error, SystemExit):
        return Exit.CRASH
    if error.code in (None, 0):
        return otherwise
    return error.code if isinstance(error.code, int) else Exit.CRASH


def _device() -> str:
    is_initialized = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)  # None while it is being imported
    return "cuda" if is_initialized is not None and is_initialized() else "cpu"


def _count(number: Any, otherwise: int = 0) -> int:
    """Return a count as an int, also NumPy's, PyTorch's and 1e6; ``otherwise`` for what is none."""
    try:
        return int(number)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        return otherwise


def _numbers(figures: Mapping[str, Any]) -> Mapping[str, float]:
    """Return those that are numbers, also NumPy's and PyTorch's."""
    found = {}
    for name, value in figures.items():
        with contextlib.suppress(TypeError, ValueError, ArithmeticError, RuntimeError):
            found[NAMES.get(name, name)] = float(value)
    return found


def _say(sentence: str) -> None:
    print(f"carla_run: {sentence}", file=sys.stderr)
