"""Tensors without numbers ask torch._dynamo for settings and sympy for the kind of its expressions.

DTensor finds out the shape of each operator's result with them (`FakeTensorMode`), and the operators in Python that
this leads to look for expressions among numbers. The settings are asked of `no_compiler`; an expression can only be
there when sympy is, and `no_symbols` says so. A source is what torch._dynamo gives a tensor: there is none before.
Cost without: as in `disabled`, and 484 modules and 0.3 s of CPU time for sympy.
"""

from types import ModuleType

from trainer_boot.overlays import no_compiler, no_symbols
from trainer_boot.overlays.changes import Restore, all_of, exchange, renamed
from trainer_boot.overlays.known import need_function

INIT = {"3.11": "c18af3724badde0f", "3.12": "3dd6ad29c1df244b", "3.13": "dfa4cf7739fb52a2"}
DISPATCH = {"3.11": "4c11fc37ba80daab", "3.12": "f24e87d9de2c5ccf", "3.13": "7f62bc4b41664c33"}
CONVERT = {"3.11": "825557dc1ac659a4", "3.12": "9fd487b6e02c0840", "3.13": "3e56e2478af18fcc"}
DTYPES = {"3.11": "46241dc301176700", "3.12": "39de8c846467a5d0", "3.13": "69093d58ebc6366f"}
DENSE = {"3.11": "432cd5c32d5b6f7b", "3.12": "120a0615d5ed2d93", "3.13": "339582b05c43a0bd"}


def modes(module: ModuleType) -> Restore:
    """Of torch._subclasses.fake_tensor."""
    no_symbols.serve()
    init = need_function(module.FakeTensorMode, "__init__", INIT)
    dispatch = need_function(module.FakeTensorMode, "_dispatch_impl", DISPATCH)
    convert = need_function(module.FakeTensorConverter, "from_real_tensor", CONVERT)
    return all_of(
        [
            no_compiler.asked_by(init, {"torch._dynamo.config": "torch"}),
            no_compiler.asked_by(dispatch, {"sympy": no_symbols.ALIAS}),
            exchange(convert, renamed(convert.__code__, {"torch._dynamo.source": no_compiler.HERE})),
        ]
    )


def operators(module: ModuleType) -> Restore:
    """Of torch._prims_common."""
    no_symbols.serve()
    dtypes = need_function(module, "elementwise_dtypes", DTYPES)
    dense = need_function(module, "_is_non_overlapping_and_dense_or_false", DENSE)
    return all_of(
        [
            exchange(dtypes, renamed(dtypes.__code__, {"sympy": no_symbols.ALIAS})),
            exchange(dense, renamed(dense.__code__, {"torch.utils._sympy.functions": no_symbols.HERE})),
        ]
    )
