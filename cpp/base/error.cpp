#include "base/error.h"

#include <atomic>
#include <string_view>

namespace openreg {

namespace {
constinit std::atomic<std::string (*)(const std::exception_ptr&)> g_message{nullptr};
}

void set_exception_message(std::string (*message)(const std::exception_ptr& error)) noexcept {
  g_message.store(message, std::memory_order_relaxed);
}

std::string describe(const std::exception_ptr& error) {
  if (const auto message = g_message.load(std::memory_order_relaxed)) return message(error);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::string describe_cause(const std::exception_ptr& error) {
  constexpr std::string_view kPrefix = "openreg: ";
  auto text = describe(error);
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : text;
}

}  // namespace openreg
