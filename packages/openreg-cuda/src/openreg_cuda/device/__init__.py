"""The device: torch_openreg's modules, which the build copies here, and its libraries, compiled for CUDA's slot."""

from ._build import VERSION as __version__

__all__ = ["__version__"]
