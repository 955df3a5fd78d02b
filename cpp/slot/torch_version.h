// The torch that the backend is compiled against. Whatever differs between the versions that are
// supported is chosen by OPENREG_TORCH_AT_LEAST, so that a search for it finds all of it.
#pragma once

#include <torch/headeronly/version.h>

#include <cstddef>  // for the standard library's own macros

#define OPENREG_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||          \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// A backend implements virtual functions and fills structures whose layout changes between
// releases. These checks stop builds that would crash later; which versions are supported is
// checked by CMake.
static_assert(OPENREG_TORCH_AT_LEAST(2, 13), "torch_openreg is written for torch 2.13 and later");

#if defined(USE_CUDA) || defined(USE_ROCM) || defined(USE_XPU) || defined(C10_MOBILE)
#error \
    "torch's headers change layouts by USE_CUDA, USE_ROCM, USE_XPU and C10_MOBILE: compile without them"
#endif

#if defined(_GLIBCXX_DEBUG) || (defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0)
#error \
    "torch's wheels have the C++11 ABI: compile without _GLIBCXX_DEBUG and with _GLIBCXX_USE_CXX11_ABI=1"
#endif
