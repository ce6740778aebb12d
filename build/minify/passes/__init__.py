"""The passes, in the order in which they run. Standard library only: other interpreters make bytecode with them."""

from build.minify.passes.base import Pass
from build.minify.passes.docstrings import Docstrings
from build.minify.passes.fillers import Fillers
from build.minify.passes.literals import Literals
from build.minify.passes.returns import Returns
from build.minify.passes.signatures import Signatures
from build.minify.passes.type_checking import TypeChecking

# Dead branches first: what is in them needs no other pass. Fillers last: the others leave some.
# All of these are the policy's, unless it says otherwise.
PASSES: dict[str, Pass] = {each.name: each for each in (TypeChecking(), Docstrings(), Literals(), Returns(), Fillers())}
ON_REQUEST: dict[str, Pass] = {each.name: each for each in (Signatures(),)}
"""Passes that run only over code that the policy names."""
