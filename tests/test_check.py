"""`perilune check`: what it prints, where it points, and when it fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from perilune.cli.check import check
from perilune.cli.commands import commands
from perilune.errors import UnusableInput

MODEL = "--model-path moonshotai/Kimi-K3 --trust-remote-code"
SOUND = f"sglang serve {MODEL} --tp-size 8 --max-running-requests 16 --max-mamba-cache-size 64\n"
ROUNDING = (
    f"sglang serve {MODEL} \\\n  --tp-size 16 --ep-size 16 --moe-runner-backend marlin "
    "--nnodes 2 --node-rank $R --dist-init-addr 10.0.0.1:20000 \\\n"
)
REFUSED = ROUNDING + "  --enable-mamba-cache-stochastic-rounding\n"  # not on H200
PREFILL = f"sglang serve {MODEL} --tp-size 8 --host 10.0.0.1 --disaggregation-mode prefill --kv-cache-dtype fp8_e4m3\n"
DECODE = f"sglang serve {MODEL} --tp-size 8 --host 10.0.0.2 --disaggregation-mode decode --kv-cache-dtype bf16\n"


def run(*arguments: str, piped: str | None = None) -> Result:
    return CliRunner().invoke(check, arguments, input=piped, standalone_mode=False)


def findings(*arguments: str) -> list[dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    return found


def errors(found: Sequence[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in found if one["severity"] == "error"]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    def put(content: str, name: str = "run.sh") -> str:
        Path(name).write_bytes(content.encode())
        return name

    return put


def test_a_sound_server_has_no_error(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(SOUND), "--platform", "b300")
    assert (result.return_value, "error" in result.stdout) == (0, False)


def test_a_refused_server_is_an_error_at_the_flag(write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(REFUSED), "--platform", "h200")
    assert found[0]["id"] == "state-rounding"
    assert found[0]["where"] == {"file": "run.sh", "line": 3}
    assert list(found[0])[:3] == ["id", "severity", "where"]
    assert {"flags", "message", "fix", "source"} <= set(found[0])
    assert found[0]["flags"][0] == "--enable-mamba-cache-stochastic-rounding"


def test_text_is_worst_first_within_eighty_columns(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(REFUSED), "--platform", "h200")
    lines = result.stdout.splitlines()
    assert lines[0] == "run.sh:3 error state-rounding"
    assert any(line.startswith("    fix: ") for line in lines)
    assert re.fullmatch(r"1 server in 1 file: 1 error.*\.", lines[-1])
    assert all(len(line) <= 80 for line in lines)
    severities = [line.split()[1] for line in lines if re.match(r"run\.sh:\d+ ", line)]
    assert severities == sorted(severities, key=["error", "rewrite", "capacity", "advice"].index)


@pytest.mark.parametrize(
    ("content", "options", "code"),
    [
        (SOUND, (), 0),
        (SOUND.replace("64", "20"), ("--concurrency", "64", "--isl", "8192", "--osl", "1024"), 0),
        (SOUND.replace("64", "20"), ("--concurrency", "64", "--isl", "8192", "--osl", "1024", "--strict"), 1),
        (SOUND + "--no-such-flag", (), 0),
        (SOUND.replace("\n", " --no-such-flag\n"), (), 1),
    ],
)
def test_exit_codes(content: str, options: tuple[str, ...], code: int, write) -> None:  # type: ignore[no-untyped-def]
    assert run(write(content), "--platform", "b300", *options).return_value == code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Nothing to check"),
        (("run.sh",), "which accelerator"),
        (("run.sh", "--platform", "b301"), "Unknown platform"),
        (("run.sh", "--platform", "b300", "--", "sglang", "serve"), "Both"),
        (("run.sh", "--platform", "b300", "--sglang", "new"), "no release"),
        (("run.sh", "--platform", "b300", "--json", "--sarif"), "Give one of them"),
        (("none.sh", "--platform", "b300"), "no such file"),
        (("empty.sh", "--platform", "b300"), "no SGLang server"),
        (("unread.sh", "--platform", "b300"), "line 2"),
        (("run.sh", "--platform", "b300", "--router", "run.sh"), "no router"),
        (("--platform", "b300", "--", "ls", "-l"), "No server command"),
        (("unknown.sh", "--platform", "b300"), "unknown.sh, line 1"),
    ],
)
def test_unusable_input(arguments: tuple[str, ...], said: str, write) -> None:  # type: ignore[no-untyped-def]
    write(SOUND)
    write("ls\n", "empty.sh")
    write("python3 - <<E\nsglang serve\nE\n", "unread.sh")
    write("sglang serve --model-path who/knows", "unknown.sh")
    result = run(*arguments)
    if isinstance(result.exception, UnusableInput):
        text = str(result.exception)
    else:
        assert result.return_value == 2
        text = result.stderr
    assert said in text


def test_files_without_a_server_can_be_passed_over(write) -> None:  # type: ignore[no-untyped-def]
    names = [write(SOUND), write("ls\n", "b.sh"), write("- 1\n", "c.yaml")]
    assert run(*names, "--platform", "b300").return_value == 2
    assert run(*names, "--platform", "b300", "--skip-others").return_value == 0
    assert run(*names[1:], "--platform", "b300", "--skip-others").return_value == 0
    assert run(*names, write("a: [", "d.yaml"), "--platform", "b300", "--skip-others").return_value == 2


def test_one_unusable_file_does_not_hide_the_others(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(REFUSED), write("\0", "b.sh"), "--platform", "h200")
    assert result.return_value == 2
    assert "state-rounding" in result.stdout
    assert "b.sh: It is a binary file" in result.stderr


@pytest.mark.parametrize("form", ["words", "one string", "standard input", "a file from standard input"])
def test_a_pasted_command(form: str) -> None:
    words = ["sglang", "serve", *MODEL.split(), "--tp-size", "8", "--no-such-flag"]
    text = " ".join(words)
    arguments = {
        "words": ["--", *words],
        "one string": ["--", text],
        "standard input": ["--", "-"],
        "a file from standard input": ["-"],
    }[form]
    result = run("--platform", "b300", "--json", *arguments, piped=text)
    assert result.return_value == 1
    found = json.loads(result.stdout)["findings"][0]
    assert (found["severity"], found["flags"]) == ("error", ["--no-such-flag"])
    assert (found["where"] or {}).get("line") == (None if form == "words" else 1)


@pytest.mark.parametrize("flag", ["\u2013model-path", "\u2014model-path", "-\u2013model-path", "\u200b--model-path"])
def test_words_from_a_chat(flag: str) -> None:
    command = ["sglang", "serve", flag, "moonshotai/Kimi-K3", "--tp-size", "8", "--served-model-name", "a b"]
    result = run("--platform", "b300", "--json", "--", *command)
    (typed,) = [one for one in json.loads(result.stdout)["findings"] if one["severity"] == "error"]
    assert (typed["id"], typed["where"]) == ("typography", {"file": "command line", "line": 1})
    assert "Column 14 has" in typed["message"]


@pytest.mark.parametrize("form", [(), ("--json",), ("--sarif",), ("--github",)])
def test_a_terminal_is_not_told_what_a_file_says(form: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(f"sglang serve {MODEL} --tp-size '\x1b[31m8' --\x1b]0;x\x07\n"), "--platform", "b300", *form)
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


def test_secrets_are_never_shown(write) -> None:  # type: ignore[no-untyped-def]
    name = write(f"export HF_TOKEN=hf_abc\nsglang serve {MODEL} --tp-size 7 --api-key sk-xyz\n")
    for form in ("--json", "--sarif", "--github"):
        output = run(name, "--platform", "b300", form).output
        assert "hf_abc" not in output
        assert "sk-xyz" not in output


def test_a_pair_is_judged_together(write) -> None:  # type: ignore[no-untyped-def]
    prefill, decode = write(PREFILL, "p.sh"), write(DECODE, "d.sh")
    alone = errors(findings(prefill, decode, "--platform", "b300"))
    together = findings("--pair", prefill, decode, "--platform", "b300")
    new = [one for one in together if one["severity"] == "error" and one["id"] not in alone]
    assert any("--kv-cache-dtype" in one["flags"] for one in new), together
    assert {one["where"]["file"] for one in new} <= {"p.sh", "d.sh"}


def test_a_role_that_was_forgotten_is_a_finding(write) -> None:  # type: ignore[no-untyped-def]
    flag = " --disaggregation-mode decode"
    prefill, decode = write(PREFILL, "p.sh"), write(DECODE.replace("bf16", "fp8_e4m3").replace(flag, ""), "d.sh")
    found = findings("--pair", prefill, decode, "--platform", "b300")
    (role,) = [one for one in found if one["id"] == "pd-roles"]
    assert (role["severity"], role["where"]["file"], role["pool"]) == ("error", "d.sh", "decode")
    result = run("--pair", prefill, decode, "--platform", "b300", "--fix")
    assert result.return_value == 0, result.stderr
    assert "+" + DECODE.rstrip().replace("bf16", "fp8_e4m3").split(" --disagg")[0] in result.stdout
    assert "--disaggregation-mode decode" in result.stdout


@pytest.mark.parametrize("order", [("d.sh", "p.sh"), ("p.sh", "p.sh"), ("plain.sh", "plain.sh")])
def test_the_first_file_is_prefill_and_the_second_decode(order: tuple[str, str], write) -> None:  # type: ignore[no-untyped-def]
    write(PREFILL, "p.sh")
    write(DECODE, "d.sh")
    write(SOUND, "plain.sh")
    result = run("--pair", *order, "--platform", "b300", "--json")
    assert result.return_value == 1
    assert "pd-roles" in errors(json.loads(result.stdout)["findings"])


BOTH = f"if [ $ROLE = prefill ]; then\n  {PREFILL}else\n  {DECODE}fi\n"


def test_branches_of_one_script_are_no_pair_and_no_fleet(write) -> None:  # type: ignore[no-untyped-def]
    shared = BOTH.replace("--tp-size 8", "--nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000 --tp-size 16", 1)
    shared = shared.replace("--tp-size 8", "--nnodes 4 --node-rank 0 --dist-init-addr 10.0.0.1:5000 --tp-size 32")
    assert not errors(findings(write(shared), "--platform", "b300"))
    side_by_side = write(shared.replace("if [ $ROLE = prefill ]; then\n", "").replace("else\n", "").replace("fi\n", ""))
    assert {"pd-rendezvous", "pd-kv-dtype"} <= set(errors(findings(side_by_side, "--platform", "b300")))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("".join(PREFILL.replace("\n", " &\n") + DECODE.replace("\n", " &\n") for _ in range(40)), "1,024 checked"),
        ("case $1 in\n" + "".join(f"a{i}) {SOUND.rstrip()};;\n" for i in range(300)) + "esac\n", "more fleets than"),
    ],
)
def test_what_is_left_out_of_many_is_said(content: str, said: str, write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(content), "--platform", "b300")
    assert [one["severity"] for one in found if said in one["message"]] == ["advice"]


def test_a_script_of_both_roles_is_a_pair_with_itself(write) -> None:  # type: ignore[no-untyped-def]
    name = write(BOTH)
    result = run("--pair", name, name, "--platform", "b300", "--json")
    told = json.loads(result.stdout)
    assert errors(told["findings"]) == ["pd-kv-dtype"]
    assert [server["role"] for server in told["servers"]] == ["prefill", "decode"]
    fixed = run("--pair", name, name, "--platform", "b300", "--fix")
    assert fixed.return_value == 0
    assert fixed.stdout == BOTH.replace("bf16", "fp8_e4m3")


def test_roles_in_one_file_are_a_pair(write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(PREFILL.replace("\n", " &\n") + DECODE), "--platform", "b300")
    pair = [one for one in found if one["severity"] == "error" and "--kv-cache-dtype" in one["flags"]]
    assert pair
    assert {one["where"]["line"] for one in pair} <= {1, 2}


def test_the_router_of_a_pair(write) -> None:  # type: ignore[no-untyped-def]
    router = write("python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://10.0.0.1:30000 8999 "
                   "--decode http://10.0.0.2:30000\n", "router.sh")  # fmt: skip
    prefill, decode = write(PREFILL, "p.sh"), write(DECODE.replace("bf16", "fp8_e4m3"), "d.sh")
    without = {one["id"] for one in findings("--pair", prefill, decode, "--platform", "b300")}
    found = [
        one for one in findings("--pair", prefill, decode, "--router", router, "--platform", "b300")
        if one["id"] not in without
    ]  # fmt: skip
    assert any("8999" in one["message"] for one in found), found


def test_the_platform_comes_from_the_manifest(write) -> None:  # type: ignore[no-untyped-def]
    name = write(
        "apiVersion: v1\nkind: Pod\nspec:\n  nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}\n  containers:\n"
        "  - command: [sglang, serve, --model-path, moonshotai/Kimi-K3, --tp-size, '16']\n", "a.yaml"
    )  # fmt: skip
    assert json.loads(run(name, "--json").stdout)["servers"][0]["platform"] == "h200"


def test_the_same_server_in_many_files_is_said_in_each(write) -> None:  # type: ignore[no-untyped-def]
    names = [write(REFUSED, f"{number}.sh") for number in range(5)]
    found = findings(*names, "--platform", "h200")
    assert [one["where"]["file"] for one in found if one["severity"] == "error"] == names


def test_what_the_engine_refuses_in_a_config_file_is_an_error(write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write("model-path: moonshotai/Kimi-K3\nlora-paths: a\n", "c.yaml"), "--platform", "b300")
    assert found[0]["id"] == "config-refused"
    assert found[0]["where"] == {"file": "c.yaml", "line": 2}


# --config FILE


CONFIG = "model-path: moonshotai/Kimi-K3\ntrust-remote-code: true\ntp-size: 16\n"
WITH_CONFIG = "sglang serve --config k3.yaml --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:5000\n"


@pytest.mark.parametrize("place", ["beside", "here", "given"])
def test_a_config_file_is_read_where_it_lies(place: str, write) -> None:  # type: ignore[no-untyped-def]
    Path("a").mkdir()
    Path("b").mkdir()
    script = write(WITH_CONFIG, "a/run.sh")
    config = write(
        CONFIG + "enable-mamba-cache-stochastic-rounding: true\n",
        {"beside": "a/k3.yaml", "here": "k3.yaml"}.get(place, "b/k3.yaml"),
    )
    given = [script, *([config] if place == "given" else [])]
    result = run(*given, "--platform", "h200", "--json")
    told = json.loads(result.stdout)
    assert "state-rounding" in errors(told["findings"])
    assert [server["file"] for server in told["servers"]] == [script]
    assert "not-checked" not in {one["id"] for one in told["findings"]}


@pytest.mark.parametrize("name", ["k3.yaml", "/etc/passwd.yaml", "../k3.yaml", "k3.txt", "pipe.yaml", "broken.yaml"])
def test_a_config_file_that_is_not_read_costs_no_error(name: str, write) -> None:  # type: ignore[no-untyped-def]
    Path("a").mkdir()
    write(CONFIG, "k3.yaml.txt" if name == "k3.yaml" else "k3.txt")
    if name.startswith("../"):
        write(CONFIG, "k3.yaml")
        os.chdir("a")
    os.mkfifo("pipe.yaml")
    write("a: [", "broken.yaml")
    found = findings(
        write(WITH_CONFIG.replace("k3.yaml", name).replace(" --nnodes", " --ep-size 16 --nnodes")), "--platform", "h200"
    )
    assert not errors(found)
    assert [one["where"]["line"] for one in found if "is not read" in one["message"]] == [1]


def test_what_is_wrong_whatever_the_config_file_says_is_still_an_error(write) -> None:  # type: ignore[no-untyped-def]
    name = write("NCCL_SOCKET_IFNAME=<your-nic> " + WITH_CONFIG.replace("\n", " --no-such-flag\n"))
    found = [one for one in findings(name, "--platform", "h200") if one["severity"] == "error"]
    assert {flag for one in found for flag in one["flags"]} == {"NCCL_SOCKET_IFNAME", "--no-such-flag"}


# Commands that Perilune wrote


CHOICE = ("--hardware", "h200", "--mode", "unified", "--strategy", "balanced")


@pytest.mark.parametrize(
    "choice", [CHOICE, (*CHOICE, "--form", "docker"), (*CHOICE, "--head-ip", "10.0.0.1", "--nic", "eth0")]
)
def test_composed_commands_are_checked_without_a_platform(choice: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    printed = CliRunner().invoke(commands, choice, standalone_mode=False)
    assert printed.exception is None
    name = write(printed.stdout)
    told = json.loads(run(name, "--json").stdout)
    assert {server["platform"] for server in told["servers"]} == {"h200"}
    assert not errors(told["findings"])
    open_ = set(re.findall(r"<[a-z][^<>]*>", "".join(line for line in printed.stdout.splitlines() if line[:1] != "#")))
    said = {one["message"].split(" is still")[0] for one in told["findings"] if one["id"] == "fill-in"}
    assert said == open_
    assert {one["severity"] for one in told["findings"] if one["id"] == "fill-in"} == {"advice"}
    if shutil.which("bash"):
        assert subprocess.run(["bash", "-n", name], check=False).returncode == 0


def test_a_placeholder_in_a_script_of_somebody_else_is_an_error(write) -> None:  # type: ignore[no-untyped-def]
    printed = CliRunner().invoke(commands, CHOICE, standalone_mode=False).stdout
    without = "\n".join(line for line in printed.splitlines() if not line.startswith("# perilune commands"))
    assert "env-placeholder" in errors(findings(write(without), "--platform", "h200"))
    assert "env-placeholder" in errors(findings(write(printed.replace("<node0-ip>", "<my-own-token>"))))


# Inputs


def test_a_file_named_twice_is_judged_once(write) -> None:  # type: ignore[no-untyped-def]
    name = write(REFUSED)
    Path("link.sh").symlink_to(name)
    once = json.loads(run(name, "--platform", "h200", "--json").stdout)
    assert (
        json.loads(run(name, f"./{name}", "link.sh", str(Path(name).resolve()), "--platform", "h200", "--json").stdout)
        == once
    )


@pytest.mark.parametrize(
    "content",
    [
        "python3 - <<E\nsglang serve\nE\n" + SOUND,
        "kubectl apply -f - <<E\ncommand: sglang serve\nE\n" + SOUND,
        "bash <<E\nsglang serve --tp '8\nE\n" + SOUND,
    ],
)
@pytest.mark.parametrize("more", [(), ("--skip-others",), ("--fix",), ("--json",)])
def test_what_was_not_read_is_not_called_sound(content: str, more: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(content), "--platform", "b300", *more)
    assert result.return_value == 2
    assert "run.sh, line" in result.stderr


VALUES = ("0", "-1", "1.5", "1e9", "1" + "0" * 30, "nan", "inf", "", "x", "\N{ARABIC-INDIC DIGIT ONE}")
NUMBERS = ("--tp-size", "--pp-size", "--nnodes", "--mem-fraction-static", "--page-size", "--context-length", "--port",
           "--max-running-requests", "--max-mamba-cache-size", "--chunked-prefill-size", "--mamba-full-memory-ratio",
           "--max-total-tokens", "--node-rank", "--speculative-num-draft-tokens", "--base-gpu-id")  # fmt: skip


@pytest.mark.parametrize("flag", NUMBERS)
def test_no_value_is_unusable_input(flag: str, write) -> None:  # type: ignore[no-untyped-def]
    lines = "".join(f"{SOUND.rstrip()} {flag} '{value}'\n" for value in VALUES)
    result = run(write(lines), "--platform", "b300", "--json")
    assert result.return_value == 1, result.stderr
    assert len(json.loads(result.stdout)["servers"]) == len(VALUES)


def test_sarif(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(REFUSED, "a b.sh"), "--platform", "h200", "--sarif")
    log = json.loads(result.stdout)
    assert (log["version"], log["$schema"].endswith("sarif-2.1.0.json"), result.return_value) == ("2.1.0", True, 1)
    (run_,) = log["runs"]
    rules = run_["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for one in run_["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]
        assert one["level"] in ("error", "warning", "note")
        assert one["message"]["text"]
        place = one["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "a%20b.sh"
        assert place["region"]["startLine"] >= 1
    assert run_["results"][0]["level"] == "error"


def test_github_annotations(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(REFUSED, "a,b:c.sh"), "--platform", "h200", "--github")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("::error file=a%2Cb%3Ac.sh,line=3,title=error state-rounding::")
    assert all(re.match(r"::(error|warning|notice) file=[^:,]+,line=\d+,title=[^:,]+::\S", line) for line in lines)


def test_github_escapes_what_would_start_another_command() -> None:
    from perilune.cli.check_formats import to_github
    from perilune.plan.rules import Finding

    finding = Finding("x", "error", "50%\n::set-output name=a::b").at("a\r\n::error::b.sh", 1)
    (line,) = to_github([finding])
    assert line == "::error file=a%0D%0A%3A%3Aerror%3A%3Ab.sh,line=1,title=error x::50%25%0A::set-output name=a::b"


SARIF_REQUIRED = {  # of the schema of OASIS, 2.1.0
    "sarifLog": {"version", "runs"}, "run": {"tool"}, "tool": {"driver"}, "toolComponent": {"name"},
    "result": {"message"}, "reportingDescriptor": {"id"}, "multiformatMessageString": {"text"},
}  # fmt: skip


@pytest.mark.parametrize("arguments", [("a.sh",), ("--", *REFUSED.replace("\\\n", "").split()), ("b.sh",)])
def test_sarif_has_what_the_schema_requires(arguments: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    write(REFUSED, "a.sh")
    write(SOUND, "b.sh")
    log = json.loads(run("--platform", "h200", "--sarif", *arguments).stdout)
    (one,) = log["runs"]
    driver = one["tool"]["driver"]
    parts = [("sarifLog", log), ("run", one), ("tool", one["tool"]), ("toolComponent", driver)]
    parts += [("reportingDescriptor", rule) for rule in driver["rules"]]
    parts += [("multiformatMessageString", rule["shortDescription"]) for rule in driver["rules"]]
    parts += [("result", result) for result in one["results"]]
    for name, part in parts:
        assert SARIF_REQUIRED[name] <= part.keys(), name
    assert all(
        rule["defaultConfiguration"]["level"] in ("none", "note", "warning", "error") for rule in driver["rules"]
    )
    assert one["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    for result in one["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        for location in result.get("locations", []):
            place = location["physicalLocation"]
            assert urlsplit(place["artifactLocation"]["uri"]).path
            assert place["region"]["startLine"] >= 1


def test_the_json_is_as_documented(write) -> None:  # type: ignore[no-untyped-def]
    told = json.loads(run(write(REFUSED), "--platform", "h200", "--json").stdout)
    page = (Path(__file__).parent.parent / "docs" / "check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_.]+)` \| (\w+)", page.partition("## For programs")[2], re.MULTILINE)
    kinds = {"string": str, "integer": int, "array": list, "object": dict}
    for name, kind in rows:
        values: list[Any] = [told]
        for part in name.split("."):
            values = [value[part] for one in values for value in (one if isinstance(one, list) else [one]) if value]
        assert values, name
        assert all(isinstance(value, kinds[kind]) or value is None for value in values), name
    for top in ("findings", "servers"):
        documented = {name.split(".")[1] for name, _ in rows if name.startswith(f"{top}.")}
        assert told[top][0].keys() == documented
    assert told.keys() == {name for name, _ in rows if "." not in name}


# --fix


def test_fix_prints_the_file_with_only_the_error_gone(write) -> None:  # type: ignore[no-untyped-def]
    name = write("#!/bin/sh\n# mine\n" + REFUSED)
    result = run(name, "--platform", "h200", "--fix")
    assert result.stdout == "#!/bin/sh\n# mine\n" + ROUNDING.removesuffix(" \\\n") + "\n"
    assert result.return_value == 0
    assert not errors(findings(write(result.stdout), "--platform", "h200"))
    assert Path(name).read_text() == result.stdout  # only the test wrote it


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_fix_keeps_line_ends_and_the_byte_order_mark(newline: str, mark: str, write) -> None:  # type: ignore[no-untyped-def]
    lines = ["model-path: moonshotai/Kimi-K3", "tp-size: 16  # all", "ep-size: 16", "moe-runner-backend: marlin",
             "nnodes: 2", "node-rank: 0", "dist-init-addr: 10.0.0.1:20000",
             "enable-mamba-cache-stochastic-rounding: true", "# end", ""]  # fmt: skip
    name = write(mark + newline.join(lines), "c.yaml")
    result = run(name, "--platform", "h200", "--fix")
    assert result.stdout_bytes.decode() == mark + newline.join(lines[:7] + lines[8:])


PASTED = (
    "#!/bin/bash\n# a \u2013 b\u00a0c\nexport A=\u2018x y\u2019\n"
    f"sglang serve {MODEL.replace('--trust', chr(0x2014) + 'trust')} \\\n"
    "  \u2013tp-size 8\\\n--max-running-requests 16 \\ \n"
    "  --max-mamba-cache-size 80 `\n  --port\u00a030001\u200b\n# end\n"
)
TYPED = (
    "#!/bin/bash\n# a \u2013 b\u00a0c\nexport A='x y'\n"
    f"sglang serve {MODEL} \\\n"
    "  --tp-size 8 \\\n--max-running-requests 16 \\\n  --max-mamba-cache-size 80 \\\n  --port 30001\n# end\n"
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_fix_types_what_was_pasted(newline: str, mark: str, write) -> None:  # type: ignore[no-untyped-def]
    name = write(mark + PASTED.replace("\n", newline))
    assert {"typography", "line-glued"} <= set(errors(findings(name, "--platform", "b300")))
    result = run(name, "--platform", "b300", "--fix")
    assert result.stdout_bytes.decode() == mark + TYPED.replace("\n", newline)
    assert result.return_value == 0
    assert not errors(findings(write(mark + TYPED.replace("\n", newline)), "--platform", "b300"))


BROKEN = {
    "an array": f"A=(\n  --enable-mamba-cache-stochastic-rounding\n  --tp-size 8\n)\nsglang serve {MODEL} ${{A[@]}}\n",
    "a variable": f"TP=7 # why\nsglang serve {MODEL} --tp-size $TP\n",
    "an exported variable": f"export TP=7\nsglang serve {MODEL} --tp-size $TP\n",
    "a branch": f"if a; then T=7; else T=8; fi\nsglang serve {MODEL} --tp-size $T\n",
    "a here-document": f"bash <<E\nsglang serve {MODEL} --tp-size 8 \\\n --no-such-flag\nE\n",
    "a shell in a shell": f"srun bash -c 'sglang serve {MODEL} --tp-size 8 --no-such-flag'\n",
    "two servers": f"sglang serve {MODEL} --tp-size 8 --no-such-flag &\n"
    f"sglang serve {MODEL} --tp-size 8 --no-such-flag --port 1234\n",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_fixed_input_checked_again_has_only_what_was_said_to_be_left(content: str, newline: str, write) -> None:  # type: ignore[no-untyped-def]
    name = write(content.replace("\n", newline))
    assert run(name, "--platform", "b300").return_value == 1
    result = run(name, "--platform", "b300", "--fix")
    again = errors(findings(write(result.stdout_bytes.decode()), "--platform", "b300"))
    assert bool(again) == bool(result.return_value)
    assert len(again) == len(re.findall(r"^\S+:\d+ error ", result.stderr, re.MULTILINE))
    assert result.stdout_bytes.count(b"\r\n") == (result.stdout_bytes.count(b"\n") if newline == "\r\n" else 0)
    assert "\n\n" not in result.stdout.replace("\r", "")


def test_fix_of_words_prints_the_command() -> None:
    result = run("--platform", "h200", "--fix", "--", *REFUSED.replace("\\\n", "").replace("$R", "0").split())
    assert result.return_value == 0
    assert result.stdout.startswith("sglang serve \\\n")
    assert "rounding" not in result.stdout


def test_fix_of_several_files_prints_a_diff(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(REFUSED, "a.sh"), write(SOUND.replace(" 8 ", " 16 "), "b.sh"), "--platform", "h200", "--fix")
    assert "--- a/a.sh\n+++ b/a.sh\n" in result.stdout
    assert "-  --enable-mamba-cache-stochastic-rounding\n" in result.stdout


def test_fix_of_a_pair_agrees_on_both_sides(write) -> None:  # type: ignore[no-untyped-def]
    prefill, decode = write(PREFILL, "p.sh"), write(DECODE, "d.sh")
    result = run("--pair", prefill, decode, "--platform", "b300", "--fix")
    assert result.return_value == 0
    changed = [line for line in result.stdout.splitlines() if line.startswith("+") and "sglang" in line]
    assert len(changed) == 1
    assert ("fp8_e4m3" in changed[0]) != ("bf16" in changed[0])


def test_fix_of_a_pair_changes_every_node(write) -> None:  # type: ignore[no-untyped-def]
    def nodes(server: str, address: str) -> str:
        spread = f"--tp-size 16 --nnodes 2 --dist-init-addr {address}:5000"
        head = server.replace("--tp-size 8", f"{spread} --node-rank 0")
        return head + head.replace("--node-rank 0", "--node-rank 1")

    name = write(nodes(PREFILL, "10.0.0.1") + nodes(DECODE, "10.0.0.2"))
    assert errors(findings(name, "--platform", "b300")) == ["pd-kv-dtype"]
    result = run(name, "--platform", "b300", "--fix")
    assert (result.return_value, result.stdout.count("fp8_e4m3"), result.stdout.count("bf16")) == (0, 4, 0)


def test_a_correction_says_every_edit_and_why(write) -> None:  # type: ignore[no-untyped-def]
    wrong = "--kv-cache-dtype fp8 --reasoning-parser kimi-k3"
    result = run(write(SOUND.replace("--tp-size 8", f"--tp-size 8 {wrong}")), "--platform", "b300", "--fix")
    assert result.return_value == 0
    assert result.stderr.splitlines() == [
        "2 edits:",
        "    write --kv-cache-dtype fp8_e4m3 (flag-value)",
        "    write --reasoning-parser kimi_k3 (flag-value)",
    ]
    assert run(write(SOUND), "--platform", "b300", "--fix").stderr == ""
    dashed = run(write(SOUND.replace("--tp-size", "\u2014tp-size")), "--platform", "b300", "--fix")
    assert dashed.stdout == SOUND
    assert dashed.stderr == "1 edit:\n    type line 1 as it was meant (typography)\n"


def test_what_the_nodes_of_a_server_share_is_said_once(write) -> None:  # type: ignore[no-untyped-def]
    """Node 1 alone sets a variable that nothing reads; both have an old one."""
    node = SOUND.replace("--tp-size 8", f"--tp-size 16 --nnodes 2 --dist-init-addr {MEETING} --node-rank 0")
    old = "SGLANG_DSPARK_FOLDED_SAMPLING=1 "
    name = write(old + node + old + "SGLANG_NO_SUCH_THING=1 " + node.replace("--node-rank 0", "--node-rank 1"))
    found = findings(name, "--platform", "b300")
    renamed = [one for one in found if one["id"] == "env-renamed"]
    assert [one["where"]["line"] for one in renamed] == [1]
    assert renamed[0]["message"].endswith("The same on 2 nodes.")
    (own,) = [one for one in found if one["id"] == "env-unknown"]
    assert "nodes" not in own["message"]
    unread = node.replace("--tp-size", "--no-such-flag 1 --tp-size")
    both = findings(write(unread + unread.replace("--node-rank 0", "--node-rank 1")), "--platform", "b300")
    assert errors(both) == ["flag-gone"]
    two = findings(write((old + SOUND) * 2), "--platform", "b300")
    assert len([one for one in two if one["id"] == "env-renamed"]) == 2  # servers of their own


MEETING = "10.0.0.1:20000"
POD = """apiVersion: v1
kind: Pod
metadata: {name: GPU}
spec:
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-GPU}
  containers:
    - command: [sglang, serve, --model-path, moonshotai/Kimi-K3, --trust-remote-code, --tp-size, "8"]
