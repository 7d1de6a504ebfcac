"""Reading servers from the files people keep them in: which, where, and what is said instead of guessed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perilune.plan.sources.found import Reading
from perilune.plan.sources.read import read_source
from perilune.plan.sources.text import Text


def read(content: str, name: str = "run.sh") -> Reading:
    return read_source(Text(name, content))


@dataclass(frozen=True)
class Case:
    """A file, and the servers in it as `line: command`."""

    id: str
    content: str
    servers: tuple[str, ...]
    name: str = "run.sh"


SHELL = (
    Case("one line", "sglang serve --tp 8\n", ("1: sglang serve --tp 8",)),
    Case("continued", "sglang serve \\\n  --tp 8 \\\n  --port 1", ("1: sglang serve --tp 8 --port 1",)),
    Case("continued with CR LF", "sglang serve \\\r\n  --tp 8\r\n", ("1: sglang serve --tp 8",)),
    Case("launch_server", "python3 -m sglang.launch_server --tp 8", ("1: python3 -m sglang.launch_server --tp 8",)),
    Case("variables in front", "A=1 B='x y' sglang serve", ("1: A=1 B='x y' sglang serve",)),
    Case("variables given by env", "nohup numactl -l env A=1 sglang serve",
         ("1: A=1 nohup numactl -l env A=1 sglang serve",)),
    Case("exported", "export A=1\ndeclare -x B=2\nsglang serve", ("3: A=1 B=2 sglang serve",)),
    Case("exported later", "A=1\nexport A\nsglang serve", ("3: A=1 sglang serve",)),
    Case("not exported", "A=1\nsglang serve", ("2: sglang serve",)),
    Case("a variable", "TP=8\nsglang serve --tp $TP --port ${TP}00", ("2: sglang serve --tp 8 --port 800",)),
    Case("unknown", 'sglang serve --model-path "$M/x"', ("1: sglang serve --model-path '$M/x'",)),
    Case("a default", "sglang serve --tp ${TP:-8}", ("1: sglang serve --tp 8",)),
    Case("a default overruled", "TP=4\nsglang serve --tp ${TP:-8}", ("2: sglang serve --tp 4",)),
    Case("split", "F='--tp 8 --port 1'\nsglang serve $F", ("2: sglang serve --tp 8 --port 1",)),
    Case("quoted is not split", "F='-x 8'\nsglang serve \"$F\"", ("2: sglang serve '-x 8'",)),
    Case("an array", 'A=(--tp 8 # eight\n)\nA+=(--port 1)\nexec sglang serve "${A[@]}"',
         ("4: exec sglang serve --tp 8 --port 1",)),
    Case("a function", 'run() { sglang serve --tp "$1" "${@}"; }\nrun 8', ("1: sglang serve --tp 8 8",)),
    Case("a function nobody calls", "run() {\n sglang serve --tp 8\n}\n", ("2: sglang serve --tp 8",)),
    Case("branches", 'A=()\nif [ "$R" = p ]; then A+=(--tp 8); else A+=(--tp 4); fi\nsglang serve "${A[@]}"',
         ("3: sglang serve --tp 8", "3: sglang serve --tp 4")),
    Case("the same test twice", 'if [ $R = p ]; then A=1; else A=2; fi\nif [ $R = p ]; then B=1; else B=2; fi\n'
         "sglang serve --tp $A --dp $B", ("3: sglang serve --tp 1 --dp 1", "3: sglang serve --tp 2 --dp 2")),
    Case("elif", "if a; then X=1; elif b; then X=2; fi\nsglang serve --tp $X",
         ("2: sglang serve --tp 1", "2: sglang serve --tp 2", "2: sglang serve --tp '$X'")),
    Case("case", 'case "$1" in p) X=1;; *) X=2;; esac\nsglang serve --tp $X',
         ("2: sglang serve --tp 1", "2: sglang serve --tp 2")),
    Case("in the background", "sglang serve --tp 8 > a.log 2>&1 &\nsglang serve --tp 4 | tee b.log",
         ("1: sglang serve --tp 8", "2: sglang serve --tp 4")),
    Case("a loop", "for r in 0 1; do sglang serve --node-rank $r & done", ("1: sglang serve --node-rank '$r'",)),
    Case("a function that calls itself", "run() { sglang serve --tp 8 || run; run 1; }\nrun\n",
         ("1: sglang serve --tp 8",)),
    Case("the rest of the arguments", 'run() { sglang serve --port "$1" "${@:2}"; }\nrun 1 --tp 8',
         ("1: sglang serve --port 1 --tp 8",)),
    Case("shift", 'run() { local r=$1; shift; sglang serve --node-rank "$r" "$@"; }\nrun 1 --tp 8',
         ("1: sglang serve --node-rank 1 --tp 8",)),
    Case("shift by two", 'run() { shift 2; sglang serve "$@"; }\nrun 1 2 --tp 8', ("1: sglang serve --tp 8",)),
    Case("set --", 'set -- --tp 8\nset -- "$@" --port 1\nexec sglang serve "$@"',
         ("3: exec sglang serve --tp 8 --port 1",)),
    Case("arguments nobody knows", 'sglang serve --model-path m $EXTRA ${MORE:+--x} "$1" "$@"',
         ("1: sglang serve --model-path m",)),
    Case("arguments of another program", "sglang serve --model-path m $(cat flags)",
         ("1: sglang serve --model-path m",)),
    Case("an unknown value", "sglang serve --port $PORT", ("1: sglang serve --port '$PORT'",)),
    Case("a comment between backticks", "sglang serve \\\n  `# eight` --tp 8 \\\n  --port 1",
         ("1: sglang serve --tp 8 --port 1",)),
    Case("an array of zsh", "#!/bin/zsh\nA=(--tp 8)\nsglang serve $A", ("3: sglang serve --tp 8",)),
    Case("the first of an array", "A=(--tp=8 --port=1)\nsglang serve $A", ("2: sglang serve --tp=8",)),
    Case("a shell in a shell", "srun -N2 bash -c 'export A=1; sglang serve --node-rank $SLURM_NODEID'",
         ("1: A=1 srun -N2 sglang serve --node-rank '$SLURM_NODEID'",)),
    Case("an interpreter from elsewhere", '"$VENV/bin/python" -m sglang.launch_server',
         ("1: '$VENV/bin/python' -m sglang.launch_server",)),
    Case("a named interpreter", "$PY -m sglang.launch_server --tp 8", ("1: python3 -m sglang.launch_server --tp 8",)),
    Case("ssh", 'ssh node1 "cd /x && sglang serve --tp 8"', ("1: sglang serve --tp 8",)),
    Case("eval", 'CMD="sglang serve --tp 8"\neval "$CMD --port 1"', ("1: sglang serve --tp 8 --port 1",)),
    Case("a command in a variable", 'CMD="sglang serve --tp 8"\n$CMD --port 1', ("1: sglang serve --tp 8 --port 1",)),
    Case("docker", "docker run -e A=1 img:1 sglang serve --tp 8",
         ("1: docker run -e A=1 img:1 sglang serve --tp 8",)),
    Case("docker with a shell", "docker run --entrypoint bash img:1 -c 'export A=1; sglang serve --tp 8'",
         ("1: docker run --env A=1 img:1 sglang serve --tp 8",)),
    Case("a placeholder", "sglang serve --dist-init-addr <node0-ip>:20000",
         ("1: sglang serve --dist-init-addr '<node0-ip>:20000'",)),
    Case("a template", "sglang serve --tp {{ tp }}", ("1: sglang serve --tp '{{ tp }}'",)),
    Case("characters beyond ASCII", "# é\nsglang serve --served-model-name 'ü' --tp 8",
         ("2: sglang serve --served-model-name 'ü' --tp 8",)),
    Case("only its name", "pkill -f 'sglang serve'\necho sglang serve\nsglang serve --tp 8",
         ("3: sglang serve --tp 8",)),
    Case("another starter", "uv run sglang serve --tp 8", ("1: uv run sglang serve --tp 8",)),
    Case("a comment", "# sglang serve --tp 4\nsglang serve --tp 8", ("2: sglang serve --tp 8",)),
)  # fmt: skip

HERE = (
    Case("written to a file", "TP=8\ncat <<EOF > run.sh\nsglang serve --tp $TP \\\n  --port \\$P\nEOF\n",
         ("3: sglang serve --tp 8 --port '$P'",)),
    Case("written by tee", "sudo tee run.sh <<'EOF' >/dev/null\nsglang serve --tp $TP\nEOF\n",
         ("2: sglang serve --tp '$TP'",)),
    Case("run by a shell", "export A=1\nB=2\nbash <<'EOF'\nsglang serve --tp 8\nEOF\n",
         ("4: A=1 sglang serve --tp 8",)),
    Case("run over ssh", "ssh n1 <<-EOF\n\tsglang serve --tp 8\n\tEOF\n", ("2: sglang serve --tp 8",)),
    Case("run through a pipe", "cat <<EOF | ssh n1 bash -s\nsglang serve --tp 8\nEOF\n", ("2: sglang serve --tp 8",)),
    Case("in a container", "docker exec -i c bash <<EOF\nsglang serve --tp 8\nEOF\n", ("2: sglang serve --tp 8",)),
    Case("a job", "sbatch <<EOF\n#!/bin/bash\nsrun sglang serve --tp 8\nEOF\n", ("3: srun sglang serve --tp 8",)),
    Case("a here-string", "bash <<< 'sglang serve --tp 8'\n", ("1: sglang serve --tp 8",)),
    Case("only shown", "cat <<EOF\nUsage: sglang serve --tp 4\nEOF\nsglang serve --tp 8\n",
         ("4: sglang serve --tp 8",)),
    Case("in a branch", "if a; then bash <<EOF\nsglang serve --tp 8\nEOF\nfi\n", ("2: sglang serve --tp 8",)),
)  # fmt: skip

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: main
    image: lmsysorg/sglang:v1
    env:
    - name: TP
      value: "8"
    - name: SECRET
      valueFrom: {secretKeyRef: {name: a, key: b}}
"""
LWS = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: k3}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate:
      spec:
        nodeSelector: {nvidia.com/gpu.product: NVIDIA-H200}
        containers:
        - command: [sglang, serve]
          args:
          - --nnodes=$(LWS_GROUP_SIZE)
          - --node-rank
          - $(LWS_WORKER_INDEX)
    workerTemplate:
      spec:
        containers:
        - command: ["sh", "-c"]
          args:
          - |
            exec sglang serve --nnodes $LWS_GROUP_SIZE \\
              --node-rank $LWS_WORKER_INDEX
