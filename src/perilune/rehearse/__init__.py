"""How a planned deployment behaves under traffic: traces, step times, replicas, the fleet, one event loop, reports."""
