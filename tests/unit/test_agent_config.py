"""A configuration is read from one place, checked strictly, and refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from carla_td3 import config
from carla_td3.layered_yaml import presets
from carla_td3.memory import estimate
from carla_td3.memory.estimate import MIB
from carla_td3.pretrained import without_teachers

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGS = [*sorted((REPOSITORY / "config").glob("*.yaml")), *map(Path, presets())]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("given", "widths"), [("whole", (32, 64, 64)), ("half", (16, 32, 32)), ([8, 16, 24], (8, 16, 24))]
)
def test_the_encoder_s_widths_have_names(given: object, widths: tuple[int, ...]) -> None:
    found = config.validate({"td3": {"network": {"channels": given}}}, "test")
    assert found.td3.network.channels == widths
    assert config.dump(found)["td3"]["network"]["channels"] == list(widths)  # which a checkpoint is compared by


def test_an_unknown_encoder_is_refused_with_the_known_ones() -> None:
    with pytest.raises(config.ConfigError, match="'double' is unknown: expected three widths, or one of whole, half"):
        config.validate({"td3": {"network": {"channels": "double"}}}, "test")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_shipped_configuration_survives_a_round_trip(path: Path) -> None:
    loaded = config.load(path)
    assert config.validate(yaml.safe_load(yaml.safe_dump(config.dump(loaded))), "dump") == loaded


@pytest.mark.parametrize("preset", ["lowmem", "offload", "hostram"])
def test_a_preset_states_only_what_differs(preset: str) -> None:
    full = config.dump(config.load(Path("full")))
    stated = yaml.safe_load(presets()[preset].read_text(encoding="utf-8"))
    assert stated.pop("extends") == "full"
    for section, values in stated.items():
        for key, value in values.items():
            assert full[section][key] != value, f"{section}.{key} repeats the first file"


@pytest.mark.parametrize(("preset", "batch"), [("lowmem", 64), ("offload", 256), ("hostram", 256)])
def test_a_preset_needs_less_where_it_says_so(preset: str, batch: int) -> None:
    full, chosen = (config.load(Path(name)) for name in ("full", preset))
    assert chosen.td3.batch_size == batch  # the effective one, which learning depends on
    on_gpu, on_cpu = ([estimate.estimate(each, cuda=cuda) for each in (full, chosen)] for cuda in (True, False))
    device_mib, host_mib = {"lowmem": (45, 20), "offload": (70, 22), "hostram": (50, 65)}[preset]
    assert on_gpu[0].total("device") - on_gpu[1].total("device") >= device_mib * MIB
    assert on_cpu[0].total("host") - on_cpu[1].total("host") >= host_mib * MIB


def test_a_preset_is_found_by_its_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = write(tmp_path / "own.yaml", "extends: lowmem\nseed: 7")
    assert config.load(own) == config.load(Path("lowmem"), {"seed": 7})
    with pytest.raises(config.ConfigError, match="lowmen: neither a file nor a preset; the presets are 50k, full,"):
        config.load(Path("lowmen"))


def test_a_file_wins_over_a_preset_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "lowmem", "td3: {batch_size: 2}")
    assert config.load(Path("lowmem")).td3.batch_size == 2
    assert config.load(write(tmp_path / "own.yaml", "extends: lowmem")).td3.batch_size == 2


def test_extends_looks_beside_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    write(tmp_path / "here" / "lowmem", "td3: {batch_size: 2}")
    own = write(tmp_path / "own.yaml", "extends: lowmem")
    assert config.load(own) == config.load(presets()["lowmem"]), "what lies in the working folder is another file"
    write(tmp_path / "lowmem", "td3: {batch_size: 3}")
    assert config.load(own).td3.batch_size == 3


def test_overrides_win_over_files_and_files_over_defaults(tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "td3: {batch_size: 32, tau: 0.01}")
    child = write(tmp_path / "child.yaml", "extends: base.yaml\ntd3: {batch_size: 16}")
    loaded = config.load(child, {"td3.policy_delay": 3})
    assert (loaded.td3.batch_size, loaded.td3.tau, loaded.td3.policy_delay) == (16, 0.01, 3)


@pytest.mark.parametrize("section", ["td3", "replay", "training", "evaluation", "environment"])
def test_a_section_that_is_set_leaves_what_it_doesnt_name(section: str) -> None:
    before = config.load(Path("traffic"), {"td3.network.features": 96, "replay.capacity": 3000})
    given = {"td3.network.features": 96, "replay.capacity": 3000, section: {}}
    assert config.load(Path("traffic"), given) == before
    changed = config.load(Path("traffic"), {"td3": {"batch_size": 8}})
    assert (changed.td3.batch_size, changed.td3.network.encoder) == (8, "detector")


def test_a_key_of_a_section_that_a_file_leaves_out(tmp_path: Path) -> None:
    saved = write(tmp_path / "config.yaml", "training: {towns: null}")
    assert config.load(saved).training.towns is None
    set_there = config.load(saved, {"training.towns.every_episodes": 5}).training.towns
    assert set_there is not None
    assert set_there.every_episodes == 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("td3: {imitation: 2}", "learn from what the simulator knows: set environment.privileged to true"),
        ("td3: {foo: 3}", "unknown key `td3.foo`; known here: actor_learning_rate, auxiliary, batch_size"),
        ("td3: {bach_size: 3}", "unknown key `td3.bach_size` (did you mean `td3.batch_size`?)"),
        ("tds: {}", "unknown key `tds`; known here: algorithm, cluster"),
        ("batch_size: 64", "unknown key `batch_size` (did you mean `td3.batch_size`?)"),  # the notes'
        ("training: {batch_size: 64}", "unknown key `training.batch_size` (did you mean `td3.batch_size`?)"),
        ("dataloader: {params: {batch_size: 16}}", "unknown key `dataloader` (did you mean `td3.batch_size`?)"),
        ("ppo_micro_batch_size_per_gpu: 16", "(did you mean `td3.micro_batch`?)"),
        ("td3: {learning_rate: 1}", "(did you mean `td3.actor_learning_rate` or `td3.critic_learning_rate`?)"),
        (
            "environment: {camera: {narrow: {foo: 1}}}",
            "unknown key `environment.camera.narrow.foo`; known here: channels",
        ),
        ("{td3: {tau: 1}, seed: 1,\n td3: {}}", "`td3` stands twice, in lines 1 and 2: keep one of them"),
        ("td3: {tau: 0.1, network: {}, tau: 0.2}", "`tau` stands twice, in lines 1 and 1"),
        ("td3:", "`td3` is empty; expected keys below it"),
        ("td3: {batch_size: many}", "`td3.batch_size` is 'many'; expected a whole number"),
        ("td3: {batch_size: '1e2'}", "`td3.batch_size` is '1e2'; expected a whole number: write 100"),
        ("td3: {batch_size: true}", "`td3.batch_size` is true; expected a number"),
        ("td3: {batch_size: 1.5e0}", "`td3.batch_size` is 1.5; expected a whole number"),
        ("td3: {network: {hidden: [256, 0]}}", "`td3.network.hidden.1` is 0; expected more than 0"),
        ("simulator: {host: ''}", "`simulator.host` is ''; expected text that isn't empty"),
        ("td3: {network: {channels: [8, 8]}}", "`td3.network.channels` has too few values"),
        ("td3: {actor_learning_rate: .inf}", "`td3.actor_learning_rate` is inf; expected a finite number"),
        ("memory: {expandable_segments: 3}", "`memory.expandable_segments` is 3; expected true or false or 'auto'"),
        ("environment: {time_limit: {constant_s: 0}}", "time_limit.constant_s and s_per_m are both 0: raise one"),
        ("a: &a {b: *a}", "isn't YAML: found unconstructable recursive node"),
        (f"a: {1000 * '['}", "isn't YAML that can be read: it is nested too deeply"),
        ("seed: 2024-13-01", "isn't YAML: month must be in 1..12"),
        ("1: 2", "unknown key `1`; known here"),
        ("environment: {reward: {collision: -1}}", "`environment.reward.collision` is -1"),
        ("training: {warmup_steps: 10, total_steps: 5}", "expected less than training.total_steps"),
        (
            "training: {collectors: 2, lockstep: true}",
            "training.lockstep needs one collector, training.collectors is 2",
        ),
        ("{training: {collectors: 3}, simulator: {others: ['a:1']}}", "has 1 addresses for the 2 further collectors"),
        ("simulator: {others: nowhere}", "simulator.others has 'nowhere': expected HOST:PORT"),
        (
            "{training: {collectors: 2}, replay: {capacity: 1999}}",
            "less than 1000 rows for each of training.collectors",
        ),
        ("{training: {collectors: 64}, simulator: {port: 65500}}", "leaves no room for 64 simulators"),
        (
            "{training: {lockstep: true}, cluster: {address: '10.0.0.1:6379'}}",
            "training.lockstep needs its collector on this machine, cluster.address is set",
        ),
        ("cluster: {address: here}", "cluster.address is 'here': expected HOST:PORT, as 10.0.0.1:6379, or auto"),
        ("- 1", "holds a list, expected sections"),
        ("td3: [1", "isn't YAML"),
        ("extends: me.yaml", "goes in a circle"),
        ("extends: nowhere.yaml", "nowhere.yaml: can't be read (No such file or directory)"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(config.ConfigError) as refused:
        config.load(write(tmp_path / "me.yaml", text))
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "taken", "refused"),
    [
        ("per_process_memory_fraction", [0.1, 1.0, None], [0.0, 1.1]),
        ("garbage_collection_threshold", [0.1, 0.9, None], [0.0, 1.0]),
        ("reserve_mib", [0.0, 512.0], [-1.0]),
        ("offload", [[], ["optimizer"], ["optimizer", "targets"]], [["networks"]]),
        ("expandable_segments", [True, False, "auto"], ["yes please"]),
    ],
)
def test_memorys_settings_take_what_can_be_and_refuse_the_rest(
    key: str, taken: list[object], refused: list[object]
) -> None:
    for value in taken:
        found = getattr(config.validate({"memory": {key: value}}, "test").memory, key)
        assert (list(found) if isinstance(found, tuple) else found) == value
    for value in refused:
        with pytest.raises(config.ConfigError, match=key):
            config.validate({"memory": {key: value}}, "test")


def test_a_power_of_ten_is_a_number_and_anchors_merge(tmp_path: Path) -> None:
    text = "training: {total_steps: 1e6}\ntd3: {critic_learning_rate: 1e-3}\nseed: 2E3\n"
    loaded = config.load(write(tmp_path / "me.yaml", text), {"evaluation.every_steps": 5e3})
    assert (loaded.training.total_steps, loaded.td3.critic_learning_rate, loaded.seed) == (1_000_000, 1e-3, 2000)
    assert loaded.evaluation.every_steps == 5000
    merged = "environment: {reward: &all {idle: 0.3}}\nmemory: {<<: {reserve_mib: 1}, reserve_mib: 2}\n"
    assert config.load(write(tmp_path / "me.yaml", merged)).memory.reserve_mib == 2


FILE = "{simulator: {port: 2001, host: elsewhere}, td3: {batch_size: 64, micro_batch: 32}}"
PORTS = {"CARLA_PORTS": "2100-2102"}


@pytest.mark.parametrize(
    ("environment", "key", "value"),
    [
        (PORTS, "simulator.port", 2100),
        (PORTS | {"CARLA_PORT": ""}, "simulator.port", 2100),
        (PORTS | {"CARLA_PORT": "2345"}, "simulator.port", 2345),
        (PORTS, "simulator.host", "elsewhere"),
        ({"AGENT_BATCH": "2"}, "td3.batch_size", 2),
        ({"AGENT_BATCH": ""}, "td3.batch_size", 64),
        ({"RL_BATCH_SIZE": "4"}, "td3.batch_size", 4),
        ({"RL_BATCH_SIZE": "4", "AGENT_BATCH": "2"}, "td3.batch_size", 2),
    ],
)
def test_a_variable_wins_over_the_file_and_an_override_over_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], key: str, value: object
) -> None:
    path, (section, name) = write(tmp_path / "me.yaml", FILE), key.split(".")
    for variable, text in environment.items():
        monkeypatch.setenv(variable, text)
    assert getattr(getattr(config.load(path), section), name) == value
    other = "here" if name == "host" else 2222
    assert getattr(getattr(config.load(path, {key: other}), section), name) == other


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"CARLA_PORT": "two thousand"}, r"me.yaml with CARLA_PORT: `simulator\.port` is 'two thousand'"),
        ({"CARLA_PORT": "", "CARLA_PORTS": "x-2102"}, r"me.yaml with CARLA_PORTS: `simulator\.port` is 'x'"),
        ({"AGENT_BATCH": "0"}, r"me.yaml with AGENT_BATCH: `td3\.batch_size` is '0'"),
        ({"AGENT_BATCH": "", "RL_BATCH_SIZE": "few"}, r"me.yaml with RL_BATCH_SIZE: `td3\.batch_size` is 'few'"),
    ],
)
def test_a_bad_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], sentence: str
) -> None:
    for variable, text in environment.items():
        monkeypatch.setenv(variable, text)
    with pytest.raises(config.ConfigError, match=sentence):
        config.load(write(tmp_path / "me.yaml", FILE))


def test_another_program_s_variable_is_said_unless_ours_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.foreign_variables({}) == []
    monkeypatch.setenv("RL_BATCH_SIZE", "4")
    (line,) = config.foreign_variables({})
    assert line.startswith("RL_BATCH_SIZE is 4: td3.batch_size is that. AGENT_BATCH")
    assert config.foreign_variables({"td3.batch_size": 8}) == []
    monkeypatch.setenv("AGENT_BATCH", "2")
    assert config.foreign_variables({}) == []


def test_the_digest_follows_all_values_but_the_simulator_s_place(tmp_path: Path) -> None:
    empty = write(tmp_path / "me.yaml", "")
    plain, moved, other = (config.load(empty, values) for values in ({}, {"simulator.port": 3000}, {"seed": 1}))
    assert plain.digest() == moved.digest() != other.digest()
    assert "port" not in config.dump(moved, address=False)["simulator"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"q_weight": 0}, "q_weight is 0 and td3.imitation is 0, so the actor would learn from nothing"),
        ({"imitation_counts": "if_better"}, "imitation_counts is if_better and td3.imitation is 0, so no label counts"),
    ],
)
def test_an_actor_without_a_teacher_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(config.ConfigError, match=sentence):
        config.validate({"td3": given}, "test")
    taught = config.validate({"td3": {**given, "imitation": 1.0}, "environment": {"privileged": True}}, "test")
    assert without_teachers(taught).td3.q_weight == 1.0  # an evaluation has no teacher, and isn't refused


def test_a_detector_needs_pictures_and_to_learn_a_teacher() -> None:
    detector = {"network": {"encoder": "detector"}, "auxiliary": 1.0}
    known = {"privileged": True, "action_rate": {"steer_range": 1.0}}
    taught = config.validate({"td3": detector, "environment": known}, "test")
    taught.require_teachers()
    with pytest.raises(config.ConfigError, match=r"steer_range is 0\.5 and td3.network.encoder is detector, which"):
        config.validate({"td3": detector, "environment": {"privileged": True}}, "test")
    with pytest.raises(config.ConfigError, match=r"set simulator\.fixed_delta_s to 0\.1, or encoder to nature"):
        config.validate({"td3": detector, "environment": known, "simulator": {"fixed_delta_s": 0.05}}, "test")
    with pytest.raises(config.ConfigError, match="auxiliary is 0, so its maps would learn from nothing: raise"):
        without_teachers(taught).require_teachers()
    with pytest.raises(config.ConfigError, match="sees is vector, so there is no picture to detect in: set encoder"):
        config.validate({"td3": {"network": {"encoder": "detector", "sees": "vector"}}}, "test")
    config.validate({}, "test").require_teachers()
