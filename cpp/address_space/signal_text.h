#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace openreg {

/// A text that is built from async-signal-safe functions only. What does not fit is left out.
class SignalText {
 public:
  SignalText& text(const char* characters) noexcept {
    while (*characters != '\0') put(*characters++);
    return *this;
  }

  SignalText& number(std::uintptr_t value, unsigned base = 10) noexcept {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    while (count > 0) put(digits[--count]);
    return *this;
  }

  const char* c_str() const noexcept { return buffer_; }

  /// Writes the text as a line.
  void write_to_stderr() noexcept {
    buffer_[size_] = '\n';
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, buffer_, size_ + 1);  // nothing can be done if it fails
    buffer_[size_] = '\0';
  }

 private:
  void put(char character) noexcept {
    if (size_ + 1 >= sizeof buffer_) return;
    buffer_[size_++] = character;
    buffer_[size_] = '\0';
  }

  char buffer_[1024] = {};
  std::size_t size_ = 0;
};

}  // namespace openreg
