#include "backend/allocation_label.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <memory>
#include <utility>

namespace openreg::backend {

namespace {
constinit thread_local std::uint32_t t_tag = 0;
}  // namespace

std::uint32_t set_allocation_tag(std::uint32_t tag) noexcept { return std::exchange(t_tag, tag); }

memory::Context allocation_label() {
  auto label = std::make_shared<AllocationLabel>();
  label->tag = t_tag;
  label->line = line_in_program();
  if (const auto node = torch::autograd::get_current_node()) {
    label->backward = true;
    label->node = node->sequence_nr();
    label->thread_of_node = node->thread_id();
  } else {
    label->backward = torch::autograd::get_current_graph_task_id() >= 0;  // a hook in C++
  }
  label->thread = at::RecordFunction::currentThreadId();
  label->next_node = at::sequence_number::peek();
  return label;
}

}  // namespace openreg::backend
