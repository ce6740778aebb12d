"""torch's and Triton's compilers read the source of functions, which lies in the archive, minified and not."""

from pathlib import Path

import pytest

from tests.boot import bed

pytestmark = pytest.mark.timeout(300)

MODEL = '''
    """A model of the user's."""
    from typing import Optional

    import torch
    from torch import Tensor, nn


    def scaled(x: Tensor, times: int, shift: Optional[float] = None) -> Tensor:
        """Annotations decide what the script is compiled for."""
        total = torch.zeros_like(x)
        for i in range(times):  # a loop that a script keeps
            total = total + x * i
        if shift is not None:
            total = total + shift
        return total


    class Block(nn.Module):
        """With an annotated attribute."""
        width: int

        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width
            self.linear = nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            """A step."""
            if x.sum() > 0:
                return self.linear(x) * self.width
            return x


    @torch.library.custom_op("pack::twice", mutates_args=())
    def twice(x: Tensor, n: int) -> Tensor:
        """The schema comes from the annotations."""
        return x * 2 * n


    @twice.register_fake
    def _(x: Tensor, n: int) -> Tensor:
        return torch.empty_like(x)


    def backward(ctx, gradient):
        return gradient * 2 * ctx.n, None


    def setup(ctx, inputs, output):
        ctx.n = inputs[1]


    twice.register_autograd(backward, setup_context=setup)


    def step(x: Tensor, weight: Tensor) -> Tensor:
        """What inductor makes a kernel of."""
        y = torch.nn.functional.gelu(x @ weight)
        return twice(y, 3).sum() + (y ** 2).mean()
'''
KERNEL = '''
    import triton
    import triton.language as tl


    @triton.jit
    def helper(x):
        return x * 2  # called by the other one


    @triton.jit
    def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
        """A docstring of the kernel."""
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n  # the rest is nobody's
        tl.store(y_ptr + at, helper(tl.load(x_ptr + at, mask=mask)), mask=mask)
'''


@pytest.mark.long
def test_torch_compiles_what_is_bundled(tmp_path: Path) -> None:
    files: bed.Files = {
        "pack/__init__.py": "",
        "pack/model.py": MODEL,
        "app.py": """
            import warnings
            warnings.simplefilter("ignore")
            import torch
            from pack import model
            def main():
                torch.manual_seed(1)
                x = torch.randn(4, 8)
                script = torch.jit.script(model.scaled)
                print(torch.equal(script(x, 3, 0.5), model.scaled(x, 3, 0.5)), "Loop" in str(script.graph))
                block = model.Block(8)
                print(torch.equal(torch.jit.script(block)(x.abs()), block(x.abs())))
                print(torch.ops.pack.twice.default._schema)
                weight = torch.randn(8, 8, requires_grad=True)
                plain = model.step(x, weight)
                (gradient,) = torch.autograd.grad(plain, weight)
                eager = torch.compile(model.step, fullgraph=True, backend="aot_eager")
                found = eager(x, weight)
                print(torch.equal(found, plain), torch.equal(torch.autograd.grad(found, weight)[0], gradient))
                from torch._inductor import config
                config.compile_threads = 1  # the pool is asked below
                config.cpp.simdlen = 1  # else it tries out what the processor has
                config.cpp_cache_precompile_headers = False  # of use to the second kernel only
                with torch.no_grad():
                    print(torch.allclose(torch.compile(model.step, fullgraph=True)(x, weight), plain, rtol=1e-5))
                from torch._inductor.compile_worker.subproc_pool import SubprocPool
                pool = SubprocPool(1)
                print(pool.submit(sum, [1, 2]).result())
                pool.shutdown()
                print(type(model.__loader__).__name__)
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files, "app:main", minify=True)
    environment = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    expected = ["True True", "True", "pack::twice(Tensor x, SymInt n) -> Tensor"]
    expected += ["True True", "True", "3"]
    done = bed.run(built, environment=environment, timeout=280)
    assert bed.lines(done) == [*expected, "BundleLoader"]


def test_triton_finds_its_kernels(tmp_path: Path) -> None:
    """Their source, what they call, and as far as a compiler without a GPU goes."""
    pytest.importorskip("triton")
    files: bed.Files = {
        "pack/__init__.py": "",
        "pack/kernel.py": KERNEL,
        "app.py": """
            import ast, inspect
            from pack import kernel
            from triton.backends.compiler import GPUTarget
            from triton.compiler import ASTSource, compile
            def main():
                print(kernel.add.starting_line_number, "".join(kernel.add.raw_src) == inspect.getsource(kernel.add.fn))
                print(ast.get_docstring(kernel.add.parse().body[0]), "nobody" in kernel.add.src)
                source = ASTSource(kernel.add, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
                                   {"BLOCK": 128})
                made = compile(source, target=GPUTarget("cuda", 90, 32))
                print("tt.store" in made.asm["ttir"], "pack/kernel.py" in made.asm["ttir"], ".entry" in made.asm["ptx"])
        """,
    }
    built = bed.archive(tmp_path / "app.pyz", files, "app:main", minify=True)
    environment = {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    shown = bed.lines(bed.run(built, environment=environment, timeout=280))
    assert shown == ["11 True", "A docstring of the kernel. True", "True True True"]
