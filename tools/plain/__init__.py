"""More scripts with nothing of ours in them; they run in one folder with those of src/trainer/bench/plain."""
