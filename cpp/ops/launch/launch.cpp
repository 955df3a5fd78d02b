#include "ops/launch/launch.h"

#include "backend/exception.h"
#include "backend/kernel_warnings.h"
#include "backend/stream.h"
#include "ops/launch/cost.h"
#include "ops/launch/memory_of_command.h"
#include "ops/launch/probe.h"
#include "ops/launch/sync_debug.h"
#include "runtime/capture.h"

namespace openreg::ops {

namespace {
constinit LaunchHook g_launch_hook = nullptr;
}

void set_launch_hook(LaunchHook hook) noexcept { g_launch_hook = hook; }

void launch(const OpKernel& kernel, ArgumentWriter& arguments, const CallPlan& plan,
            Counter& counted_as) {
  for (const auto& warning : plan.warnings) c10::warn(warning);
  if (plan.drops_warnings) arguments.drop_warnings();
  auto& stream = backend::current_stream(arguments.device().index());
  if (plan.waits) announce_host_wait(stream);
  const auto command = arguments.finish();
  const auto format =
      &counted_as == &backend::counters::boxed ? ValueFormat::kTagged : ValueFormat::kTyped;
  const auto memory = [&] {
    if (g_launch_hook != nullptr) g_launch_hook(kernel, command, arguments, format, stream);
    return memory_of_command(kernel.name(), command, arguments, format);
  };
  backend::submit(stream, kernel, command, memory,
                  {.counted_as = counted_as, .waits = plan.waits, .cost = plan.cost});
}

void launch(const OpKernel& kernel, ArgumentWriter& arguments, ArgumentSupport support) {
  const auto signature = arguments.signature(&kernel);
  auto plan = PlanCache::find(signature);
  if (!plan) {
    CallPlan made;
    made.cost = cost_of(kernel.name(), arguments);
    if (support == ArgumentSupport::kProbed) {
      const auto result = probe_kernel(kernel, arguments, SignatureLevel::kDtypes);
      made.waits = !result.passes || arguments.written_memory_overlaps();
      made.warnings = result.warnings;
      made.drops_warnings = result.warned;
    }
    plan = PlanCache::insert(signature, std::move(made));
  }
  launch(kernel, arguments, *plan);
}

namespace {

void wait_for(openreg::Stream& stream) {
  backend::translate_errors([&] { stream.synchronize(); });
  backend::KernelWarnings::emit_pending();
}

}  // namespace

void expect_may_wait(c10::Device device, const char* op) {
  if (!is_capturing()) return;
  backend::translate_errors([&] {
    expect_not_captured(backend::current_stream(device.index()), op);
    expect_safe_call(op);
  });
}

void wait_for_device(c10::Device device, const char* op) {
  expect_may_wait(device, op);
  auto& stream = backend::current_stream(device.index());
  announce_host_wait(stream);
  wait_for(stream);
}

void wait_for_device_again(c10::Device device) {
  wait_for(backend::current_stream(device.index()));
}

}  // namespace openreg::ops