"""


def test_a_platform_that_a_file_contradicts_is_an_error(write) -> None:  # type: ignore[no-untyped-def]
    h200, b300 = POD.replace("GPU", "H200"), POD.replace("GPU", "B300")
    (loud,) = [one for one in findings(write(h200, "a.yaml"), "--platform", "b300") if one["id"] == "platform-differs"]
    assert (loud["severity"], "H200" in loud["message"], "--platform h200" in loud["fix"]) == ("error", True, True)
    assert not errors(findings(write(b300, "b.yaml"), "--platform", "b300"))
    both = run(write(f"{h200}---\n{b300}", "c.yaml"), "--json")
    assert [one["platform"] for one in json.loads(both.stdout)["servers"]] == ["h200", "b300"]


def test_what_no_edit_corrects_is_left_and_said(write) -> None:  # type: ignore[no-untyped-def]
    content = SOUND.replace("--tp-size 8", "--tp-size 8 --dist-init-addr <node0-ip>:20000 --nnodes 2 --node-rank 0")
    result = run(write(content), "--platform", "b300", "--fix")
    assert result.stdout == content
    assert result.return_value == 1
    assert "left to correct by hand" in result.stderr


@pytest.mark.parametrize(
    ("content", "said", "errors_of"),
    [
        (SOUND.replace("\n", " $EXTRA\n"), "EXTRA adds to the command is not known: it is taken to be nothing", []),
        (SOUND.replace("\n", " --page-size 3 $EXTRA\n"), "taken to be nothing", ["state-track-interval"]),
        ("source a.env\n" + SOUND.replace("\n", " --page-size 3 $EXTRA\n"), "what depends on it is not checked", []),
        ("sglang serve $ALL\n", "what depends on it is not checked", []),
        ("sglang serve $(./flags)\n", "what depends on it is not checked", []),
        ("echo --tp-size 8 | xargs sglang serve --model-path moonshotai/Kimi-K3\n", "xargs adds", []),
        ("source a.env\n" + SOUND.replace("\n", " --no-such 1 $EXTRA\n"), "not checked", ["flag-gone"]),
    ],
    ids=["empty", "empty, and wrong", "set in a file", "all flags", "a command", "xargs", "wrong whatever it is"],
)
def test_flags_that_a_variable_brings(content: str, said: str, errors_of: list[str], write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(content), "--platform", "b300")
    assert any(said in one["message"] for one in found if one["id"] == "not-checked")
    assert errors(found) == errors_of


TOKEN = "hf_0123456789abcdefghij"  # of nobody
FORMS = ((), ("--json",), ("--sarif",), ("--github",))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "".join(form) or "text")
@pytest.mark.parametrize(
    "content",
    [
        REFUSED.replace("\n", " --api-key pass-word\n", 1),
        REFUSED.rstrip() + " --api-key=pass-word\n",
        "HF_TOKEN=pass-word " + REFUSED,
        f"sglang serve {MODEL} --tp-size 8 {TOKEN}\n",
        f"sglang serve {MODEL} --tp-size {TOKEN}\n",
        f"sglang serve {MODEL} --tp-size 8\\\n--api-key=pass-word\n",
        f"sglang serve {MODEL} --api-key '<{TOKEN}>' --tp-size 8\n",
        f"sglang serve {MODEL} --{TOKEN}\n",
        "sglang serve --model-path https://me:pass-word@host/Kimi-K3 --tp-size 8\n",
        "sglang serve --config https://me:pass-word@host/k3.yaml\n",
        f"source /x/{TOKEN}\n{SOUND}",
        SOUND.replace("\n", " $(curl -H 'Authorization: Bearer pass-word' a)\n"),
        f"sglang serve --model-path {TOKEN}\n",
    ],
)
def test_secrets_are_not_shown(content: str, form: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(content), "--platform", "h200", *form)
    said = result.output + str(result.exception or "")
    for secret in ("pass-word", TOKEN):
        assert secret not in said.replace("\n", "").replace(" ", "")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "".join(form) or "text")
@pytest.mark.parametrize(
    "content",
    [
        "source '{}'\n" + SOUND,
        "sglang serve --model-path '{}' --tp-size 8\n",
        SOUND.replace("\n", " --tp-size '{}'\n"),
        SOUND.replace("\n", " '--{}'\n"),
        "sglang serve --config '{}.yaml'\n",
        "NCCL_SOCKET_IFNAME='your-nic {}' " + SOUND,
    ],
)
def test_nothing_reaches_a_terminal_that_it_obeys(content: str, form: tuple[str, ...], write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(content.format("\x1b[31m\x9b1m\u202e")), "--platform", "b300", *form)
    said = result.output + str(result.exception or "")
    assert not {"\x1b", "\x9b", "\u202e"}.intersection(said)


AMD = (
    "sglang serve --model-path moonshotai/Kimi-K3 --trust-remote-code --tp-size 8 --attention-backend aiter "
    "--kv-cache-dtype fp8_e4m3 --dtype bfloat16 --mem-fraction-static 0.85 --host 0.0.0.0"
)
AMD_POD = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - command: [sh, -c, {}]\n"
    "    envFrom: [{{configMapRef: {{name: amd}}}}]\n"
)
AMD_SERVICE = "services:\n  k3:\n    env_file: amd.env\n    command: {}\n"


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (AMD + "\n", "run.sh", ["amd-aiter-opt"]),
        (f"docker run --env-file amd.env img {AMD}\n", "run.sh", []),
        (f"source ./amd.env\n{AMD}\n", "run.sh", []),
        (AMD_POD.format(AMD), "pod.yaml", []),
        (AMD_SERVICE.format(AMD), "compose.yaml", []),
        (f"[Service]\nEnvironmentFile=/etc/amd.env\nExecStart={AMD}\n", "k3.service", []),
        (AMD_SERVICE.format(AMD + " --page-size 3"), "compose.yaml", ["state-track-interval"]),
    ],
)  # fmt: skip
def test_variables_of_a_file_nobody_read_may_avert_an_error(
    content: str, name: str, expected: list[str], write
) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(content, name), "--platform", "mi355x")
    assert errors(found) == expected
    assert ("not known here" in " ".join(one["message"] for one in found)) == ("amd" in content)


def test_a_script_that_is_sourced_is_read_beside(write) -> None:  # type: ignore[no-untyped-def]
    write('MODEL=moonshotai/Kimi-K3\nif [ -n "$FEW" ]; then TP=4; else TP=8; fi\n', "common.sh")
    write("SGLANG_AITER_K3_OPT=1\n", "k3.env")
    path = write(
        "set -a\n. ./k3.env\nset +a\nsource common.sh\nexport TP\n"
        "sglang serve --model-path $MODEL --trust-remote-code --tp-size $TP --page-size 3\n"
    )
    result = json.loads(run(path, "--platform", "b300", "--json").stdout)
    assert len(result["servers"]) == 2
    assert not any(one["id"] == "not-checked" for one in result["findings"])
    assert {one["id"] for one in result["findings"]} >= {"state-track-interval", "env-inert"}


@pytest.mark.parametrize(
    "named",
    [
        '$(dirname "$0")/common.sh',
        '"$(dirname "$0")"/common.sh',
        '"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/common.sh"',
        "${0%/*}/common.sh",
        "${BASH_SOURCE%/*}/common.sh",
    ],
)
def test_a_script_that_is_sourced_from_the_script_s_own_folder(named: str, write) -> None:  # type: ignore[no-untyped-def]
    write("TP=3\n", "common.sh")
    direct = write(f"source {named}\nsglang serve {MODEL} --tp-size $TP\n")
    assert "memory-weights" in errors(findings(direct, "--platform", "b300"))
    through = write(f"D={named.replace('/common.sh', '')}\n. $D/common.sh\nsglang serve {MODEL} --tp-size $TP\n")
    assert "memory-weights" in errors(findings(through, "--platform", "b300"))


@pytest.mark.parametrize(
    "file", ["run.sh", "../beside.sh", "/etc/passwd", "$X", "$HOME/common.sh", "none.sh", "broken.sh"]
)
def test_a_script_that_cannot_be_read_is_said(file: str, write) -> None:  # type: ignore[no-untyped-def]
    write("f() {\n", "broken.sh")
    write("export SGLANG_X=1\n", "../beside.sh")
    write("export SGLANG_X=1\n", "common.sh")
    found = findings(write(f"source {file}\n{SOUND}"), "--platform", "b300")
    said = " ".join(one["message"] for one in found)
    assert errors(found) == []
    assert (f"What {file} sets is not known here" in said) == (file != "run.sh")
    assert "SGLANG_X" not in said


def test_strict_holds_for_corrections_too(write) -> None:  # type: ignore[no-untyped-def]
    path = write(SOUND.replace("64", "20"))
    asked = ("--platform", "b300", "--concurrency", "64", "--isl", "8192", "--osl", "1024", "--fix")
    assert (run(path, *asked).return_value, run(path, *asked).stderr) == (0, "")
    result = run(path, *asked, "--strict")
    assert result.return_value == 1
    assert "capacity admits-less" in result.stderr
    assert re.search(r"\d+ findings? left", result.stderr)
    assert result.stdout == SOUND.replace("64", "20")


def test_an_unknown_platform_is_said_once(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(SOUND), write(SOUND, "b.sh"), "--platform", "b301")
    assert isinstance(result.exception, UnusableInput)
    assert str(result.exception).count("Unknown platform") == 1
    assert result.output == ""


def test_where_nothing_was_judged_nothing_is_summed_up(write) -> None:  # type: ignore[no-untyped-def]
    result = run(write("sglang serve --model-path who/knows\n"), "--platform", "b300")
    assert (result.return_value, result.stdout) == (2, "")


ITEMS = """apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [sglang, serve]
    args:
    - --model-path=moonshotai/Kimi-K3
    - --trust-remote-code
    - --tp-size 8  # all of them
    - "--max-running-requests 16"
    - --host=0.0.0.0
