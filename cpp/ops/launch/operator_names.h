#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/operator_name.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace openreg::ops {

/// Whether an operator, "aten::sort.stable", is one of these of aten: names with spaces between,
/// each with its overload, or with '*' at the end for all that begin so.
bool names_operator(std::string_view names, std::string_view op);

/// The operator and the overload of a text such as "aten::sort.stable".
c10::OperatorName operator_name(std::string_view op);
/// Null if there is no such operator.
const c10::FunctionSchema* find_schema(const c10::OperatorName& name);

/// Keeps what is known of each operator, for one thread: finds it again in a few instructions, by
/// the address of the operator's name, which is static (Kernel::name()).
template <class T>
class ByOperator {
 public:
  /// `find(op)` makes it.
  template <class Find>
  const T& get(const char* op, const Find& find) {
    auto& [name, known] = recent_[reinterpret_cast<std::uintptr_t>(op) / 8 % recent_.size()];
    if (name != op) {
      auto found = all_.find(op);
      if (found == all_.end()) found = all_.emplace(op, find(op)).first;
      name = op;
      known = &found->second;
    }
    return *known;
  }

 private:
  std::array<std::pair<const char*, const T*>, 256> recent_{};
  std::unordered_map<const char*, T> all_;
};

}  // namespace openreg::ops
