"""Attributes that several sensors have, with CARLA's defaults."""

from __future__ import annotations

from carla_lite.blueprints.catalogue import Attribute, Kind

ROLES = ("front", "back", "left", "right", "front_left", "front_right", "back_left", "back_right")


def floats(**defaults: str) -> tuple[Attribute, ...]:
    """Return numeric attributes with these defaults."""
    return tuple(Attribute(name, Kind.FLOAT, value) for name, value in defaults.items())


def integers(**defaults: str) -> tuple[Attribute, ...]:
    """Return whole-number attributes with these defaults."""
    return tuple(Attribute(name, Kind.INT, value) for name, value in defaults.items())


# The lens and film of CARLA's camera (AddCommonPostProcessingEffectsParameters in ActorBlueprintFunctionLibrary.cpp):
# accepted, so that scripts which set them run; the picture ignores them.
LENS = floats(
    lens_circle_falloff="5.0",
    lens_circle_multiplier="0.0",
    lens_k="-1.0",
    lens_kcube="0.0",
    lens_x_size="0.08",
    lens_y_size="0.08",
)
FILM = (
    Attribute("enable_postprocess_effects", Kind.BOOL, "true"),
    Attribute("exposure_mode", Kind.STRING, "histogram", ("histogram", "manual"), restricted=True),
    *integers(blade_count="5"),
    *floats(
        gamma="2.2",
        motion_blur_intensity="0.45",
        motion_blur_max_distortion="0.35",
        motion_blur_min_object_screen_size="0.1",
        lens_flare_intensity="0.1",
        bloom_intensity="0.675",
        exposure_compensation="0.0",
        shutter_speed="200.0",
        iso="100.0",
        fstop="1.4",
        exposure_min_bright="10.0",
        exposure_max_bright="12.0",
        exposure_speed_up="3.0",
        exposure_speed_down="1.0",
        calibration_constant="16.0",
        focal_distance="1000.0",
        blur_amount="1.0",
        blur_radius="0.0",
        min_fstop="1.2",
        slope="0.88",
        toe="0.55",
        shoulder="0.26",
        black_clip="0.0",
        white_clip="0.04",
        temp="6500.0",
        tint="0.0",
        chromatic_aberration_intensity="0.0",
        chromatic_aberration_offset="0.0",
    ),
)
