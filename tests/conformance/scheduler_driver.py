"""Runs inside the environment that holds the real SGLang: plays requests on its own scheduler, on the CPU.

    VENV/bin/python scheduler_driver.py FACTS/memory < cases.json > answers.jsonl

A case is {"setup": {...}, "requests": [[arrival, prompt, output, blocks], ...]}; its answer is the list of what
happened: [instant, what, request]. Real are: Scheduler.get_next_batch_to_run and all it calls to choose a batch
(PrefillAdder, SchedulePolicy, update_running_batch, the new-token ratio), ScheduleBatch.retract_decode, the memory
budgets, the radix cache, the pool and its allocator. Stand-ins: the event loops around it (as `event_loop_normal` and
`event_loop_overlap` have them, every forward a second long), the tensors of a batch, the model.
"""

import copy
import json
import logging
import sys
from types import MethodType, SimpleNamespace
from unittest import mock

logging.disable(logging.WARNING)

import radix_driver  # noqa: E402  (sets the stand-ins for optional packages up)
import torch  # noqa: E402
from sglang.srt.disaggregation.utils import DisaggregationMode  # noqa: E402
from sglang.srt.managers import scheduler as module  # noqa: E402
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch  # noqa: E402
from sglang.srt.managers.schedule_policy import PrefillAdder, SchedulePolicy  # noqa: E402
from sglang.srt.managers.scheduler import Scheduler  # noqa: E402
from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker  # noqa: E402
from sglang.srt.mem_cache.common import checkpoint_kv_cache, evict_from_tree_cache, release_kv_cache  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm  # noqa: E402

BLOCK = 16

BORROWED = (
    "get_next_batch_to_run",
    "get_new_batch_prefill",
    "_get_new_batch_prefill_raw",
    "get_num_allocatable_reqs",
    "update_running_batch",
    "stash_chunked_request",
    "_reqs_finishing_inflight",
    "_should_defer_prefill",
    "_arm_prefill_decode_interval",
)


class Batch(ScheduleBatch):
    """A batch of requests without tensors."""

    engine = None  # of the case that is played

    def __init__(self, reqs, batch_is_full=False):
        self.reqs = reqs
        self.batch_is_full = batch_is_full
        self.forward_mode = None
        self.chunked_req = None
        self.is_prefill_only = False
        self.return_logprob = False
        self.input_embeds = None
        self.decoding_reqs = None
        self.spec_algorithm = SpeculativeAlgorithm.NONE
        self.tree_cache = self.engine.cache
        self.token_to_kv_pool_allocator = self.engine.allocator
        self.req_to_token_pool = self.engine.rows
        self.hisparse_coordinator = None

    @classmethod
    def init_new(cls, reqs, *_, chunked_req=None, **__):
        batch = cls(list(reqs))
        batch.chunked_req = chunked_req
        return batch

    def prepare_for_extend(self):
        self.forward_mode = ForwardMode.EXTEND
        self.engine.extend(self.reqs)

    def prepare_for_decode(self):
        self.forward_mode = ForwardMode.DECODE
        self.engine.decode(self.reqs)

    def filter_batch(self, reqs_to_exclude=None, keep_indices=None):
        if keep_indices is None:
            gone = reqs_to_exclude or []
            keep_indices = [n for n, req in enumerate(self.reqs) if not req.finished() and req not in gone]
        self.reqs = [self.reqs[n] for n in keep_indices]

    def merge_batch(self, other):
        self.reqs = self.reqs + other.reqs

    def mix_with_running(self, running):
        self.forward_mode = ForwardMode.MIXED
        self.mixed = list(running.reqs)
        self.reqs = self.reqs + running.reqs

    def copy(self):
        batch = copy.copy(self)
        batch.reqs = list(self.reqs)
        return batch


