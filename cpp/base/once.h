#pragma once

namespace openreg {

/// `static const Once once(f);` calls f when control first passes, as std::call_once does, but
/// costs only a load afterwards. If f throws, the next pass calls it again.
class Once {
 public:
  template <class F>
  explicit Once(const F& f) {
    f();
  }
};

}  // namespace openreg
