"""Makes modules shorter without changing what they do.

`minify` takes a tree and gives a tree. Each module goes through an ordered list of passes (`passes/`) over its syntax
tree and is then printed; what comes out is parsed again and compared with what the passes promise, and refused if it
differs. The names of the passes travel with the file, so that bytecode can be made from the original text and the same
passes, with the original's line numbers, in any interpreter: `transform`. For its sake the printer, which is not of the
standard library, is imported only where it prints.
"""

from build.minify.policy import Policy, read_policy
from build.minify.report import Report
from build.minify.stage import minify

__all__ = ["Policy", "Report", "minify", "read_policy"]
