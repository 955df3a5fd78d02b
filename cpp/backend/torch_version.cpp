// A backend is bound to the torch it was compiled against: it implements virtual functions and
// fills structures whose layout changes between releases. This file stops a build that would crash
// later.
#include <torch/headeronly/version.h>

#include <cstddef>  // for the standard library's own macros

static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13 && TORCH_VERSION_PATCH == 0,
              "torch_openreg is written for torch 2.13.0: pip install torch==2.13.0");

#if defined(USE_CUDA) || defined(USE_ROCM) || defined(USE_XPU) || defined(C10_MOBILE)
#error \
    "torch's headers change layouts by USE_CUDA, USE_ROCM, USE_XPU and C10_MOBILE: compile without them"
#endif

#if defined(_GLIBCXX_DEBUG) || (defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI == 0)
#error \
    "torch's wheels have the C++11 ABI: compile without _GLIBCXX_DEBUG and with _GLIBCXX_USE_CXX11_ABI=1"
#endif
