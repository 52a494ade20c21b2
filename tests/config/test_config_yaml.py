"""YAML as people write it: numbers, duplicates, what is refused, and back again."""

import pytest

from sim.config.yaml_io import dump_yaml, parse_value, parse_yaml, read_yaml
from sim.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        ("2.5e6", 2.5e6),
        (".5", 0.5),
        ("5.", 5.0),
        ("-7", -7),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", "010"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("40GiB", "40GiB"),
        ("on", True),
        ("no", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("[1, 2e0]", [1, 2.0]),
        ("{a: 1}", {"a": 1}),
        ("'1e3'", "1e3"),
    ],
)
def test_plain_values(text, value):
    found = parse_value(text, "here")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: the key stands twice (first on line 1)"),
        ("a:\n  b: 1\n  b: 2\n", "x.yaml:3: a.b: the key stands twice (first on line 2)"),
        ("a: [{b: 1, b: 2}]\n", "x.yaml:1: a.0.b: the key stands twice"),
        ("1: x\n", "x.yaml:1: the key '1' must be text"),
        ("- a\n- b\n", "x.yaml: a configuration is a mapping"),
        ("just text\n", "x.yaml: a configuration is a mapping"),
        ("a: [1\n", "x.yaml:2:1: not valid YAML"),
        ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML"),
        ("a: &x [*x]\n", "an alias that contains itself"),
        ("a: \x00\n", "not valid YAML"),
    ],
)
def test_refused(text, said):
    with pytest.raises(ConfigError) as error:
        parse_yaml(text, "x.yaml")
    assert said in str(error.value)
    assert str(error.value).startswith("x.yaml")


def test_both_duplicates_are_named():
    with pytest.raises(ConfigError) as error:
        parse_yaml("a: 1\na: 2\nb: 1\nb: 2\n", "x.yaml")
    assert len(str(error.value).splitlines()) == 2


def test_a_merge_key_is_no_duplicate():
    document = parse_yaml("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n", "x.yaml")
    assert document.data["mine"] == {"x": 1, "y": 3}


def test_lines_are_known():
    document = parse_yaml("a:\n  b: 1\n  c:\n    - 5\n    - 6\n", "x.yaml")
    assert document.lines[("a", "b")] == 2
    assert document.lines[("a", "c", 1)] == 5


def test_unreadable_files(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_yaml(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\xfe\n")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        read_yaml(tmp_path / "bytes.yaml")


def test_written_yaml_reads_back_equal():
    data = {"f": 1e-7, "g": 1e22, "n": None, "t": True, "s": "1e3", "d": "on", "l": [{"x": 0.1}], "e": "", "u": "é"}
    text = dump_yaml(data)
    assert parse_yaml(text, "x").data == data
    import yaml

    assert yaml.safe_load(text) == data  # any other reader sees the same
