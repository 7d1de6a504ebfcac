"""Worker processes, metric buckets and request priorities."""

from __future__ import annotations

from perilune.plan.resolve.state import Rejected, Resolution

PRIORITY_POLICIES = ("fcfs", "lof")


def check_workers(r: Resolution) -> None:
    """Check the numbers of tokenizer and multimodal workers."""
    for field, text in (
        ("tokenizer_worker_num", "Tokenizer worker num must >= 1"),
        ("detokenizer_worker_num", "Detokenizer worker num must >= 1"),
    ):
        if r[field] <= 0:
            raise r.reject(text, error="AssertionError")
    for field, text in (
        ("mm_processor_worker_num", "Multimodal processor worker num must >= 0"),
        ("mm_io_worker_num", "Multimodal I/O worker num must >= 0"),
    ):
        if r[field] < 0:
            raise r.reject(text, error="AssertionError")


def check_buckets(r: Resolution, flag: str, rule: list[str] | None) -> None:
    """Check a histogram's bucket rule: `default`, `tse <middle> <base> <count>` or `custom <value>...`."""

    def refusal(text: str) -> Rejected:
        return r.reject(f"{flag} {text}", error="AssertionError")

    if not rule:
        return
    kind, *parameters = rule
    if kind == "default":
        if parameters:
            raise refusal(f"default rule should only have one parameter: ['default'], got {len(rule)}")
    elif kind == "tse":
        if len(parameters) != 3:
            raise refusal(f"TSE rule requires exactly 4 parameters: ['tse', middle, base, count], got {len(rule)}")
        try:
            middle, base, count = float(parameters[0]), float(parameters[1]), int(parameters[2])
        except ValueError:
            raise refusal("TSE rule parameters must be: ['tse', <float:middle>, <float:base>, <int:count>]") from None
        if not base > 1:
            raise refusal(f"TSE base must be larger than 1, got: {base}")
        if not count > 0:
            raise refusal(f"TSE count must be positive, got: {count}")
        if not middle > 0:
            raise refusal(f"TSE middle must be positive, got: {middle}")
    elif kind == "custom":
        if not parameters:
            raise refusal("custom rule requires at least one bucket value: ['custom', value1, ...]")
        try:
            values = [float(value) for value in parameters]
        except ValueError:
            raise refusal("custom rule bucket values must be numeric") from None
        if len(set(values)) != len(values):
            raise refusal("custom rule bucket values should not contain duplicates")
        if not all(value >= 0 for value in values):
            raise refusal("custom rule bucket values should be non-negative")
    else:
        raise r.reject(
            f"Unsupported {flag} rule type: '{kind}'. Must be one of: 'tse', 'default', 'custom'",
            error="AssertionError",
        )


def check_priority(r: Resolution) -> None:
    """Check priority scheduling against the schedule and retraction policies."""
    enabled, policy = r["enable_priority_scheduling"], r["schedule_policy"]
    if enabled:
        if policy not in PRIORITY_POLICIES:
            raise r.reject(
                f"To use priority scheduling, schedule_policy must be 'fcfs' or 'lof'. '{policy}' is not supported.",
                error="AssertionError",
            )
        if r["default_priority_value"] is None:
            r.warn("Requests without a priority show as priority='None' in metrics; set a default.")
        return
    if r["disable_priority_preemption"]:
        r.warn("--disable-priority-preemption does nothing without --enable-priority-scheduling.")
    if r["default_priority_value"] is not None:
        r.warn("--default-priority-value does nothing without --enable-priority-scheduling.")
    if r["retraction_policy"] == "priority":
        raise r.reject("--retraction-policy priority requires --enable-priority-scheduling")
