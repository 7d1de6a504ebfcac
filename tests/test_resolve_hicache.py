"""The hierarchical KV cache: host pool size, layout, copy kernels, storage, DCP and the external linker."""

from __future__ import annotations

import pytest

from resolve_table import Case, check, named, refusals, table

DECODE = "--disaggregation-mode decode --disaggregation-transfer-backend nixl"
LINKER = "--enable-unified-cache-external-linker"
HICACHE = "--enable-hierarchical-cache"
MOONCAKE = "--hicache-storage-backend mooncake"

HOST_POOL_SIZE = table(
    "hicache_ratio hicache_host_memory_fraction",
    ("b300", "", 2.0, 0.8),
    ("b300", f"{HICACHE} --hicache-ratio 3", 3.0, None),
    ("b300", f"{HICACHE} --hicache-size 100", 2.0, None),
    ("b300", DECODE, None, 0.8),
)
STAGING_BUFFER = table(
    "hicache_ratio hicache_write_policy",
    ("b300", f"{HICACHE} --hicache-host-memory-mode buffer_only {MOONCAKE}", 1.2, "write_through"),
    (
        "b300",
        f"{HICACHE} --hicache-host-memory-mode buffer_only {MOONCAKE} --hicache-write-policy write_back",
        1.2,
        "write_through",
    ),
)
LAYOUT_AND_KERNELS = table(
    "hicache_ratio hicache_mem_layout hicache_io_backend",
    ("b300", HICACHE, 2.0, "page_first", "kernel"),
    ("b300", f"--dcp-size 8 {HICACHE}", 2.0, "page_first", "kernel"),
    ("b300", f"--dcp-size 8 {HICACHE} DSPARK", 2.0, "page_first", "kernel"),
    ("b300", f"{HICACHE} {MOONCAKE}", 2.0, "page_first", "kernel"),
    ("b300", f"{HICACHE} {MOONCAKE} --hicache-io-backend direct", 2.0, "page_first_direct", "direct"),
    ("b300", f"--dcp-size 8 {HICACHE} {MOONCAKE}", 2.0, "page_first", "kernel"),
    ("b300", f"{HICACHE} --hicache-storage-backend file", 2.0, "page_first", "kernel"),
    ("b300", f"{HICACHE} --hicache-mem-layout page_first_direct", 2.0, "page_first_direct", "direct"),
    (
        "b300",
        f"{HICACHE} --hicache-mem-layout page_first --hicache-io-backend direct",
        2.0,
        "page_first_direct",
        "direct",
    ),
    ("b300", f"{HICACHE} --enable-unified-memory --hicache-mem-layout page_first_direct", 2.0, "page_first", "kernel"),
    ("b300", "--hicache-mem-layout page_first_direct", 2.0, "page_first_direct", "kernel"),
    ("b300", f"{DECODE} --hicache-mem-layout page_first_direct", None, "page_first_direct", "direct"),
    (
        "b300",
        f"{DECODE} --hicache-mem-layout page_first_direct --disaggregation-decode-retraction-backup cpu_tensor",
        None,
        "page_first_direct",
        "kernel",
    ),
    ("b300", f"{LINKER} --hicache-mem-layout page_first_direct", 2.0, "page_first_direct", "kernel"),
)
HOST_MEMORY_IS_REFUSED = refusals(
    ("b300", "--hicache-host-memory-fraction 0", "ValueError: --hicache-host-memory-fraction must be in (0, 1]."),
    (
        "b300",
        f"{HICACHE} --hicache-host-memory-mode buffer_only",
        (
            "ValueError: --hicache-host-memory-mode buffer_only requires a storage backend "
            "(--hicache-storage-backend): host memory is only a staging buffer and all cached data lives in "
            "storage."
        ),
    ),
    (
        "b300",
        f"{DECODE} --hicache-host-memory-mode buffer_only {MOONCAKE}",
        (
            "ValueError: --hicache-host-memory-mode buffer_only is not supported on decode instances: the "
            "decode-side prefetch and offload paths bypass the buffer-mode pipeline, fetching without its "
            "prefix context and never consuming its staged holds. Prefill instances share the standard "
            "scheduler path and are supported."
        ),
    ),
    (
        "b300",
        f"{DECODE} --disaggregation-decode-host-receive-threshold 0.5 {MOONCAKE}",
        (
            "ValueError: The resolved HiCache storage layout 'page_first' cannot share the layer_first decode "
            "host pool used by KV transfer"
        ),
    ),
)
DCP_IS_REFUSED = refusals(
    (
        "b300",
        f"--dcp-size 8 {HICACHE} {MOONCAKE} --hicache-host-memory-mode buffer_only",
        "NotImplementedError: HiCache L3 with DCP does not support buffer_only host memory.",
    ),
    (
        "b300",
        (
            f"--dcp-size 8 {HICACHE} --speculative-algorithm EAGLE3 --speculative-draft-model-path "
            "RadixArk/Kimi-K3-DSpark --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4"
        ),
        (
            "NotImplementedError: HiCache with --dcp-size > 1 only supports DSPARK speculative decoding; other "
            "draft-model host pools have no DCP index translation."
        ),
    ),
    (
        "b300",
        f"--dcp-size 8 {HICACHE} --enable-lmcache",
        (
            "NotImplementedError: --enable-lmcache with --dcp-size > 1 is not supported: LMCache has no "
            "DCP-aware index translation."
        ),
    ),
    (
        "b300",
        f"--dcp-size 8 {HICACHE} --enable-hisparse",
        (
            "NotImplementedError: --enable-hisparse with --dcp-size > 1 is not supported: the HiSparse host "
            "pool is constructed without DCP translation."
        ),
    ),
)
LINKER_IS_REFUSED = refusals(
    (
        "b300",
        f"{LINKER} --disable-radix-cache",
        (
            "ValueError: --enable-unified-cache-external-linker requires the default UnifiedRadixCache with "
            "radix caching enabled."
        ),
    ),
    (
        "b300",
        f"{LINKER} {HICACHE}",
        "ValueError: --enable-unified-cache-external-linker and --enable-hierarchical-cache are mutually exclusive.",
    ),
    (
        "b300",
        f"{LINKER} --hicache-storage-backend file",
        "ValueError: --enable-unified-cache-external-linker does not use --hicache-storage-backend.",
    ),
    (
        "b300",
        "--unified-cache-external-linker-config '[1]'",
        "ValueError: --unified-cache-external-linker-config must be a JSON object.",
    ),
    (
        "b300",
        f"{LINKER} --unified-cache-external-linker-backend dynamic",
        "ValueError: --unified-cache-external-linker-config must be a JSON object.",
    ),
    (
        "b300",
        (
            "--unified-cache-external-linker-backend dynamic --unified-cache-external-linker-config "
            '\'{"linker": "a", "path": "b"}\''
        ),
        "ValueError: --unified-cache-external-linker-config: unknown fields: ['path']",
    ),
    (
        "b300",
        '--unified-cache-external-linker-backend dynamic --unified-cache-external-linker-config \'{"linker": "a"}\'',
        "ValueError: --unified-cache-external-linker-config: linker_module_path must be a non-empty string.",
    ),
    (
        "b300",
        (
            "--unified-cache-external-linker-backend dynamic --unified-cache-external-linker-config "
            '\'{"linker": "a", "linker_module_path": "b", "linker_extra_config": 3}\''
        ),
        "ValueError: --unified-cache-external-linker-config: linker_extra_config must be a JSON object.",
    ),
    ("b300", "--enable-linker-mla-dedup", "ValueError: --enable-linker-mla-dedup requires the Mooncake linker."),
)