"""


def test_a_flag_and_its_value_in_one_item(write) -> None:  # type: ignore[no-untyped-def]
    path = write(ITEMS, "pod.yaml")
    found = findings(path, "--platform", "b300")
    assert [(one["id"], one["where"]["line"]) for one in found if one["severity"] == "error"] == [
        ("flag-joined", 9),
        ("flag-joined", 10),
    ]
    fixed = run(path, "--platform", "b300", "--fix").stdout
    assert fixed == ITEMS.replace("--tp-size 8", "--tp-size=8").replace("requests 16", "requests=16")
    assert errors(findings(write(fixed, "pod.yaml"), "--platform", "b300")) == []


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (f"ARGS='{MODEL} --tp-size 8'\nsglang serve \"$ARGS\"\n", "run.sh"),
        (ITEMS.partition("args:")[0] + f'args: ["{MODEL} --tp-size 8"]\n', "pod.yaml"),
    ],
)
def test_all_flags_in_one_word(content: str, name: str, write) -> None:  # type: ignore[no-untyped-def]
    result = run(write(content, name), "--platform", "b300", "--fix")
    assert errors(findings(name, "--platform", "b300")) == ["flag-joined"]
    assert (result.return_value, result.stdout) == (1, content)
    assert "1 error left" in result.stderr


@pytest.mark.parametrize("value", ["--host '--tp-size 8'", "--json-model-override-args '--tp-size 8'", "'-- 8'"])
def test_a_value_that_looks_like_flags_is_one(value: str, write) -> None:  # type: ignore[no-untyped-def]
    found = findings(write(SOUND.replace("\n", f" {value}\n")), "--platform", "b300")
    assert "flag-joined" not in errors(found)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "value", ["$(touch pwned)", "`touch pwned`", "a;touch pwned", "a' ; touch pwned ; '", 'a";touch pwned;"']
)
@pytest.mark.parametrize(
    "decode",
    [
        "{}",
        "bash -c '{}'",
        'bash -c "{}"',
        "bash <<EOF\n{}\nEOF",
        'ARGS="--served-model-name x"\n{} $ARGS',
        'ARGS=(--served-model-name x)\n{} "${{ARGS[@]}}"',
    ],
)
def test_corrections_run_nothing(value: str, decode: str, write, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Whatever one file's values are, those that go over into another stay text for the shell that reads it."""
    import shlex

    given = shlex.quote(value)
    write(f"sglang serve {MODEL} --tp-size 8 --host a --kv-cache-dtype {given} --speculative-algorithm DSPARK "
          f"--speculative-draft-model-path {given} --disaggregation-transfer-backend {given} --page-size {given}\n",
          "prefill.sh")  # fmt: skip
    write(decode.format(f"sglang serve {MODEL} --tp-size 8 --host b --kv-cache-dtype bf16") + "\n", "decode.sh")
    Path("bin").mkdir()
    write("#!/bin/sh\n", "bin/sglang")
    Path("bin/sglang").chmod(0o755)
    fixed = run("--pair", "prefill.sh", "decode.sh", "--platform", "b300", "--fix")
    assert "--disaggregation-mode" in fixed.stdout
    lines = [line[1:] for line in fixed.stdout.split("+++ b/decode.sh")[1].splitlines() if line[:1] in (" ", "+")]
    Path("fixed.sh").write_text("\n".join(lines) + "\n")
    environment = {"PATH": f"{Path('bin').resolve()}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "fixed.sh"], env=environment, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path("pwned").exists()