"""
DYNAMO = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data:
  prefill.yaml: |
    tp-size: 8
    enable-mixed-chunk: true
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: d}
spec:
  components:
  - name: PrefillWorker
    multinode: {nodeCount: 2}
    podTemplate:
      spec:
        containers:
        - name: main
          command: [python3, -m, dynamo.sglang]
          args: [--config, /etc/sglang/prefill.yaml, --dyn-reasoning-parser, kimi_k3]
"""
YAML = (
    Case("command and args", POD + "    command: [sglang, serve]\n    args: [--tp, $(TP), --port, '1']\n",
         ("13: SECRET='$(SECRET)' TP=8 sglang serve --tp 8 --port 1",), "a.yaml"),
    Case("sh -c, quoted", POD + '    command: [bash, -c, "sglang serve --tp \\"$TP\\""]\n',
         ("13: SECRET='$(SECRET)' TP=8 sglang serve --tp 8",), "a.yaml"),
    Case("$(NAME) before the shell", POD + "    command: [bash, -c, 'sglang serve --tp $(TP) --port $$(P) $(date)']\n",
         ("13: SECRET='$(SECRET)' TP=8 sglang serve --tp 8 --port '$(P)'",), "a.yaml"),
    Case("$(NAME) in a script", POD + "    command: [sh, -c]\n    args:\n    - |\n      exec sglang serve \\\n"
         "        --tp $(TP)\n", ("16: SECRET='$(SECRET)' TP=8 exec sglang serve --tp 8",), "a.yaml"),
    Case("$(NAME) in a variable", POD + "    - {name: ARGS, value: --tp $(TP)}\n"
         "    command: [sh, -c, sglang serve $(ARGS)]\n",
         ("14: ARGS='--tp 8' SECRET='$(SECRET)' TP=8 sglang serve --tp 8",), "a.yaml"),
    Case("$(NAME) within an item", POD + "    command: [sglang, serve, --tp=$(TP), --port, '$(TP)0']\n",
         ("13: SECRET='$(SECRET)' TP=8 sglang serve --tp=8 --port 80",), "a.yaml"),
    Case("sh -c, folded", POD + "    command: [sh, -c]\n    args:\n    - >\n      sglang serve\n      --tp 8\n",
         ("16: SECRET='$(SECRET)' TP=8 sglang serve --tp 8",), "a.yaml"),
    Case("LeaderWorkerSet", LWS, ("11: sglang serve --nnodes=2 --node-rank 0",
         "22: exec sglang serve --nnodes 2 --node-rank '$LWS_WORKER_INDEX'"), "lws.yml"),
    Case("DynamoGraphDeployment", DYNAMO, (
         "20: python3 -m dynamo.sglang --tp-size 8 --enable-mixed-chunk --host 0.0.0.0 --nnodes 2 --node-rank 0 "
         "--dist-init-addr '$(LEADER):29500'",), "dgd.yaml"),
    Case("DynamoGraphDeployment, first layout", "apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\nspec:\n"
         "  services:\n    Decode:\n      componentType: worker\n      extraPodSpec:\n        mainContainer:\n"
         "          command: [sglang, serve]\n", ("9: sglang serve",), "dgd.yaml"),
    Case("a script in a ConfigMap", "apiVersion: v1\nkind: ConfigMap\ndata:\n  run.sh: |\n    export A=1\n"
         "    sglang serve --tp 8\n", ("6: A=1 sglang serve --tp 8",), "cm.yaml"),
    Case("Deployment and StatefulSet", "\n---\n".join(
         f"apiVersion: apps/v1\nkind: {kind}\nspec:\n  template:\n    spec:\n      containers:\n"
         "      - command: [sglang, serve, --tp, '8']" for kind in ("Deployment", "StatefulSet")),
         ("7: sglang serve --tp 8", "15: sglang serve --tp 8"), "a.yaml"),
    Case("JSON", '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"command": ["sglang", "serve"]}]}}',
         ("1: sglang serve",), "pod.json"),
    Case("compose", "x-a: &a\n  image: i\nservices:\n  s:\n    <<: *a\n"
         "    entrypoint: python3 -m sglang.launch_server\n"
         "    command:\n      --tp 8\n      --port ${PORT:-1}\n    environment:\n    - A=1\n    - B\n",
         ("6: A=1 python3 -m sglang.launch_server --tp 8 --port 1",), "compose.yaml"),
    Case("compose with a shell", "services:\n  s:\n    command: bash -c 'sglang serve --tp 8'\n"
         "    environment: {A: 1}\n", ("3: A=1 sglang serve --tp 8",), "compose.yaml"),
    Case("--config", "model-path: m\ntp-size: 8 # c\nenable-mixed-chunk: true\ntrust-remote-code: false\n"
         "cuda-graph-bs-decode: [1, 2]\n",
         ("1: --model-path m --tp-size 8 --enable-mixed-chunk --cuda-graph-bs-decode 1 2",), "c.yaml"),
    Case("srt-slurm, second layout", "schema: 2\nmodel: {path: hf:moonshotai/Kimi-K3, container: c}\n"
         "resources: {gpu_type: gb300}\nroles:\n  prefill: {nodes: 2, workers: 1, args: {tp-size: 8}}\n"
         "  decode: {nodes: 1, workers: 1, env: {A: '1'}, args: {tp-size: 4}}\n",
         ("5: sglang serve --tp-size 8 --model-path moonshotai/Kimi-K3 --disaggregation-mode prefill --nnodes 2 "
          "--node-rank 0 --dist-init-addr '$(HEAD):8300' --host 0.0.0.0",
          "6: A=1 sglang serve --tp-size 4 --model-path moonshotai/Kimi-K3 --disaggregation-mode decode "
          "--host 0.0.0.0"), "r.yaml"),
    Case("srt-slurm, first layout", "model: {path: /models/k3}\nresources: {agg_nodes: 2, agg_workers: 1}\nbackend:\n"
         "  type: sglang\n  aggregated_environment: {A: '1'}\n  sglang_config:\n    aggregated: {tp-size: 16}\n",
         ("7: A=1 sglang serve --tp-size 16 --model-path '$MODEL' --nnodes 2 --node-rank 0 --dist-init-addr "
          "'$(HEAD):8300' --host 0.0.0.0",), "r.yaml"),
)  # fmt: skip

