"""Text to samples: sources, tokenizing, prepared token files, packing, data order and the loader.

Nothing is imported here: `sources`, `tokenize` and `prepare` work without torch.
"""
