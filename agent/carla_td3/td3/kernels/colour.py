"""Weights over brightness and two differences of colour, as weights over red, green and blue."""

from __future__ import annotations

from torch import Tensor

# Gain of colour differences against brightness. In a street nearly everything is grey, and from three nearly equal
# planes a network learns only brightness and where it is. It then told another town's red lights from its green ones
# with an area under the ROC curve of 0.8; with this gain of 1.0, after fewer updates (docs/benchmarks.md).
_GAIN = 3.0


def over_red_green_blue(brightness: Tensor, red_green: Tensor, blue_yellow: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights over red, green and blue for learned ones over brightness, red against green, and blue against
    yellow, as in a retina.
    """
    grey, yellow, red_green = brightness / 3.0, _GAIN * blue_yellow / 2.0, _GAIN * red_green
    return grey + red_green - yellow, grey - red_green - yellow, grey + 2.0 * yellow