DOCKER = (
    Case("exec form", 'FROM a AS b\nCMD ["sglang", "serve", "--tp", "1"]\nFROM img\nENV A=1 \\\n # why\n B="x y"\n'
         'ENTRYPOINT ["sglang", "serve", \\\n  "--tp", "8"]\nCMD ["--port", "1"]\n',
         ("7: A=1 B='x y' sglang serve --tp 8 --port 1",), "Dockerfile"),
    Case("ARG in ENV", 'FROM img\nARG TP=8\nENV A="--tp ${TP}" B=$TP\nENV C=$B\nCMD sglang serve $A --port $C\n',
         ("5: A='--tp 8' B=8 C=8 sglang serve --tp 8 --port 8",), "Dockerfile"),
    Case("ARG is gone at the start", "FROM img\nARG TP=8\nCMD sglang serve --tp $TP\n",
         ("3: sglang serve --tp '$TP'",), "Dockerfile"),
    Case("ENV of one instruction", "FROM img\nENV A=1\nENV A=2 B=$A\nCMD sglang serve\n",
         ("4: A=2 B=1 sglang serve",), "Dockerfile"),
    Case("no ENV in the exec form", 'FROM img\nENV TP=8\nCMD ["sglang", "serve", "--tp", "$TP"]\n',
         ("3: TP=8 sglang serve --tp '$TP'",), "Dockerfile"),
    Case("quotes in ENV", "FROM img\nENV A=\\$B B='$C'\nCMD sglang serve\n", ("3: A='$B' B='$C' sglang serve",),
         "Dockerfile"),
    Case("a stage on a stage", 'FROM img AS a\nENV TP=8\nCMD ["sglang", "serve", "--tp", "8"]\nFROM a\nENV X=1\n',
         ("3: TP=8 X=1 sglang serve --tp 8",), "Dockerfile"),
    Case("CMD before ENTRYPOINT", 'FROM img\nCMD ["--tp", "8"]\nENTRYPOINT ["sglang", "serve"]\n',
         ("3: sglang serve --tp 8",), "Dockerfile"),
    Case("ENTRYPOINT resets CMD from below",
         'FROM img AS a\nCMD ["--tp", "8"]\nFROM a\nENTRYPOINT ["sglang", "serve"]\n',
         ("4: sglang serve",), "Dockerfile"),
    Case("blanks behind a backslash", "FROM img\nCMD sglang serve \\  \n# why\n\n  --tp 8\\\n0\n",
         ("2: sglang serve --tp 80",), "Dockerfile"),
    Case("another escape", "# escape=`\nFROM img\nCMD sglang serve `\n  --tp 8\n", ("3: sglang serve --tp 8",),
         "Dockerfile"),
    Case("a script copied in", "FROM img\nCOPY <<'EOF' /run.sh\nsglang serve --tp 8\nEOF\nCMD [\"/run.sh\"]\n",
         ("3: sglang serve --tp 8",), "Dockerfile"),
    Case("shell form", "FROM img\nENV TP 8\nCMD sglang serve \\\n  --tp $TP\n", ("3: TP=8 sglang serve --tp 8",),
         "Dockerfile"),
    Case("exec form of a shell", 'FROM img\nCMD ["bash", "-c", "sglang serve --tp 8"]', ("2: sglang serve --tp 8",),
         "k3.dockerfile"),
)  # fmt: skip


