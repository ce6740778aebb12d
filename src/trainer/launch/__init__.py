"""Who started this process, how ranks are started on this machine, and how they stop and fail. Only `comm` uses torch,
and only inside functions: the parent of the ranks starts in milliseconds."""