class Engine(radix_driver.Engine):
    """The pools, and one scheduler's batches on them."""

    def extend(self, reqs):
        fresh = [req for req in reqs if not req.kv.holds_kv]
        prefixes = {req: self.cache.prefix_device_indices(req) for req in fresh if req.prefix_len}
        self.rows.alloc(list(reqs))
        for req, prefix in prefixes.items():
            self.rows.write((req.kv.req_pool_idx, slice(0, req.prefix_len)), prefix)
        tokens = sum(req.extend_len for req in reqs)
        evict_from_tree_cache(self.cache, tokens if self.page == 1 else tokens + len(reqs) * self.page)
        for req in reqs:
            req.is_retracted = False
            self._take(req, req.prefix_len, req.extend_end)

    def decode(self, reqs):
        evict_from_tree_cache(self.cache, len(reqs) * (1 if self.page == 1 else self.page))
        for req in reqs:
            self._take(req, req.kv.kv_committed_len, req.kv.kv_committed_len + 1)

    def _take(self, req, start, end):
        if self.page == 1:
            found = self.allocator.alloc(end - start)
        else:
            row = self.rows.req_to_token[req.kv.req_pool_idx]
            before, after = torch.tensor([start]), torch.tensor([end])
            last = row[start - 1 : start].to(torch.int64) if start else torch.tensor([-1])
            found = self.allocator.alloc_extend(before, before, after, after, last, end - start)
        if found is None:
            raise RuntimeError("out of memory")
        self.rows.write((req.kv.req_pool_idx, slice(start, end)), found.to(torch.int32))
        req.kv.kv_committed_len = req.kv.kv_allocated_len = end