@pytest.mark.parametrize("case", **named(HOST_POOL_SIZE))
def test_host_pool_size(case: Case) -> None:
    """The host pool is twice the device pool unless a size is given; PD decode decides later."""
    check(case)


@pytest.mark.parametrize("case", **named(STAGING_BUFFER))
def test_staging_buffer(case: Case) -> None:
    """A staging buffer is smaller and writes through."""
    check(case)


@pytest.mark.parametrize("case", **named(LAYOUT_AND_KERNELS))
def test_layout_and_kernels(case: Case) -> None:
    """Layout, copy kernels and storage are made to agree, only where a host pool is built."""
    check(case)


@pytest.mark.parametrize("case", **named(HOST_MEMORY_IS_REFUSED))
def test_host_memory_is_refused(case: Case) -> None:
    """Host memory that nothing fills or that transfer cannot share."""
    check(case)


@pytest.mark.parametrize("case", **named(DCP_IS_REFUSED))
def test_dcp_is_refused(case: Case) -> None:
    """Host pools of DCP servers translate indices for few features."""
    check(case)


@pytest.mark.parametrize("case", **named(LINKER_IS_REFUSED))
def test_linker_is_refused(case: Case) -> None:
    """The external linker replaces the host tier and needs a sound config."""
    check(case)
