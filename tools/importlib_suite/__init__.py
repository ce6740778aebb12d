"""What prove_importlib.py runs in each Python: its own tests, with the fixtures in archives of ours."""
