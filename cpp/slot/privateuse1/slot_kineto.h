#pragma once

#include <IActivityProfiler.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <utility>

// The slot in Kineto, the library behind torch.profiler.

namespace openreg::backend {

/// The category of a call into the runtime in traces.
inline constexpr auto kRuntimeActivity = libkineto::ActivityType::PRIVATEUSE1_RUNTIME;

/// Registers a function that makes a libkineto::IActivityProfiler.
template <class Factory>
void register_activity_profiler(Factory factory) {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      std::move(factory));
}

}  // namespace openreg::backend
