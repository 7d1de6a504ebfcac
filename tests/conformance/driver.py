"""Runs inside the environment that holds the real SGLang: judges a batch of cases of one platform.

    ORACLE_HOME=EMPTY_FOLDER VENV/bin/python driver.py FACTS/memory PLATFORM < cases.json > verdicts.jsonl

A case is `{"kind": "arguments" | "memory" | "flags", ...}` with the fields that the reference scripts
`args_oracle.py` and `oracle.py` take. Each case runs in a fork of a process that has already imported
what the engine imports lazily, so that a case costs a fraction of a second. Variables that the engine
reads while it is imported must be set for this process, not in the case.
"""

import functools
import json
import os
import sys

SCRIPTS, PLATFORM = sys.argv[1:3]
sys.path.insert(0, SCRIPTS)

import sgfake  # noqa: E402

SPEC = sgfake.install(PLATFORM)

import args_oracle  # noqa: E402
import msgspec  # noqa: E402
import oracle as numeric_oracle  # noqa: E402
import sgcommon  # noqa: E402
import sglang.srt.arg_groups.expert_pack_hook  # noqa: E402
import sglang.srt.kernel_plugins.nvidia.binding  # noqa: E402
import sglang.srt.mem_cache.kv_cache_configurator  # noqa: E402
import sglang.srt.server_args  # noqa: E402
import sglang.srt.speculative.dspark_components.dspark_config  # noqa: E402, F401
import transformers  # noqa: E402

sgfake.patch_memory_probes(SPEC)

# What every case would do again in its fork, done once; none of it decides anything.
PARSER, MODELS = sgcommon.real_parser(), sgcommon.prepare_models()
sgcommon.real_parser = lambda: PARSER
sgcommon.prepare_models = lambda: MODELS
msgspec.structs.fields = functools.cache(msgspec.structs.fields)
transformers.PretrainedConfig.__repr__ = object.__repr__  # the engine logs every config in full


def judge_arguments(case):
    """Parse, resolve and check one command line."""

    def run():
        os.environ.update(case.get("env") or {})
        verdict = args_oracle.run_one(case["argv"])
        verdict.pop("declarations", None)
        verdict.pop("rewrites", None)
        return verdict

    return sgcommon.in_fork(run)


def judge_memory(case):
    """Size the pools of one command line; `run_case` forks by itself, once a pipeline stage."""
    return numeric_oracle.run_case(case)


def judge_flags(case):
    """Whether the parser alone takes each list of words, and what it stores."""

    def run():
        parser = sgcommon.real_parser()
        unwritten = vars(parser.parse_args(["--model-path", "x"]))
        verdicts = []
        for words in case["lines"]:
            try:
                stored = vars(parser.parse_args(["--model-path", "x", *words]))
                changed = {name: value for name, value in stored.items() if value != unwritten[name]}
                verdicts.append({"accepted": True, "stored": sgcommon.plain(changed)})
            except sgcommon.ParseError as error:
                verdicts.append({"accepted": False, "error": str(error)})
            except SystemExit as error:
                verdicts.append({"accepted": False, "error": f"SystemExit {error}"})
            except Exception as error:
                verdicts.append({"accepted": False, "error": f"{type(error).__name__}: {error}"})
        return {"ok": True, "verdicts": verdicts}

    return sgcommon.in_fork(run)


JUDGES = {"arguments": judge_arguments, "memory": judge_memory, "flags": judge_flags}


def judge(case):
    """One verdict; a case that breaks the harness says so."""
    try:
        return JUDGES[case["kind"]](case)
    except RuntimeError as error:
        return {"ok": False, "stage": "harness", "error": str(error)[-1500:]}


for one in json.load(sys.stdin):
    print("\n" + json.dumps(judge(one)), flush=True)
