"""The sensors of CARLA 0.9.16, one row each, with the attributes and defaults of its ActorBlueprintFunctionLibrary.cpp.

Owns the rows. Which of them are computed here, ``actors.sensors`` says. CARLA's own programs look the others up, or
choose among them, before they know whether they will use them: they are found, and spawning one is refused in words.
"""

from __future__ import annotations

from carla_lite.blueprints.blueprint import Attribute, Blueprint, Kind, floats, integers, role

_ROLES = ("front", "back", "left", "right", "front_left", "front_right", "back_left", "back_right")

# The lens and film of CARLA's camera (AddCommonPostProcessingEffectsParameters in ActorBlueprintFunctionLibrary.cpp):
# accepted, so that scripts which set them run; the picture ignores them.
_LENS = floats(
    lens_circle_falloff="5.0",
    lens_circle_multiplier="0.0",
    lens_k="-1.0",
    lens_kcube="0.0",
    lens_x_size="0.08",
    lens_y_size="0.08",
)
_FILM = (
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
_PICTURE = (*integers(image_size_x="800", image_size_y="600"), *floats(sensor_tick="0.0", fov="90.0"), *_LENS)
_DVS = (
    *floats(positive_threshold="0.3", negative_threshold="0.3"),
    *floats(sigma_positive_threshold="0.0", sigma_negative_threshold="0.0", log_eps="0.001"),
    *integers(refractory_period_ns="0"),
    Attribute("use_log", Kind.BOOL, "true"),
)
_LIDAR = (
    *integers(channels="32", points_per_second="56000", noise_seed="0"),
    *floats(sensor_tick="0.0", range="10.0", rotation_frequency="10.0", upper_fov="10.0", lower_fov="-30.0"),
    *floats(horizontal_fov="360.0", atmosphere_attenuation_rate="0.004", dropoff_general_rate="0.45"),
    *floats(dropoff_intensity_limit="0.8", dropoff_zero_intensity="0.4", noise_stddev="0.0"),
)
_GNSS = (
    *integers(noise_seed="0"),
    *floats(sensor_tick="0.0"),
    *floats(**{f"noise_{axis}_{part}": "0.0" for axis in ("lat", "lon", "alt") for part in ("stddev", "bias")}),
)
_IMU = (
    *integers(noise_seed="0"),
    *floats(sensor_tick="0.0"),
    *floats(
        **{
            f"noise_{part}_{axis}": "0.0"
            for part in ("accel_stddev", "gyro_stddev", "gyro_bias")
            for axis in ("x", "y", "z")
        }
    ),
)
_ROWS: dict[str, tuple[Attribute, ...]] = {
    "sensor.camera.rgb": (*_PICTURE, *_FILM),
    "sensor.other.collision": (),
    "sensor.other.lane_invasion": (),
    "sensor.other.gnss": _GNSS,
    "sensor.other.imu": _IMU,
    "sensor.camera.cosmos_visualization": _PICTURE,
    "sensor.camera.depth": _PICTURE,
    "sensor.camera.dvs": (*_PICTURE, *_FILM, *_DVS),
    "sensor.camera.instance_segmentation": _PICTURE,
    "sensor.camera.normals": _PICTURE,
    "sensor.camera.optical_flow": _PICTURE,
    "sensor.camera.semantic_segmentation": _PICTURE,
    "sensor.lidar.ray_cast": _LIDAR,
}

SENSORS = [Blueprint(name, (*attributes, role(*_ROLES))) for name, attributes in _ROWS.items()]
