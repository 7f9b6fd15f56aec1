"""Bytes of networks, batches and updates: arithmetic only, nothing is allocated and torch isn't imported.

The launcher asks while memory is short, and torch alone takes 190 MiB and three times the processor time. So the shapes
of ``td3.networks`` are kept here as well (a test compares the two by name and size). The peak of an update is found by
going through the backward pass: what each layer keeps, frees and needs meanwhile (a test compares it with PyTorch's own
figures).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

from carla_td3.config import NetworkConfig
from carla_td3.td3.replay.frames import ACTION, BLOCK, DEFAULT, MAPS, VECTOR, FrameStack, View, convolved_sides, known

FLOAT = 4  # bytes; parameters, gradients, moments and everything after the encoder
KERNELS = (2 * 2, 4 * 4, 3 * 3)
AUXILIARY_HIDDEN = 64  # as ``td3.networks`` has it
FINE, COARSE, HEAD, TRUNK_CELLS = 16, 32, 64, 5 * 5  # as ``td3.detector`` has them
# Numbers of a cell that its maps and their losses keep; of a pixel that hold its way into an earlier frame.
_TAUGHT, _ALIGNED = 19, 14

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class _Step:
    """One layer of the backward pass, in bytes."""

    saved: int
    """Per row: kept from the forward pass until this step is done."""
    meanwhile: int
    """Per row: gradients before and after the layer."""
    at_once: int = 0
    """Further bytes, independent of the rows."""
    weights: int = 0
    """Gradient of the weights, float32."""
    cast: int = 0
    """The weights in 2 bytes each, kept until this step is done, and their gradient in the same format."""


@dataclass(frozen=True)
class Networks:
    """All learned parameters, like ``TD3.online``.

    Attributes:
        network: the widths.
        stack: the frames of an image.
        seen: privileged numbers that the critics read.
        predicted: privileged numbers that the auxiliary head predicts.
    """

    network: NetworkConfig
    stack: FrameStack = DEFAULT
    seen: int = 0
    predicted: int = 0

    @cached_property
    def shapes(self) -> Shapes:
        """The shape of each learned parameter by name."""
        first, second, third = self.network.channels
        features, hidden = self.network.features, self.network.hidden
        nature = {
            **_layer("encoder.conv1", first, self.stack.channels, 2, 2),
            **_layer("encoder.conv2", second, first, 4, 4),
            **_layer("encoder.conv3", third, second, 3, 3),
        }
        detector = {
            name: shape
            for index, view in enumerate(self.stack.views)
            for layers in self._heads(view).values()
            for each in layers
            for name, shape in _layer(f"encoder.heads.{index}.{each.name}", *each.shape).items()
        }
        encoder = {
            **(detector if self._detects else nature),
            **_layer("encoder.trunk", features, self._trunk_inputs),
            **_norm("encoder.norm", features),
        }
        head = _mlp("auxiliary", (known(self.network, self.stack), AUXILIARY_HIDDEN, self.predicted), norm=False)
        return {
            **(encoder if self._sees_images else {}),
            **_mlp("actor.body", (self._read, *hidden, ACTION), norm=False),
            **_mlp("critic.q1", (self._judged, *hidden, 1), norm=True),
            **_mlp("critic.q2", (self._judged, *hidden, 1), norm=True),
            **(head if self.predicted else {}),
        }

    def parameter_bytes(self, prefix: str = "") -> int:
        """Return the float32 bytes of the parameters whose names begin with ``prefix``."""
        return FLOAT * sum(prod(shape) for name, shape in self.shapes.items() if name.startswith(prefix))

    @property
    def convolution_bytes(self) -> int:
        """Return the float32 bytes of the convolutions' weights."""
        return FLOAT * sum(prod(shape) for shape in self.shapes.values() if len(shape) == 4)

    @property
    def page_locked(self) -> int:
        """Bytes of page-locked copies on the host: PyTorch rounds each block up to a power of two."""
        return sum(1 << (FLOAT * prod(shape) - 1).bit_length() for shape in self.shapes.values())

    def update_bytes(
        self, batch: int, rows: int, precision: str, cached_rows: int | None, unfolds: bool = False
    ) -> int:
        """Return the bytes of gradients, activations and cast weights at the worst instant of an update.

        Args:
            batch: transitions of the update.
            rows: transitions that go through the networks together. If fewer than ``batch``, each micro-batch's
                gradients need room beside their sum.
            precision: of the encoder; all but float32 take 2 bytes per number.
            cached_rows: rows that go through the convolutions together on the CPU (``td3.kernels``); None for all, as
                on a GPU.
            unfolds: whether convolutions copy their inputs into columns (``td3.kernels.arithmetic``).
        """
        of_actor = self.parameter_bytes("actor.")
        of_theta = self.parameter_bytes() - of_actor
        rows = min(rows, batch)
        kept = FLOAT * known(self.network, self.stack) * batch  # f(s), for the actor
        standing = of_theta if rows < batch else 0
        inputs = FLOAT * self._judged  # of the critics, one copy for both
        pictures: list[_Step] = []
        if self._sees_images:
            pictures = (
                self._detector_steps(precision, unfolds)
                if self._detects
                else [self._trunk_step(precision), self._convolutions_step(rows, precision, cached_rows, unfolds)]
            )
        critic = [
            *self._critic_steps(),
            *self._critic_steps(beside=inputs),
            _Step(inputs, 0),
            *(self._head_steps(beside=inputs) if self.predicted else []),
            *pictures,
        ]
        actor = [*self._critic_steps(learns=False), *self._actor_steps()]
        return max(
            kept + _highest(critic, rows, standing),
            kept + _highest(actor, rows, of_theta + (of_actor if rows < batch else 0), grows=rows == batch),
            2 * kept + of_theta,  # the features of micro-batches, and joined
            kept + standing + rows * (self._last_view(precision, unfolds) if self._detects else 0),
        )

    @property
    def _sees_images(self) -> bool:
        return self.network.sees == "image"

    @property
    def _detects(self) -> bool:
        return self._sees_images and self.network.encoder == "detector"

    @property
    def _trunk_inputs(self) -> int:
        """Numbers that the layer after the convolutions reads."""
        return (
            COARSE * TRUNK_CELLS * len(self.stack.views)
            if self._detects
            else self.network.channels[-1] * self._cells[-1]
        )

    @property
    def _read(self) -> int:
        """Numbers that the actor reads."""
        return known(self.network, self.stack) + VECTOR

    @property
    def _judged(self) -> int:
        """Numbers that a critic reads."""
        return self._read + ACTION + self.seen

    @property
    def _cells(self) -> tuple[int, ...]:
        """Cells of each convolution's output."""
        return tuple(across * across for across in convolved_sides(self.stack.side))

    def _critic_steps(self, *, learns: bool = True, beside: int = 0) -> list[_Step]:
        """Return one critic's hidden layers, last first: each keeps the input of LayerNorm and the output of ReLU.

        ``beside``: bytes held meanwhile, the inputs' gradient from the other critic.
        """
        return [
            _Step(
                2 * FLOAT * after,
                FLOAT * max(2 * after, before + after) + beside,
                weights=FLOAT * before * after * learns,
            )
            for before, after in pairwise((self._judged, *self.network.hidden))
        ][::-1]

    def _head_steps(self, *, beside: int) -> list[_Step]:
        """Return the auxiliary head's layers, last first; ``beside``: bytes of the critics' gradient."""
        features, hidden, told = known(self.network, self.stack), AUXILIARY_HIDDEN, self.predicted
        return [
            _Step(FLOAT * (told + hidden), FLOAT * (told + hidden) + beside, weights=FLOAT * hidden * told),
            _Step(0, FLOAT * (hidden + features) + beside, weights=FLOAT * features * hidden),
        ]

    def _actor_steps(self) -> list[_Step]:
        steps = [
            _Step(FLOAT * after, FLOAT * max(2 * after, before + after), weights=FLOAT * before * after)
            for before, after in pairwise((self._read, *self.network.hidden))
        ]
        inputs = _Step(FLOAT * (self._read + self._judged), 0)  # its own inputs and the critic's
        return [*steps[::-1], inputs]

    def _trunk_step(self, precision: str) -> _Step:
        """Keeps LayerNorm's input and tanh's result; f(s) itself is counted elsewhere."""
        element, inputs = _element(precision), self._trunk_inputs
        features = FLOAT * self.network.features
        trunk = self.network.features * inputs
        return _Step(2 * features, 2 * features + element * inputs, 0, FLOAT * trunk, _cast(element, trunk))

    def _convolutions_step(self, rows: int, precision: str, cached_rows: int | None, unfolds: bool) -> _Step:
        """Keeps the three outputs; frames are converted a second time, and gradients exist for one part at a time."""
        stack, cells, channels, element = self.stack, self._cells, self.network.channels, _element(precision)
        inputs, pixels = (stack.channels, *channels), stack.frames * stack.planes * stack.side**2
        outputs = [each * count for each, count in zip(channels, cells, strict=True)]
        weights = sum(a * b * kernel for (a, b), kernel in zip(pairwise(inputs), KERNELS, strict=True))
        columns = [unfolds * a * k * count for a, k, count in zip(inputs, KERNELS, cells, strict=False)]
        # On the CPU in float32 they are converted in place; otherwise their bytes are joined first.
        moved = 0 if cached_rows is not None and precision == "float32" else pixels
        through_first = moved + element * (pixels + outputs[0] + columns[0])
        through_second = element * (outputs[0] + outputs[1] + columns[1])
        together = min(rows, cached_rows or rows)
        summed = FLOAT * weights * (together < rows)  # a part's gradient beside the sum of the earlier ones
        part = together * max(through_first, through_second) + summed
        return _Step(element * sum(outputs), element * outputs[2], part, FLOAT * weights, _cast(element, weights))

    def _detector_steps(self, precision: str, unfolds: bool) -> list[_Step]:
        """Return the layers of ``td3.detector``, last first: the losses on the maps, the trunk, then view by view."""
        element, cells = _element(precision), (self.stack.side // BLOCK) ** 2
        views = [self._view_steps(view, element, unfolds) for view in self.stack.views]
        maps = _Step(FLOAT * _TAUGHT * cells * len(views), 2 * FLOAT * MAPS * cells)
        return [maps, self._trunk_step(precision), *(step for steps in reversed(views) for step in steps)]

    def _view_steps(self, view: View, element: int, unfolds: bool) -> list[_Step]:
        """Return one view's layers, last first: each keeps its output, the first one also the pixels."""
        heads = self._heads(view)
        found = element * heads["hidden"][0].before
        pixels = element * heads["tower"][0].before
        trunk, told, hidden, tower = (
            [each.step(element, unfolds) for each in reversed(heads[part])]
            for part in ("trunk", "told", "hidden", "tower")
        )
        joined = [_Step(step.saved, step.meanwhile + found, 0, step.weights, step.cast) for step in (*told, *hidden)]
        return [*trunk, *joined, _Step(found, 0), *tower, _Step(pixels, 0)]

    def _heads(self, view: View) -> dict[str, list[_Convolution]]:
        """Return the convolutions of a view by what ``td3.detector`` calls their parts."""
        side = self.stack.side
        half, quarter = side // 2, side // BLOCK
        eighth = (quarter - 2) // 2 + 1
        return {
            "tower": [
                _Convolution("first", self.stack.frames * view.planes, FINE, 3, side, half),
                _Convolution("tower.1", FINE, FINE, 3, half, half),
                _Convolution("tower.3", FINE, COARSE, 3, half, quarter),
                _Convolution("tower.5", COARSE, COARSE, 3, quarter, quarter),
                _Convolution("tower.7", COARSE, COARSE, 3, quarter, quarter),
            ],
            "hidden": [_Convolution("hidden", COARSE + 4, HEAD, 1, quarter, quarter)],
            "told": [_Convolution("told", HEAD, MAPS, 1, quarter, quarter)],
            "trunk": [
                _Convolution("trunk.0", COARSE, COARSE, 4, quarter, eighth),
                _Convolution("trunk.2", COARSE, COARSE, 3, eighth, (eighth - 1) // 2 + 1),
            ],
        }

    def _last_view(self, precision: str, unfolds: bool) -> int:
        """Return the bytes of a row while the last view is aligned, or goes through its first layers, forwards."""
        *before, last = self.stack.views
        element, frames, pixels = _element(precision), self.stack.frames, self.stack.side**2
        saved = sum(step.saved for view in before for step in self._view_steps(view, element, unfolds))
        aligned = max(_ALIGNED, 2 * frames * last.planes) + (2 * frames - 1) * last.planes
        first, second, *_ = self._heads(last)["tower"]
        through = FLOAT * first.before + element * (
            first.before + second.before + second.after + unfolds * second.columns
        )
        return saved + frames * self.stack.planes * pixels + max(FLOAT * aligned * pixels, through)


@dataclass(frozen=True)
class _Convolution:
    """A convolution of ``td3.detector``."""

    name: str
    inputs: int
    outputs: int
    kernel: int
    side_before: int
    side_after: int

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.outputs, self.inputs, self.kernel, self.kernel

    @property
    def before(self) -> int:
        """Numbers of a row that it reads."""
        return self.inputs * self.side_before**2

    @property
    def after(self) -> int:
        """Numbers of a row that it returns."""
        return self.outputs * self.side_after**2

    @property
    def columns(self) -> int:
        """Numbers of a row's input once it is copied into columns."""
        return self.inputs * self.kernel**2 * self.side_after**2

    def step(self, element: int, unfolds: bool) -> _Step:
        """Return its step of the backward pass; it keeps its output, with its ReLU. PyTorch copies what 1×1 reads."""
        weights, copied = prod(self.shape), (self.before + self.after) * (self.kernel == 1)
        meanwhile = element * max(2 * self.after, self.before + self.after + copied + unfolds * self.columns)
        return _Step(element * self.after, meanwhile, 0, FLOAT * weights, _cast(element, weights))


def batch_bytes(batch: int, stack: FrameStack = DEFAULT, privileged: int = 0, n_step: int = 1) -> int:
    """Return the bytes of a sampled ``Batch``: frames in uint8, two vectors, action, three numbers."""
    frames = (stack.frames + stack.new(n_step)) * stack.planes * stack.side**2
    return batch * (frames + FLOAT * (2 * (VECTOR + privileged) + ACTION + 3))


def _highest(steps: Sequence[_Step], rows: int, standing: int, *, grows: bool | None = None) -> int:
    """Return the peak of a backward pass; ``standing``: bytes of gradients that exist before and sum up new ones."""
    grows = standing == 0 if grows is None else grows
    saved, cast = sum(step.saved for step in steps), sum(step.cast for step in steps)
    made, highest = 0, 0
    for step in steps:
        # The weights' gradient first takes 2 bytes per number, beside the cast weights, then 4, without them.
        of_weights = max(2 * step.cast, step.cast + step.weights) if step.cast else step.weights
        highest = max(highest, made + rows * (saved + step.meanwhile) + step.at_once + cast - step.cast + of_weights)
        made += step.weights if grows else 0
        saved, cast = saved - step.saved, cast - step.cast
    return standing + highest


def _layer(name: str, outputs: int, *inputs: int) -> Shapes:
    return {f"{name}.weight": (outputs, *inputs), f"{name}.bias": (outputs,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _mlp(name: str, sizes: tuple[int, ...], norm: bool) -> Shapes:
    """Return the layers by their index in ``nn.Sequential``, which also counts ReLU and LayerNorm."""
    stride = 3 if norm else 2
    shapes: Shapes = {}
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        shapes |= _layer(f"{name}.{stride * index}", outputs, inputs)
        if norm and index < len(sizes) - 2:
            shapes |= _norm(f"{name}.{stride * index + 1}", outputs)
    return shapes


def _cast(element: int, weights: int) -> int:
    return 0 if element == FLOAT else element * weights


def _element(precision: str) -> int:
    return FLOAT if precision == "float32" else FLOAT // 2
