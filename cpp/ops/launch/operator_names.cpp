#include "ops/launch/operator_names.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "base/words.h"

namespace openreg::ops {

bool names_operator(std::string_view names, std::string_view op) {
  constexpr std::string_view kNamespace = "aten::";
  if (!op.starts_with(kNamespace)) return false;
  op.remove_prefix(kNamespace.size());
  return any_word(names, [op](std::string_view pattern) {
    return pattern.ends_with('*') ? op.starts_with(pattern.substr(0, pattern.size() - 1))
                                  : op == pattern;
  });
}

c10::OperatorName operator_name(std::string_view op) {
  const auto dot = op.find('.');
  if (dot == std::string_view::npos) return {std::string(op), ""};
  return {std::string(op.substr(0, dot)), std::string(op.substr(dot + 1))};
}

const c10::FunctionSchema* find_schema(const c10::OperatorName& name) {
  const auto handle = c10::Dispatcher::singleton().findSchema(name);
  return handle ? &handle->schema() : nullptr;
}

}  // namespace openreg::ops
