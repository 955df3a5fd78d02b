#include "ops/launch.h"

#include "backend/exception.h"
#include "backend/stream.h"
#include "runtime/settings.h"

namespace openreg::ops {

void launch(const Kernel& kernel, ArgumentWriter& arguments, Tier tier) {
  const auto command = arguments.finish();
  backend::translate_errors([&] {
    auto& stream = backend::current_stream(arguments.device().index());
    stream.submit(kernel, command);
    if (settings().launch_blocking) stream.synchronize();
  });
  count_launch(tier);
}

void wait_for_device(c10::Device device) {
  count_host_wait();
  backend::translate_errors([&] { backend::current_stream(device.index()).synchronize(); });
}

}  // namespace openreg::ops
