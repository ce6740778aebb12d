"""What a run will need, as arithmetic without torch: memory, traffic, idle time. Every result is plain numbers."""
