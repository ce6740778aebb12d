"""Start-up, measured beside hand-written scripts: what `trainer bench startup` and tools/bench_startup.py stand on."""
