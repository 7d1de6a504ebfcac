"""Runs inside the environment that holds the real SGLang: plays operations on its own radix cache, on the CPU.

    VENV/bin/python radix_driver.py FACTS/memory < cases.json > answers.jsonl

A case is {"setup": {...}, "ops": [[name, ...], ...]}; its answer is a list with, for every operation, what it found and
the counts of both pools. Real are: UnifiedRadixCache with its tree core (the Rust one, or "core": "python"), both pools
and their allocators, Req, the scheduler's functions that match, make room, choose the state to track, checkpoint and
release. Stand-ins: the scheduler's loop and the model's forward, so nothing is computed and lengths are what the case
says; the row of a request is written here instead of by a kernel; process groups do not exist.
"""

import json
import logging
import os
import sys
from array import array
from types import SimpleNamespace
from unittest import mock

os.environ.setdefault("SGLANG_RUST_BUILD_MODE", "never")
logging.disable(logging.INFO)

sys.path.insert(0, sys.argv[1])

import sgfake  # noqa: E402
import torch  # noqa: E402
from transformers import AutoProcessor  # noqa: E402, F401  (before optional packages look present)

sys.meta_path.append(sgfake._StubFinder())

from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape  # noqa: E402
from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.managers import schedule_batch  # noqa: E402
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch  # noqa: E402
from sglang.srt.managers.scheduler_components import batch_result_processor  # noqa: E402
from sglang.srt.mem_cache.allocation import ensure_mamba_capacity  # noqa: E402
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator  # noqa: E402
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, MatchPrefixParams  # noqa: E402
from sglang.srt.mem_cache.cache_init_params import CacheInitParams  # noqa: E402
from sglang.srt.mem_cache.common import checkpoint_kv_cache, evict_from_tree_cache, release_kv_cache  # noqa: E402
from sglang.srt.mem_cache.memory_pool import (  # noqa: E402
    HybridLinearKVPool,
    HybridReqToTokenPool,
    MHATokenToKVPool,
    ReqToTokenPool,
)
from sglang.srt.mem_cache.radix_cache import RadixKey  # noqa: E402
from sglang.srt.mem_cache.unified_cache.components import ComponentType  # noqa: E402
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache  # noqa: E402
from sglang.srt.runtime_context import mamba_track_grid  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler  # noqa: E402

CONTEXT = 8192
OWN = 1 << 40  # token ids from here on are a request's own