UNIT = """[Unit]
Description=sglang serve, for everybody
; command=sglang serve
[Service]
Environment=A=1 "B=x y"
ExecStart=-/opt/bin/sglang serve --tp 8 \\
  # no flag
  --port 1
ExecStartPre=/bin/true
"""
MAKE = """TP ?= 8  # all of them
export B = x y
FLAGS := --tp $(TP) \\
\t--port 1
serve: build ; @echo now
\t@A=$$HOME sglang serve $(FLAGS) --host $${IP} --page-size $(PAGE)
\t@echo "sglang serve"
"""
PAGE = """# sglang serve, in short

```bash
sglang serve --tp 8 --dist-init-addr <node0-ip>:1
```

~~~console
$ sglang serve \\
>   --tp 4
INFO: sglang serve (ready
~~~

1. In a cluster

   ```yaml
   apiVersion: v1
   kind: Pod
   spec: {containers: [{command: [sglang, serve, --tp, "2"]}]}
   ```
"""
OTHERS = (
    Case("a unit of systemd", UNIT, ("6: A=1 B='x y' /opt/bin/sglang serve --tp 8 --port 1",), "k3.service"),
    Case("a program of supervisord", '[program:k3]\ncommand=sglang serve\n  --tp 8\nenvironment=A="1",B="2"\n',
         ("2: A=1 B=2 sglang serve --tp 8",), "supervisord.conf"),
    Case("a file of sections", "# all\n[program:k3]\ncommand=sglang serve --tp 8\n", ("3: sglang serve --tp 8",), "k3"),
    Case("a Makefile", MAKE,
         ("6: A='$HOME' B='x y' sglang serve --tp 8 --port 1 --host '${IP}' --page-size '${PAGE}'",), "Makefile"),
    Case("Markdown", PAGE, ("4: sglang serve --tp 8 --dist-init-addr '<node0-ip>:1'", "8: sglang serve --tp 4",
                            "18: sglang serve --tp 2"), "README.md"),
    Case("a manifest in a here-document",
         "kubectl apply -f - <<EOF\napiVersion: v1\nkind: Pod\nspec:\n  containers:\n"
         "  - command: [sglang, serve, --tp, '$TP']\nEOF\n", ("6: sglang serve --tp '$TP'",)),
    Case("a step of a workflow", "on: push\njobs:\n  a:\n    steps:\n    - name: sglang serve\n      run: |\n"
         "        sglang serve --tp ${{ matrix.tp }} &\n", ("7: sglang serve --tp '${{ matrix.tp }}'",), "a.yml"),
    Case("a list of words", '["python3", "-m", "sglang.launch_server", "--tp", "8"]',
         ("1: python3 -m sglang.launch_server --tp 8",), "a.json"),
    Case("many machines", 'pdsh -w a[0-1] "cd /x; A=1 sglang serve --tp 8"', ("1: A=1 sglang serve --tp 8",)),
    Case("several jobs", "parallel ::: 'cd /x && exec python3 -m sglang.launch_server --tp 8'",
         ("1: exec python3 -m sglang.launch_server --tp 8",)),
    Case("another user", 'sudo su - me -c "sglang serve --tp 8"', ("1: sglang serve --tp 8",)),
    Case("an option with a command", 'gcloud compute ssh a --command="sglang serve --tp 8"',
         ("1: sglang serve --tp 8",)),
    Case("a container of that name", 'docker run --name script img bash -c "sglang serve --tp 8"',
         ("1: docker run --name script img sglang serve --tp 8",)),
    Case("a default of compose",
         "services:\n  s: {command: [sglang, serve, --tp, '${TP:-8}', --host, 'a${X:-}b$${Y:-c}']}\n",
         ("2: sglang serve --tp 8 --host 'ab${Y:-c}'",), "compose.yaml"),
    Case("a dollar of compose",
         "services:\n  s:\n    command: bash -c 'sglang serve --node-rank $$RANK --tp ${TP:-8}'\n",
         ("3: sglang serve --node-rank '$RANK' --tp 8",), "compose.yaml"),
    Case("flags of the host", "services:\n  s: {command: [sglang, serve, --model-path, m, '${EXTRA}']}\n",
         ("2: sglang serve --model-path m",), "compose.yaml"),
    Case("left out on a page", "```\nsglang serve --model-path m ... --tp 8\n```\n",
         ("2: sglang serve --model-path m --tp 8",), "a.md"),
    Case("flags of another program", POD + "    args: [--model, a, --port, '8', --host, b]\n", (), "a.yaml"),
    Case("a template for something else",
         "cat > chat.jinja <<'EOF'\n{% if x %}{{ y }}{% endif %}\nEOF\nsglang serve --tp 8\n",
         ("4: sglang serve --tp 8",)),
    Case("a list that nothing uses", "x-a: [sglang, serve, --tp, '8']\nservices:\n  s: {command: sglang serve}\n",
         ("3: sglang serve",), "compose.yaml"),
)  # fmt: skip