class Loop:
    """The scheduler between its queue and its results. Instants are seconds."""

    def __init__(self, setup, requests):
        self.setup = setup
        self.engine = Batch.engine = Engine(setup)
        self.told = []
        self.now = 0.0
        self.coming = [(arrival, self._request(rid, *lengths)) for rid, (arrival, *lengths) in enumerate(requests)]
        self.scheduler = self._scheduler()

    def _request(self, rid, prompt, output, blocks):
        blocks = blocks[: -(-prompt // BLOCK)]
        tokens = self.engine._tokens(rid, blocks, BLOCK, prompt)
        self.engine.blocks[rid] = (blocks, BLOCK)
        params = SamplingParams(max_new_tokens=output, ignore_eos=self.setup["ignore_eos"])
        return Req(str(rid), "", tokens, params)

    def _scheduler(self):
        setup, engine = self.setup, self.engine
        nothing = SimpleNamespace()
        me = SimpleNamespace(
            process_pending_chunked_abort=lambda: None,
            _process_hicache_events=lambda: None,
            dllm_config=None,
            chunked_req=None,
            enable_hisparse=False,
            hisparse_coordinator=None,
            require_mlp_sync=False,
            spec_algorithm=SpeculativeAlgorithm.NONE,
            dp_attn_adapter=SimpleNamespace(
                maybe_prepare_mlp_sync_batch=lambda batch, need_sync=None: batch,
                maybe_convert_decode_to_extend=lambda batch: batch,
            ),
            ngram_embedding_manager=SimpleNamespace(prepare_for_forward=lambda batch, chunked_req: batch),
            _prefill_decode_interval_remaining=0,
            prefill_decode_interval=0,
            prefill_delayer=None,
            grammar_manager=SimpleNamespace(has_waiting_grammars=lambda: False),
            enable_priority_preemption=False,
            enable_priority_scheduling=False,
            is_hybrid_swa=False,
            waiting_queue=[],
            min_free_slots_delayer=None,
            policy=SchedulePolicy(setup["schedule_policy"], engine.cache, False, False, False),
            processed_tokens_counter=0,
            chunked_prefill_size=setup["chunk"],
            dynamic_chunk_sizer=None,
            tp_worker=SimpleNamespace(
                model_runner=SimpleNamespace(attn_backend=nothing, prefill_aware_swa=False),
            ),
            page_size=setup["page_size"],
            tree_cache=engine.cache,
            token_to_kv_pool_allocator=engine.allocator,
            req_to_token_pool=engine.rows,
            new_token_ratio_tracker=_ratio(setup["ratio"]),
            max_prefill_tokens=setup["max_prefill"],
            is_mixed_chunk=setup["mixed"],
            priority_scheduling_preemption_threshold=0,
            max_prefill_bs=0,
            max_running_requests=setup["requests"],
            enable_lora=False,
            enable_hicache_storage=False,
            enable_lmcache=False,
            enable_hierarchical_cache=False,
            enable_unified_cache_external_linker=False,
            truncation_align_size=None,
            model_config=nothing,
            enable_overlap=setup["overlap"],
            enable_skip_finishing_decode=setup["overlap"],
            load_inquirer=SimpleNamespace(_get_num_pending_tokens=lambda chunk_deduct: 0),
            beam_coordinator=SimpleNamespace(pending_member_rows=lambda batch: 0, retire_group=lambda req: None),
            disaggregation_mode=DisaggregationMode.NULL,
            decode_offload_manager=None,
            metrics_reporter=SimpleNamespace(num_retracted_reqs=0, enable_metrics=False),
            result_queue=[],
            forward_ct=0,
            scheduler_stage_metrics=None,
            device="cpu",
            get_prefill_adder_class=lambda: PrefillAdder,
            _add_request_to_queue=self._requeue,
            send_abort_output=lambda abort, req: self._tell("reject", req),
        )
        for name in BORROWED:
            setattr(me, name, MethodType(getattr(Scheduler, name), me))
        return me

    def _tell(self, what, req):
        self.told.append([self.now, what, int(req.rid)])

    def _requeue(self, req, is_retracted=False):
        self._tell("retract", req)
        self.scheduler.waiting_queue.append(req)

    def _ingest(self, idle):
        me = self.scheduler
        idle = idle and not me.waiting_queue
        if idle and self.coming:
            me.new_token_ratio_tracker.reset()  # as `on_idle` does
            self.now = max(self.now, self.coming[0][0])
        while self.coming and (self.coming[0][0] < self.now or (idle and self.coming[0][0] <= self.now)):
            me.waiting_queue.append(self.coming.pop(0)[1])

    def _next(self, running, last):
        waited = set(self.scheduler.waiting_queue)
        plan = self.scheduler.get_next_batch_to_run(running_batch=running, last_batch=last)
        batch = plan.batch_to_run
        for req in batch.reqs if batch is not None else ():
            if req in waited and req not in self.scheduler.waiting_queue:
                self._tell("admit", req)
        return batch, plan.running_batch

    def _land(self, batch, decoded):
        """The batch's results come; a request that has all its tokens goes."""
        for req in batch.reqs:
            if req.finished() or req.is_retracted:
                continue
            if req not in decoded:
                if req is batch.chunked_req:
                    req.inflight_middle_chunks -= 1
                    continue
                if len(req.output_ids) == 0:
                    self._tell("first", req)
            req.output_ids.append(self.engine._own(int(req.rid), len(req.origin_input_ids) + len(req.output_ids)))
            if len(req.output_ids) >= req.sampling_params.max_new_tokens:
                req.finished_reason = FINISH_LENGTH(length=len(req.output_ids))
                release_kv_cache(req, self.engine.cache, checkpoint=True)
                self._tell("finish", req)
            elif req not in decoded:
                checkpoint_kv_cache(req, self.engine.cache)

    def normal(self):
        """`event_loop_normal`."""
        running, last = Batch([]), None
        while self.coming or self.scheduler.waiting_queue or running.reqs or last:
            self._ingest(idle=last is None)
            batch, running = self._next(running, last)
            if batch:
                self.now += 1.0
                self._land(batch, _decoding(batch))
            elif last is None and not self.coming:
                break
            last = batch
        return self.told

    def overlapped(self):
        """`event_loop_overlap`."""
        running, last = Batch([]), None
        free = 0.0
        queue = self.scheduler.result_queue
        while self.coming or self.scheduler.waiting_queue or running.reqs or last:
            self._ingest(idle=last is None)
            batch, running = self._next(running, last)
            if batch:
                free = max(free, self.now) + 1.0
                queue.append((batch.copy(), free, _decoding(batch)))
            if last:
                done, self.now, decoded = queue.pop(0)
                self._land(done, decoded)
            elif batch is None and not self.coming:
                break
            last = batch
        return self.told


def _ratio(start):
    least = start * 0.14
    return NewTokenRatioTracker(init=start, min=least, decay=(start - least) / 600, current=start)


def _decoding(batch):
    if batch.forward_mode.is_decode():
        return set(batch.reqs)
    return set(batch.decoding_reqs or ())


def play(case):
    """What happened in one case."""
    setup = case["setup"]
    parallel = SimpleNamespace(dcp_enabled=False, pp_max_micro_batch_size=setup["requests"], pp_size=1)
    with (
        mock.patch.object(radix_driver.schedule_batch, "get_parallel", return_value=parallel),
        mock.patch.object(module, "get_parallel", return_value=parallel),
        mock.patch.object(module, "ScheduleBatch", Batch),
        mock.patch.object(module, "PrefillStats", SimpleNamespace(from_adder=lambda *_, **__: None)),
    ):
        loop = Loop(setup, case["requests"])
        return loop.overlapped() if setup["overlap"] else loop.normal()


if __name__ == "__main__":
    answer = sys.stdout
    sys.stdout = sys.stderr
    for one in json.load(sys.stdin):
        print(json.dumps(play(one)), file=answer, flush=True)
