"""What may wait, by reason. Proven by tools/prove_hazards.py and tests/boot/lazy; chosen in docs/decisions/0011.

A module is named here if the proven flows import it and never use it. What only such modules import needs no mention:
it is not even looked for.
"""

# published builds of torch: version -> commit
BUILDS = {"2.15": "d0f2af8b66b20da4baa50644c0cd3f887a2eae2e"}

# kernels without numbers, decompositions and reference implementations, for tracing; graphs; operators on functions
TRACING = (
    "torch._custom_op",
    "torch._custom_ops",
    "torch._decomp",
    "torch._dispatch",
    "torch._export",
    "torch._higher_order_ops",
    "torch._higher_order_ops.invoke_subgraph",
    "torch._meta_registrations",
    "torch._precompile",
    "torch._prims",
    "torch._refs",
    "torch._subclasses",
    "torch._tensor_iterator",
    "torch.compiler.precompile",
    "torch.distributed._meta_registrations",
    "torch.export",
    "torch.func",
    "torch.fx",
    "torch.fx.experimental",
    "torch.fx.operator_schemas",
    "torch.fx.traceback",
)
# 160 modules of quantization, under their old names and their new ones
QUANTIZING = (
    "torch.ao",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.quantization",
)
# rooms that a program uses by name, if at all; torch.utils.data is none: a data set of one's own is the first to use it
ROOMS = (
    "torch.cpu",
    "torch.cuda.graph_annotations",
    "torch.cuda.tunable",
    "torch.distributions",
    "torch.hub",
    "torch.masked",
    "torch.profiler",
    "torch.sparse",
)
# kernels written in Python for accelerators
KERNELS = ("torch._native", "torchgen", "torchgen.model")

# imported by the bodies of the above; once torch is imported, they wait in their packages as well, for who names them
BROUGHT = (
    "torch._custom_op",
    "torch._custom_ops",
    "torch._decomp",
    "torch._dispatch",
    "torch._export",
    "torch._functorch._aot_autograd",
    "torch._functorch.batch_norm_replacement",
    "torch._functorch.eager_transforms",
    "torch._functorch.einops",
    "torch._functorch.functional_call",
    "torch._library.fake_profile",
    "torch._prims",
    "torch._prims_common.wrappers",
    "torch._refs",
    "torch._subclasses",
    "torch._tensor_iterator",
    "torch.compiler._precompile_types",
    "torch.cuda._graph_annotations",
    "torch.testing._internal",
    "torch.utils._content_store",
    "torch.utils._debug_mode",
    "torch.utils._dtype_abbrs",
    "torch.utils._inspect",
    "torch.utils._mode_utils",
    "torch.utils._stats",
    "torch.utils._thunk",
)
DEFERRED = frozenset((*TRACING, *QUANTIZING, *ROOMS, *KERNELS, *BROUGHT))

# functions of these that ask whether something is a fake tensor are answered without torch._subclasses
ANSWERED = ("torch._guards", "torch._tensor", "torch.nn.modules.module")

# needed while torch is imported, though their packages wait: they import nothing of them, and the packages' bodies do
# not change them
ALONE = frozenset(("torch.fx.experimental._constant_symnode", "torch.fx.experimental.sym_node"))

# where an accelerator is there, these kernels may be what computes
ON_ACCELERATORS = frozenset(KERNELS)

# Once torch is imported: who imports another module of torch than these has all bodies run before. A plain start has
# most of them already; half an import of one could not be taken up again by a body that imports it too; and what is new
# may look for what the bodies register.
ALLOWED = frozenset(
    (
        "torch.nested._internal",
        "torch.nested._internal.nested_int",
        "torch.nested._internal.nested_tensor",
        "torch.utils.serialization",
        "torch.utils.serialization.config",
    )
)

# a dictionary that each torch.library.Library holds on to: module and name
CACHE = ("torch.fx.operator_schemas", "_SCHEMA_TO_SIGNATURE_CACHE")