@pytest.mark.parametrize("case", [*SHELL, *HERE, *YAML, *DOCKER, *OTHERS], ids=lambda case: case.id)
def test_servers_and_their_lines(case: Case) -> None:
    found = read(case.content, case.name).servers
    assert tuple(f"{one.line}: {_shown(one.server)}" for one in found) == case.servers
    for one in found:
        assert tuple(word.text for word in one.words) == one.server.argv
        for word in one.words:
            assert word.start is None or 0 <= word.start < word.end <= len(case.content)


def _shown(server) -> str:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    return replace(server, env=tuple(sorted(server.env))).format()


@pytest.mark.parametrize(
    ("flag", "line"),
    [("--tp-size", 3), ("--port", 6), ("--page-size", 6), ("A", 1), ("--model-path", None)],
)
def test_the_line_of_a_flag_is_where_it_is_written(flag: str, line: int | None) -> None:
    content = 'export A=1\nX=(\n  --tp 8\n)\nP=64\nsglang serve "${X[@]}" --port 1 --page-size $P\n'
    found = read(content).servers[0]
    place = found.place_of(flag)
    assert (None if place is None else Text("", content).line(place)) == line


@pytest.mark.parametrize(
    ("content", "name", "said", "line"),
    [
        ("python3 - <<EOF\nrun('sglang serve --tp 8')\nEOF\n", "a.sh", "cannot be read", 2),
        ("cat <<EOF | kubectl apply -f -\na: sglang serve\nEOF\n", "a.sh", "cannot be read", 2),
        ("cat <<EOF > a.yaml\na: sglang serve\nEOF\n", "a.sh", "cannot be read", 2),
        ("bash <<EOF\nsglang serve --tp '8\nEOF\n", "a.sh", "here-document is not read", 1),
        ("X=$(cat <<EOF\nsglang serve\nEOF\n)\n$X", "a.sh", "cannot be read", 2),
        ("FROM a\nARG TP=8\nCMD sglang serve --tp $TP\n", "Dockerfile", "while the image is built only", 3),
        (POD + "    command: [python, -c, run('sglang serve')]\n", "a.yaml", "cannot be read", 13),
        ("services:\n  s:\n    command: [python, -c, run('sglang serve')]\n", "compose.yaml", "cannot be read", 3),
        ("source env.sh\nsglang serve", "a.sh", "env.sh", 1),
        (POD + "    args: [--model-path, a, --tp, '8']\n", "a.yaml", "own entrypoint", 13),
        ("[program:a]\ncommand=sglang serve --port %(ENV_PORT)s\n", "a.conf", "not checked", 2),
        ("[Service]\nEnvironmentFile=/etc/a.env\nExecStart=sglang serve\n", "a.service", "/etc/a.env", 2),
        ("a:\n\tsglang serve --tp $TP\n", "Makefile", "its own variable T", 2),
        ("a:\n\tsglang serve --tp '8\n", "Makefile", "not read", 2),
        ("```sh\nsglang serve\n```\n```log\nsglang serve\n```\n", "a.md", "text that is shown", 4),
        ("a\n```python\nrun('sglang serve')\n```\n", "a.md", "python, neither shell", 2),
        ("a: |\n  sglang serve --tp {{ tp }}\n", "a.yaml", "template", 1),
        ("kubectl apply -f - <<EOF\na: [sglang, serve]\nEOF\n", "a.sh", "cannot be read", 2),
        ("#!/bin/bash\r\nsglang serve\r\n", "a.sh", "CR LF", 1),
        ("sglang serve --config /etc/x.yaml", "a.sh", "/etc/x.yaml", 1),
        (POD + "    envFrom: [{configMapRef: {name: x}}]\n    command: [sglang, serve]\n", "a.yaml", "envFrom", 13),
        ("sglang serve --tp 8\n  --port 1", "a.sh", "--port starts a command", 2),
        ("sglang serve \\\n  --tp 8 \\  # eight\n  --port 1", "a.sh", "--port starts a command", 3),
        ("sglang serve \\\n  --tp 8 \\\n  # --dp 8 \\\n  --port 1", "a.sh", "--port starts a command", 4),
        ("tp-size: 8\nlora-paths: a\n", "c.yaml", "lora_paths", 2),
        ("if a; then X=1; fi\n" * 1 + "".join(f"if t{i}; then X{i}=1; fi\n" for i in range(7)) + "sglang serve",
         "a.sh", "more than 32 ways", 1),
    ],
)  # fmt: skip
def test_what_is_not_checked_is_said(content: str, name: str, said: str, line: int) -> None:
    notes = read(content, name).notes
    assert [note.line for note in notes if said in note.message] == [line], notes


