#pragma once

/// Marks a function of independent loops: it is compiled once for each width of vectors, and the
/// machine's version is chosen when the library is loaded. Has no effect with the thread sanitizer,
/// which is not yet initialised at that time, with Clang, and on processors other than x86-64.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define OPENREG_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#else
#define OPENREG_VECTOR_CLONES
#endif
