"""Makes torchrun work with Debian's PyTorch, which is built without libuv.

Its torchrun asks for libuv whatever is set, in the agent and in its children. So this changes the default in every
process when `torch.distributed` has been imported. It replaces Debian's own sitecustomize, which does nothing here and
would be found first.
"""

import importlib.abc
import importlib.machinery
import sys
from typing import Any


class Loader(importlib.abc.Loader):
    """Runs the real loader, then changes the default of TCPStore."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def create_module(self, spec: Any) -> Any:
        return self.real.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.real.exec_module(module)
        store = module.TCPStore
        begin = store.__init__

        def without_libuv(self: Any, *arguments: Any, **named: Any) -> None:
            named["use_libuv"] = False
            begin(self, *arguments, **named)

        store.__init__ = without_libuv


class Finder(importlib.abc.MetaPathFinder):
    """Intercepts the first import of `torch.distributed`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch.distributed":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder())