@pytest.mark.parametrize(
    ("content", "name", "platform"),
    [
        (LWS, "a.yaml", "h200"),
        ("#!/bin/bash\n#SBATCH --gres=gpu:gb300:4\nsglang serve", "a.sh", "gb300"),
        ("#!/bin/bash\n#SBATCH --gres=gpu:8\nsglang serve", "a.sh", None),
        ("FROM quay.io/ascend/sglang:v0.5.23-cann8.5.0-a3\nCMD sglang serve", "Dockerfile", "a3"),
        ("FROM lmsysorg/sglang:v0.5.23-rocm700-mi35x\nCMD sglang serve", "Dockerfile", None),
        (LWS + "---\n" + LWS.replace("H200", "H100"), "a.yaml", None),
    ],
)
def test_the_platform_only_when_it_is_certain(content: str, name: str, platform: str | None) -> None:
    assert read(content, name).platform == platform


@pytest.mark.parametrize(
    ("content", "name", "image"),
    [
        ("ARG TAG=v1\nFROM lmsysorg/sglang:${TAG}\nCMD sglang serve\n", "Dockerfile", "lmsysorg/sglang:v1"),
        ("ARG R=lmsysorg\nFROM --platform=linux/amd64 $R/sglang AS a\nCMD sglang serve\n", "Dockerfile",
         "lmsysorg/sglang"),
        ("FROM ${IMAGE:-img:2}\nCMD sglang serve\n", "Dockerfile", "img:2"),
        ("FROM img:3 AS a\nCMD sglang serve\nFROM a\n", "Dockerfile", "img:3"),
    ],
)  # fmt: skip
def test_the_image(content: str, name: str, image: str) -> None:
    assert [one.image for one in read(content, name).servers] == [image]


