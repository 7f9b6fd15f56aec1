"""Recognising out-of-memory errors, and the meaning of the options, without processes."""

from __future__ import annotations

import pytest

from carla_launcher.plugins.reserve import options
from carla_launcher.plugins.reserve.command import out_of_memory


@pytest.mark.parametrize(
    ("code", "said", "kernel_killed", "expected"),
    [
        (71, "", False, "exit code 71"),
        (137, "", True, "the kernel killed it for memory"),
        (137, "", False, ""),  # a user's kill -9
        (0, "torch.OutOfMemoryError: CUDA out of memory.", False, ""),  # it got over it
        (1, "torch.OutOfMemoryError: CUDA out of memory.", False, "exit code 1 after `out of memory`"),
        (1, "RuntimeError: CUBLAS_STATUS_ALLOC_FAILED", False, "exit code 1 after `CUBLAS_STATUS_ALLOC_FAILED`"),
        (134, "what():  std::bad_alloc", False, "exit code 134 after `std::bad_alloc`"),
        (1, "RuntimeError: !handles_.at(i) INTERNAL ASSERT FAILED", False, "exit code 1 after `handles_.at(i)`"),
        (1, "RuntimeError: can't start new thread", False, "exit code 1 after `can't start new thread`"),
        (1, "OSError: [Errno 12] Cannot allocate memory", False, "exit code 1 after `Cannot allocate memory`"),
        (1, "RuntimeError: CUDA error: CUBLAS_STATUS_INTERNAL_ERROR", False, ""),  # a broken card says so, too
        (1, "RuntimeError: CUDA error: unknown error", False, ""),
        (1, "KeyError: 'memory'", False, ""),
        (1, "", True, ""),  # the kernel killed another one
        (75, "out of memory: finished in parts of 32", False, ""),  # it got over it, and was stopped later
        (143, "out of memory: finished in parts of 32", False, ""),
    ],
)
def test_running_out_of_memory_is_told_from_other_ends(
    code: int, said: str, kernel_killed: bool, expected: str
) -> None:
    assert out_of_memory(code, said, kernel_killed) == expected


def test_the_options_of_the_notes_are_understood() -> None:
    line = "--min-free 2048 --sleep 300 --timeout 7200 --fallback-batch 2 -- bash scripts/run_e1.sh --res 32 -- x"
    found = options.parse(line.split())
    assert (found.min_free, found.sleep_s, found.timeout_s, found.fallback_batch) == (2048, 300, 7200, 2)
    assert found.command == ("bash", "scripts/run_e1.sh", "--res", "32", "--", "x")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--min-free 2048", "no command: expected `-- CMD`"),
        ("--min-free 2048 --", "no command: expected `-- CMD`"),
        ("--min-free 0 -- true", "--min-free: '0': expected a whole number from 1 on"),
        ("--min-free 2GiB -- true", "--min-free: '2GiB': expected a whole number from 1 on"),
        ("--sleep 0 -- true", "--sleep: 0 is no pause"),
        ("--timeout nan -- true", "--timeout: 'nan': expected seconds"),
        ("--gpu first -- true", "--gpu: 'first': expected a whole number from 0 on"),
    ],
)
def test_a_wrong_option_is_named(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
