#include "backend/clean_state.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <memory>
#include <semaphore>
#include <thread>

#include "../runtime/stream_helpers.h"
#include "backend/device.h"
#include "backend/stream.h"
#include "base/processor.h"

namespace openreg::backend {
namespace {

using namespace testing;

struct Levels final : at::functorch::FuncTorchTLSBase {
  std::unique_ptr<FuncTorchTLSBase> deepcopy() const override { return std::make_unique<Levels>(); }
  std::int64_t checkSupportsSingleLevelAutogradFunction() const override { return 0; }
  void checkSupportsCppAutogradFunction() const override {}
  void checkSupportsInplaceRequiresGrad() const override {}
  void checkSupportsRetainGrad() const override {}
};

// Every state that a program can enter on its thread from C++.
struct UsersState {
  UsersState() {
    auto& state = c10::AutogradState::get_tls_state();
    state.set_grad_mode(true);
    state.set_inference_mode(true);
    at::functorch::functorchTLSAccessor() = std::make_unique<Levels>();
    levels = at::functorch::functorchTLSAccessor().get();
    callback = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> {
          ++recorded;
          return nullptr;
        }));
    set_device(1);
    exchange_current_stream(stream_from_pool(1, Priority::kNormal));
    stream = &current_stream(1);
    set_flush_denormals(true);
    recorded = 0;
  }
  ~UsersState() {
    set_flush_denormals(false);
    exchange_current_stream(default_stream(1));
    set_device(0);
    at::removeCallback(callback);
    at::functorch::functorchTLSAccessor() = nullptr;
    c10::AutogradState::get_tls_state().set_inference_mode(false);
  }
  static void expect_clean() {
    const auto keys = c10::impl::tls_local_dispatch_key_set();
    EXPECT_EQ(keys.included_, c10::default_included_set);
    EXPECT_TRUE(keys.excluded_.has_all(c10::autograd_dispatch_keyset_with_ADInplaceOrView));
    EXPECT_TRUE(keys.excluded_.has_all(c10::autocast_dispatch_keyset));
    EXPECT_FALSE(keys.excluded_.has(c10::DispatchKey::CPU));
    const auto& state = c10::AutogradState::get_tls_state();
    EXPECT_FALSE(state.get_grad_mode());
    EXPECT_FALSE(state.get_inference_mode());
    EXPECT_EQ(at::functorch::functorchTLSAccessor(), nullptr);
    EXPECT_EQ(c10::ThreadLocalDebugInfo::current(), nullptr);
    EXPECT_EQ(current_device(), 0);
    EXPECT_EQ(&current_stream(1), &default_stream(1));
    RECORD_FUNCTION("inside", {});
    EXPECT_EQ(recorded, 0);
  }
  void expect_unchanged() const {
    const auto keys = c10::impl::tls_local_dispatch_key_set();
    EXPECT_TRUE(keys.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode));
    EXPECT_FALSE(keys.excluded_.has(c10::DispatchKey::AutocastCPU));
    EXPECT_FALSE(keys.excluded_.has(c10::DispatchKey::AutogradCPU));
    EXPECT_TRUE(c10::AutogradState::get_tls_state().get_grad_mode());
    EXPECT_TRUE(c10::AutogradState::get_tls_state().get_inference_mode());
    EXPECT_EQ(at::functorch::functorchTLSAccessor().get(), levels);
    EXPECT_NE(c10::ThreadLocalDebugInfo::current(), nullptr);
    EXPECT_EQ(current_device(), 1);
    EXPECT_EQ(&current_stream(), stream);
    EXPECT_TRUE(flush_denormals());
    RECORD_FUNCTION("outside", {});
    EXPECT_EQ(recorded, 1);
    recorded = 0;
  }

  c10::impl::ForceDispatchKeyGuard keys{
      c10::default_included_set |
          c10::DispatchKeySet(c10::DispatchKey::FuncTorchDynamicLayerFrontMode),
      c10::default_excluded_set - c10::DispatchKeySet(c10::DispatchKey::AutocastCPU)};
  c10::DebugInfoGuard debug_info{c10::DebugInfoKind::TEST_INFO,
                                 std::make_shared<c10::DebugInfoBase>()};
  at::functorch::FuncTorchTLSBase* levels = nullptr;
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  openreg::Stream* stream = nullptr;
  static inline thread_local int recorded = 0;
};

TEST(CleanStateTest, PutsTheUsersStateAsideAndBack) {
  const UsersState state;
  state.expect_unchanged();
  {
    const CleanState clean;
    UsersState::expect_clean();
  }
  state.expect_unchanged();
}

TEST(CleanStateTest, DoesNotLetThroughWhatACommandDoesToItsThread) {
  const UsersState state;
  {
    const CleanState clean;
    set_device(0);
    set_flush_denormals(false);
    c10::AutogradState::get_tls_state().set_grad_mode(false);
    c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Functionalize, true);
  }
  state.expect_unchanged();
}

TEST(CleanStateTest, Nests) {
  const UsersState state;
  {
    const CleanState outer;
    {
      const CleanState inner;
      UsersState::expect_clean();
    }
    UsersState::expect_clean();
  }
  state.expect_unchanged();
}

TEST(CleanStateTest, AWaitingHostRunsCommandsUnderIt) {
  auto& busy = stream_from_pool(0, Priority::kNormal);
  auto& stream = stream_from_pool(0, Priority::kNormal);
  const UsersState state;
  const auto host = std::this_thread::get_id();
  std::thread::id runner;
  {
    Blocker blocker(busy);  // the only engine is held here
    enqueue(stream, [&] {
      runner = std::this_thread::get_id();
      UsersState::expect_clean();
    });
    stream.synchronize();
  }
  EXPECT_EQ(runner, host);
  state.expect_unchanged();
}

TEST(CleanStateTest, EnginesRunCommandsUnderItWithOneThread) {
  auto& stream = stream_from_pool(0, Priority::kNormal);
  std::binary_semaphore done(0);
  const auto host = std::this_thread::get_id();
  std::thread::id runner;
  int threads = 0;
  enqueue(stream, [&] {  // no host waits for the stream, so an engine runs it
    UsersState::expect_clean();
    runner = std::this_thread::get_id();
    threads = at::get_num_threads();
    done.release();
  });
  done.acquire();
  stream.synchronize();
  EXPECT_NE(runner, host);
  EXPECT_EQ(threads, 1);
}

}  // namespace
}  // namespace openreg::backend