@pytest.mark.parametrize(
    ("content", "name", "line"),
    [
        ("ARG TAG=v1\nFROM img:$TAG\nCMD sglang serve\n", "Dockerfile", 2),
        ("FROM img:3 AS a\nCMD sglang serve\nFROM a\n", "Dockerfile", 1),
        (POD + "    command: [sglang, serve]\n", "a.yaml", 7),
        ("services:\n  s:\n    command: sglang serve\n    image: i\n", "compose.yaml", 4),
        ("docker run \\\n  -e A=1 \\\n  img:1 \\\n  sglang serve\n", "a.sh", 3),
        ("sglang serve\n", "a.sh", None),
    ],
)
def test_where_the_image_is_named(content: str, name: str, line: int | None) -> None:
    (found,) = read(content, name).servers
    place = found.place_of("image")
    assert (None if place is None else Text(name, content).line(place)) == line


@pytest.mark.parametrize(
    ("content", "name", "gpus", "nodes"),
    [
        (POD + "    resources: {limits: {nvidia.com/gpu: 4}}\n    command: [sglang, serve]\n", "a.yaml", 4, None),
        (POD + "    resources: {limits: {amd.com/gpu: '8', memory: 1Gi}}\n    command: [sglang, serve]\n", "a.yaml", 8,
         None),
        (POD + "    command: [sglang, serve]\n", "a.yaml", None, None),
        ("services:\n  s:\n    command: sglang serve\n"
         "    deploy: {resources: {reservations: {devices: [{count: 2}]}}}\n",
         "compose.yaml", 2, None),
        ("docker run --gpus 4 img sglang serve\n", "a.sh", 4, None),
        ("docker run --gpus '\"device=0,2\"' img sglang serve\n", "a.sh", 2, None),
        ("docker run --gpus all img sglang serve\n", "a.sh", None, None),
        ("#!/bin/bash\n#SBATCH --nodes=4\nsrun sglang serve\n", "a.sh", None, 4),
        ("#!/bin/bash\n#SBATCH --nodes=4\nsrun -N 2 sglang serve\n", "a.sh", None, 2),
        ("#!/bin/bash\n#SBATCH -N 2-4\nsrun sglang serve\n", "a.sh", None, None),
        ("#!/bin/bash\n#SBATCH --nodes=1\nsglang serve --nnodes 2 --node-rank $SLURM_ARRAY_TASK_ID\n", "a.sh", None,
         None),
        ("for i in 0 1; do srun --nodes=1 -w n$i sglang serve --nnodes 2 --node-rank $i & done\n", "a.sh", None, None),
        (DYNAMO, "dgd.yaml", None, 2),
    ],
)  # fmt: skip
def test_what_a_document_says_of_the_machines(content: str, name: str, gpus: int | None, nodes: int | None) -> None:
    (found,) = read(content, name).servers
    assert (found.gpus_visible, found.group_size) == (gpus, nodes)


