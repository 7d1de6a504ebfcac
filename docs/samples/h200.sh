#!/bin/bash
# Node 0 and node 1: RANK=0 and RANK=1. The card between the nodes is eth0.
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
sglang serve --model-path moonshotai/Kimi-K3 --trust-remote-code \
  --tp-size 16 --ep-size 16 --moe-runner-backend marlin \
  --nnodes 2 --node-rank $RANK --dist-init-addr 10.0.0.1:20000 \
  --enable-mamba-cache-stochastic-rounding \
  --max-running-requests 16 --max-mamba-cache-size 40
