"""A user's own model and data, cut as the run file says, beside one process."""