def test_a_group_of_pods_says_its_size_and_its_pods() -> None:
    leader, worker = read(LWS, "lws.yaml").servers
    assert (leader.group_size, worker.group_size) == (2, 2)
    assert leader.host != worker.host


def test_several_servers_of_a_job_share_its_nodes() -> None:
    reading = read("#!/bin/bash\n#SBATCH -N 4\nsrun sglang serve --tp 8 &\nsrun sglang serve --tp 4\n")
    assert [one.group_size for one in reading.servers] == [None, None]


@pytest.mark.parametrize(
    "content",
    [
        'CMD="sglang serve --tp 8"\n$CMD --port 1',
        'A=(sglang serve --tp 8)\n"${A[@]}" &',
        'log "waiting for sglang serve"\nsglang serve --tp 8',
        'log() { echo "$@"; }\nlog "sglang serve is starting"\nsglang serve --tp 8',
        'WHAT="how to run sglang serve"\nsglang serve --tp 8',
        "PID=$(pgrep -f sglang.launch_server)\nsglang serve --tp 8",
        'if [ -n "$(pgrep -f sglang.launch_server)" ]; then exit 1; fi\nsglang serve --tp 8',
        "V=$(sglang serve --help)\nsglang serve --tp 8",
        ": <<E\nsglang serve --tp 4\nE\nsglang serve --tp 8",
        "trap 'pkill -f \"sglang serve\"' EXIT\nsglang serve --tp 8",
    ],
)
def test_speaking_of_a_server_starts_none(content: str) -> None:
    reading = read(content)
    assert [one.server.value("--tp") for one in reading.servers] == ["8"]
    assert not [note for note in reading.notes if note.unread]


@pytest.mark.parametrize(
    "content",
    ['run_on n1 "sglang serve --tp 8"', 'on_all "cd /x && exec python3 -m sglang.launch_server --tp 8"'],
)
def test_a_server_that_somebody_else_starts_is_not_read(content: str) -> None:
    assert [note.unread for note in read(content).notes] == [True]


def test_what_a_command_substitution_starts_is_read() -> None:
    assert [one.server.value("--tp") for one in read("X=$(sglang serve --tp 8)\n").servers] == ["8"]


def test_a_router_is_found_beside_its_servers() -> None:
    reading = read("sglang serve &\npython3 -m sglang_router.launch_router --pd-disaggregation --port 8000\n")
    assert reading.routers == (("--pd-disaggregation", "--port", "8000"),)


@pytest.mark.parametrize(
    ("content", "name", "expands"),
    [
        ("sglang serve", "a.sh", True),
        (POD + "    command: [sglang, serve]\n", "a.yaml", False),
        (POD + "    command: [sh, -c, sglang serve --tp 8]\n", "a.yaml", True),
        ('FROM a\nCMD ["sglang", "serve"]', "Dockerfile", False),
        ("FROM a\nCMD sglang serve", "Dockerfile", True),
        ("tp-size: 8", "c.yaml", False),
    ],
)
def test_whether_a_shell_comes_first(content: str, name: str, expands: bool) -> None:
    assert [one.expands for one in read(content, name).servers] == [expands]
