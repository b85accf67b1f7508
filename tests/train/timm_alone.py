"""timm, also where torchvision is not installed; None where timm is not."""

import importlib.abc
import importlib.machinery
import sys
import types


class Stub(types.ModuleType):
    """timm imports torchvision for image transforms, which no test here needs."""

    __path__ = []

    class Name(type):
        def __getattr__(cls, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub.Name(name, (), {})


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


def import_timm():
    try:
        import torchvision  # noqa: F401
    except ImportError:
        sys.meta_path.append(StubFinder())
    try:
        import timm
    except ImportError:
        return None
    return timm


timm = import_timm()
