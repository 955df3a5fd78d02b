#include "runtime/faulty_command.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/mutex.h"
#include "base/round_up.h"
#include "runtime/process.h"
#include "runtime/run_slice.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace openreg {

namespace {

constexpr std::chrono::nanoseconds kDelaySlice = std::chrono::milliseconds(20);

// The arguments of a faulty command: this, the text of the error, the flips, and then the arguments
// of the command that it stands for, each part at a multiple of 16.
struct alignas(16) FaultyHeader {
  const Kernel* kernel;
  std::chrono::nanoseconds delay;
  std::size_t error_bytes;
  std::size_t flips;
  bool crashes;
};

void append_part(std::vector<std::byte>& bytes, const void* part, std::size_t count) {
  const auto begin = round_up(bytes.size(), alignof(FaultyHeader));
  bytes.resize(begin + count);
  if (count != 0) std::memcpy(bytes.data() + begin, part, count);
}

// Such arguments, taken apart.
class FaultyArguments {
 public:
  explicit FaultyArguments(std::span<const std::byte> arguments) noexcept {
    std::memcpy(&header_, arguments.data(), sizeof header_);
    error_ = arguments.subspan(round_up(sizeof header_, alignof(FaultyHeader)));
    flips_ = error_.subspan(round_up(header_.error_bytes, alignof(FaultyHeader)));
    rest_ = flips_.subspan(
        std::min(round_up(header_.flips * sizeof(CommandFault::BitFlip), alignof(FaultyHeader)),
                 flips_.size()));
  }

  const Kernel& kernel() const noexcept { return *header_.kernel; }
  std::span<const std::byte> rest() const noexcept { return rest_; }
  CommandFault fault() const {
    CommandFault fault{.delay = header_.delay, .crashes = header_.crashes};
    fault.error.assign(reinterpret_cast<const char*>(error_.data()), header_.error_bytes);
    fault.flips.resize(header_.flips);
    if (header_.flips != 0)
      std::memcpy(fault.flips.data(), flips_.data(), header_.flips * sizeof fault.flips[0]);
    return fault;
  }

 private:
  FaultyHeader header_{};
  std::span<const std::byte> error_;
  std::span<const std::byte> flips_;
  std::span<const std::byte> rest_;
};

void run_faulty(const Kernel&, std::span<const std::byte> arguments) {
  const FaultyArguments faulty(arguments);
  const auto fault = faulty.fault();
  if (!fault.error.empty()) {  // the command does not run
    if (const auto skip = faulty.kernel().traits().skip) skip(faulty.rest());
  }
  fault.run(faulty.kernel(), faulty.rest());
}

void skip_faulty(std::span<const std::byte> arguments) noexcept {
  const FaultyArguments faulty(arguments);
  if (const auto skip = faulty.kernel().traits().skip) skip(faulty.rest());
}

CommandSummary summarize_faulty(std::span<const std::byte> arguments) noexcept {
  const FaultyArguments faulty(arguments);
  return faulty.kernel().summary(faulty.rest());
}

void run_delay(const Kernel&, std::span<const std::byte> arguments) {
  CommandFault fault;
  std::memcpy(&fault.delay, arguments.data(), sizeof fault.delay);
  fault.apply_around([] {});
}

const Kernel kDelayKernel{"openreg::delay", &run_delay};

class FaultyKernel final : public Kernel {
 public:
  explicit FaultyKernel(const Kernel& kernel)
      : Kernel(StandsFor{kernel}, &run_faulty,
               {.engine = kernel.traits().engine,
                .may_block = kernel.traits().may_block,
                .skip = &skip_faulty,
                .summarize = &summarize_faulty}) {}

  // Made once, because kernels live as long as the process.
  static const FaultyKernel& of(const Kernel& kernel) {
    static Mutex& mutex = *new Mutex;
    static auto& made = *new std::map<const Kernel*, std::unique_ptr<const FaultyKernel>>;
    const LockGuard lock(mutex);
    auto& faulty = made[&kernel];
    if (!faulty) faulty = std::make_unique<const FaultyKernel>(kernel);
    return *faulty;
  }
};

}  // namespace

// Sleeps, so that it takes no core from other work; in slices, because process exit does not wait
// for the rest.
void CommandFault::apply_around(const std::function<void()>& run) const {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + delay;
  for (auto left = delay; left.count() > 0 && !is_shut_down(); left = end - Clock::now())
    std::this_thread::sleep_for(std::min(left, kDelaySlice));
  if (!error.empty()) throw InjectedError("openreg: " + error);
  run();
  for (const auto& [address, bit] : flips) *address ^= bit;
}

void CommandFault::run(const Kernel& kernel, std::span<const std::byte> arguments) const {
  apply_around([&] { run_command(kernel, arguments, crashes); });
}

void enqueue_delay(Stream& stream, std::chrono::nanoseconds delay) {
  stream.enqueue(kDelayKernel, std::as_bytes(std::span(&delay, 1)));
}

void with_faulty_command(
    const Kernel& kernel, std::span<const std::byte> arguments, const CommandFault& fault,
    const std::function<void(const Kernel&, std::span<const std::byte>)>& enqueue) {
  const FaultyHeader header{&kernel, fault.delay, fault.error.size(), fault.flips.size(),
                            fault.crashes};
  std::vector<std::byte> bytes;
  append_part(bytes, &header, sizeof header);
  append_part(bytes, fault.error.data(), fault.error.size());
  append_part(bytes, fault.flips.data(), fault.flips.size() * sizeof(CommandFault::BitFlip));
  append_part(bytes, arguments.data(), arguments.size());
  enqueue(FaultyKernel::of(kernel), bytes);
}

}  // namespace openreg
