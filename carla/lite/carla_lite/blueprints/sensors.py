"""The sensors of CARLA 0.9.16, one row each, with the attributes and defaults of its ActorBlueprintFunctionLibrary.cpp.

Owns the rows of all sensors that CARLA lists. ``actors.sensors`` computes some of them. The others are listed, too,
because programs look them up before they know whether they will use them; spawning one is refused with a sentence.
"""

from __future__ import annotations

from carla_lite.blueprints.blueprint import Attribute, Blueprint, Kind, floats, integers, role, unused

_ROLES = ("front", "back", "left", "right", "front_left", "front_right", "back_left", "back_right")

# The lens and film of CARLA's camera (AddCommonPostProcessingEffectsParameters in ActorBlueprintFunctionLibrary.cpp).
_LENS = unused(
    "the lens is drawn without distortion or shading",
    *floats(
        lens_circle_falloff="5.0",
        lens_circle_multiplier="0.0",
        lens_k="-1.0",
        lens_kcube="0.0",
        lens_x_size="0.08",
        lens_y_size="0.08",
    ),
)
_FILM = unused(
    "exposure, blur, flares and grading are not drawn: a picture has the colours of its light and air",
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
_SPINNING = (
    *integers(channels="32", points_per_second="56000"),
    *floats(range="10.0", rotation_frequency="10.0", upper_fov="10.0", lower_fov="-30.0", horizontal_fov="360.0"),
    *floats(sensor_tick="0.0"),
)
_LIDAR = (
    *_SPINNING,
    *integers(noise_seed="0"),
    *floats(atmosphere_attenuation_rate="0.004", dropoff_general_rate="0.45", dropoff_intensity_limit="0.8"),
    *floats(dropoff_zero_intensity="0.4", noise_stddev="0.0"),
)
_RADAR = (
    *integers(points_per_second="1500", noise_seed="0"),
    *floats(horizontal_fov="30", vertical_fov="30", range="100", sensor_tick="0.0"),
)
_OBSTACLE = (
    *floats(distance="5.0", hit_radius="0.5", sensor_tick="0.0"),
    Attribute("only_dynamics", Kind.BOOL, "false"),
    *unused("the trace is not drawn", Attribute("debug_linetrace", Kind.BOOL, "false")),
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
_RADIO = (
    *integers(noise_seed="0"),
    *floats(sensor_tick="0.0", transmit_power="21.5", receiver_sensitivity="-99.0", frequency_ghz="5.9"),
    *floats(combined_antenna_gain="10.0", path_loss_exponent="2.7", d_ref="1.0", filter_distance="500.0"),
    *floats(custom_fading_stddev="0.0"),
    Attribute("use_etsi_fading", Kind.BOOL, "true"),
    Attribute("scenario", Kind.STRING, "highway", ("highway", "rural", "urban"), restricted=True),
    Attribute("path_loss_model", Kind.STRING, "winner", ("winner", "geometric"), restricted=True),
)
_V2X = (
    *_RADIO,
    *floats(gen_cam_min="0.1", gen_cam_max="1.0", noise_vel_stddev_x="0.0"),
    Attribute("fixed_rate", Kind.BOOL, "false"),
    *floats(**{f"noise_accel_stddev_{axis}": "0.0" for axis in "xyz"}),
    *floats(
        **{
            f"noise_{what}_{part}": "0.0"
            for what in ("lat", "lon", "alt", "head", "yawrate")
            for part in ("stddev", "bias")
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
    "sensor.lidar.ray_cast_semantic": _SPINNING,
    "sensor.other.obstacle": _OBSTACLE,
    "sensor.other.radar": _RADAR,
    "sensor.other.rss": (),
    "sensor.other.v2x": _V2X,
    "sensor.other.v2x_custom": _RADIO,
}
_WITHOUT_ROLES = {f"sensor.other.{name}" for name in ("gnss", "imu", "radar", "v2x", "v2x_custom")}
"""Sensors for which CARLA recommends no role but "default"."""

REFUSED = {
    "sensor.other.rss": "it needs a client that is built with Intel's ad-rss, and the wheel of carla 0.9.16 is not",
    "sensor.other.v2x": "radio messages between vehicles are not simulated",
    "sensor.other.v2x_custom": "radio messages between vehicles are not simulated",
}
"""Why the sensors without a class can't be spawned."""

SENSORS = [
    Blueprint(
        name,
        (
            *attributes,
            role(*(() if name in _WITHOUT_ROLES else _ROLES)),
            *unused("there is no ROS publisher", Attribute("ros_name", Kind.STRING, name)),
        ),
    )
    for name, attributes in _ROWS.items()
]
