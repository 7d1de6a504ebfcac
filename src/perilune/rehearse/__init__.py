"""How a planned deployment behaves under traffic: traces, step times, replicas, the fleet, one event loop, reports.

A module or folder imports only from those above it:

- `request`, `ticks`, `events`, `costs`, `acceptance`, `vision`, `booting`: values, the queue of events, and what is
  asked of step times
- `radix`: the prefix cache of one attention-DP rank over both pools; `hicache` puts the host's tiers behind it
- `engine`, `live`, `timing`, `traces`: a planned server's limits, a request on its way, seconds of a step, requests
- `outcome`, `histogram`, `series`, `tally`, `images`, `offered`: what a run adds up to, and what it is given
- `run`: what the parts of a fleet share
- `replica`: one server's scheduler
- `summed`, `simulate`: a run put together as an outcome, the event loop
- `fleet`: routers, prefill and decode pairs, encoders, failures
- `report`: an outcome for people and programs
- `perform`: one rehearsal from end to end
- `calibration`, `sweep`: many of them, held against measurements or over a grid
- `search`: the cheapest shape that a grid finds
"""