class Engine:
    """One worker's cache and pools, and the requests that run on it."""

    def __init__(self, setup):
        self.setup = setup
        self.page = setup["page_size"] * setup["dcp"]
        self.hybrid = setup["slots"] is not None
        self.reqs, self.blocks = {}, {}
        args = ServerArgs(
            model_path="dummy",
            page_size=setup["page_size"],
            mamba_radix_cache_strategy=setup["strategy"],
            mamba_track_interval=setup["track_interval"],
            mamba_max_states_per_path=setup["max_states_per_path"],
            disable_radix_cache=setup["disabled"],
        )
        args._mamba_cache_chunk_size = max(setup["kernel_chunk"], setup["page_size"])
        set_global_server_args_for_scheduler(args)
        self.extra = self.hybrid and setup["strategy"] != "no_buffer" and not setup["disabled"]
        self.lazy = setup["strategy"] == "extra_buffer_lazy"
        self._build()
        self.batch = SimpleNamespace(
            model_config=SimpleNamespace(hf_text_config=SimpleNamespace(mamba_chunk_size=setup["kernel_chunk"])),
            tree_cache=self.cache,
            req_to_token_pool=self.rows,
            spec_algorithm=SimpleNamespace(is_none=lambda: True),
            mamba_decode_batch_idx_cpu=[0],
            mamba_track_buffer_indices=None,
        )
        self.processor = object.__new__(batch_result_processor.SchedulerBatchResultProcessor)
        object.__setattr__(self.processor, "tree_cache", self.cache)

    def _build(self):
        setup = self.setup
        kv = {"size": setup["tokens"], "dtype": torch.bfloat16, "head_num": 1, "head_dim": 1, "device": "cpu"}
        if self.hybrid:
            shape = Mamba2StateShape.create(
                tp_world_size=1, intermediate_size=4, n_groups=1, num_heads=1, head_dim=4, state_size=4, conv_kernel=2
            )
            self.rows = HybridReqToTokenPool(
                size=64,
                mamba_size=setup["slots"],
                mamba_spec_state_size=1,
                max_context_len=CONTEXT,
                device="cpu",
                enable_memory_saver=False,
                cache_params=Mamba2CacheParams(shape=shape, layers=[0]),
                mamba_layer_ids=[0],
                enable_mamba_extra_buffer=self.extra,
                enable_mamba_extra_buffer_lazy=self.extra and self.lazy,
                enable_overlap_schedule=setup["overlap"],
            )
            pool = HybridLinearKVPool(
                page_size=self.page,
                full_attention_layer_ids=[1],
                enable_memory_saver=False,
                mamba_pool=self.rows.mamba_pool,
                **kv,
            )
            components = (ComponentType.FULL, ComponentType.MAMBA)
        else:
            self.rows = ReqToTokenPool(size=64, max_context_len=CONTEXT, device="cpu", enable_memory_saver=False)
            pool = MHATokenToKVPool(page_size=self.page, layer_num=1, enable_memory_saver=False, **kv)
            components = (ComponentType.FULL,)
        common = {"dtype": torch.bfloat16, "device": "cpu", "kvcache": pool, "need_sort": False}
        if self.page == 1:
            self.allocator = TokenToKVPoolAllocator(setup["tokens"], **common)
        else:
            self.allocator = PagedTokenToKVPoolAllocator(setup["tokens"], page_size=self.page, **common)
        self.cache = UnifiedRadixCache(
            CacheInitParams(
                disable=setup["disabled"],
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=self.page,
                eviction_policy=setup["policy"],
                eviction_policy_config=setup["policy_config"],
                enable_mamba_extra_buffer=self.extra,
                enable_mamba_extra_buffer_lazy=self.extra and self.lazy,
                tree_components=components,
                tree_core_backend=setup["core"],
            )
        )

    # Operations: each returns what it found, or None where the request is gone or had to go

    def start(self, rid, blocks, block_tokens, prompt):
        """Match a new request, lock it and give it its row and slots."""
        req = self._request(rid, blocks, block_tokens, prompt)
        req.init_next_round_input(self.cache)
        found = req.prefix_len
        req.lock = self.cache.lock(req.last_node)
        if not ensure_mamba_capacity(self.rows, [req], self.cache):
            self.cache.unlock(req.lock)
            release_kv_cache(req, self.cache, checkpoint=False)
            return None
        self.rows.alloc([req])
        if found:
            self.rows.write((req.kv.req_pool_idx, slice(0, found)), self.cache.prefix_device_indices(req))
        req.kv.kv_committed_len = req.kv.kv_allocated_len = found
        self.reqs[rid] = req
        return found

    def pass_by(self, rid, blocks, block_tokens, prompt):
        """Match a request that is then not admitted."""
        req = self._request(rid, blocks, block_tokens, prompt)
        req.init_next_round_input(self.cache)
        if self.hybrid:
            release_kv_cache(req, self.cache, checkpoint=False)
        return req.prefix_len

    def probe(self, blocks, block_tokens, length):
        """Match as a cache-aware schedule policy does: nothing is taken, but the tree is used."""
        tokens = self._tokens(0, blocks, block_tokens, length)
        found = self.cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens)))
        return found.device_prefix_len

    def step(self, rid, tokens, steps, last):
        """Prefill so many more tokens of the prompt (`last`: and end with it), or decode so many steps after it."""
        req = self.reqs.get(rid)
        if req is None:
            return None
        if req.kv.kv_committed_len >= len(req.origin_input_ids):
            return self._decode(req, steps)
        return self._chunk(req, tokens, last)

    def _chunk(self, req, tokens, last):
        rid = int(req.rid)
        start = req.kv.kv_committed_len
        end = min(start + tokens, len(req.origin_input_ids))
        if not self._grow(req, start, end):
            return None
        req.prefix_len, req.extend_end = start, end
        if self.extra:
            ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend(self.batch, req)
        if end == len(req.origin_input_ids):
            req.output_ids.append(self._own(rid, end))
            if last:
                self.end(rid)
                return None
        checkpoint_kv_cache(req, self.cache)
        return req.kv.cache_protected_len

    def _decode(self, req, steps):
        """At every boundary the engine's own code tracks the state."""
        rid = int(req.rid)
        start = req.kv.kv_committed_len
        end = start + steps
        if not self._grow(req, start, end):
            return None
        req.output_ids.extend(self._own(rid, at + 1) for at in range(start, end))
        if self.extra:
            interval = mamba_track_grid(self.page)
            for at in range((start // interval + 1) * interval, end + 1, interval):
                req.kv.kv_committed_len = at
                self.batch.reqs, self.batch.seq_lens_cpu = [req], torch.tensor([at])
                if self.lazy:
                    ScheduleBatch.mamba_lazy_prealloc_at_boundary(self.batch, interval)
                self.processor._mamba_prefix_cache_update(req, self.batch, None, 0)
            req.kv.kv_committed_len = end
        return end

    def end(self, rid):
        """The request ends, or is retracted where its prompt was not done."""
        req = self.reqs.get(rid)
        if req is None or not req.output_ids:
            self.drop(rid)
            return
        del self.reqs[rid]
        req.finished_reason = FINISH_LENGTH(length=0)
        release_kv_cache(req, self.cache, checkpoint=True)

    def drop(self, rid):
        """The request loses its place."""
        req = self.reqs.pop(rid, None)
        if req is None:
            return
        if req.kv.kv_allocated_len:
            release_kv_cache(req, self.cache, checkpoint=False)
            return
        # The scheduler never gives a row without tokens; what a release does is done by hand here.
        self.cache.unlock(req.lock)
        self.cache.on_release(req, checkpointed=False)
        self.rows.free(req)

    def evict(self, tokens, states):
        """Evict for an allocation that is short of so much."""
        if tokens:
            self.cache.evict_for_alloc(EvictParams(num_tokens=tokens))
        if states and self.hybrid:
            self.cache.evict_for_alloc(EvictParams(num_tokens=0, mamba_num=states))

    def counts(self):
        """Free, evictable and locked: tokens, then slots."""
        found = [self.allocator.available_size(), self.cache.full_evictable_size(), self.cache.full_protected_size()]
        if self.hybrid:
            found += [
                self.rows.mamba_allocator.available_size(),
                self.cache.mamba_evictable_size(),
                self.cache.mamba_protected_size(),
            ]
        return found

    def _request(self, rid, blocks, block_tokens, prompt):
        tokens = self._tokens(rid, blocks, block_tokens, prompt)
        req = Req(str(rid), "", tokens, SamplingParams(max_new_tokens=1 << 20))
        self.blocks[rid] = (blocks, block_tokens)
        return req

    def _tokens(self, rid, blocks, block_tokens, length):
        known = [block * block_tokens + at for block in blocks for at in range(block_tokens)][:length]
        return array("q", known + [OWN + rid * CONTEXT + at for at in range(len(known), length)])

    def _own(self, rid, at):
        blocks, block_tokens = self.blocks[rid]
        if at < len(blocks) * block_tokens:
            return blocks[at // block_tokens] * block_tokens + at % block_tokens
        return OWN + rid * CONTEXT + at

    def _grow(self, req, start, end):
        """Allocate the rows [start, end), evicting as the scheduler does; a request that finds none must go."""
        if self.page == 1:
            evict_from_tree_cache(self.cache, end - start)
            found = self.allocator.alloc(end - start)
        else:
            evict_from_tree_cache(self.cache, end - start + self.page)
            row = self.rows.req_to_token[req.kv.req_pool_idx]
            before, after = torch.tensor([start]), torch.tensor([end])
            last = row[start - 1 : start].to(torch.int64) if start else torch.tensor([-1])
            found = self.allocator.alloc_extend(before, before, after, after, last, end - start)
        if found is None:
            self.drop(int(req.rid))
            return False
        self.rows.write((req.kv.req_pool_idx, slice(start, end)), found.to(torch.int32))
        req.kv.kv_committed_len = req.kv.kv_allocated_len = end
        return True


def play(case):
    """The answers of one case."""
    setup = case["setup"]
    parallel = SimpleNamespace(dcp_enabled=setup["dcp"] > 1)
    with (
        mock.patch.object(schedule_batch, "get_parallel", return_value=parallel),
        envs.SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK.override(setup["skip_decode_lock"]),
    ):
        engine = Engine(setup)
        return [[getattr(engine, name)(*args), *engine.counts()] for name, *args in case["ops"]]


if __name__ == "__main__":
    answer = sys.stdout
    sys.stdout = sys.stderr
    for one in json.load(sys.stdin):
        print(json.dumps(play(one)), file=answer, flush=True)
