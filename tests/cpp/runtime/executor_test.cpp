// Devices whose kernels run in a process of their own. This program is both: the executor is
// started as `<this program> --executor <number of the program>`.

#include "executor/executor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "../needs_engines.h"
#include "../not_emulated.h"
#include "address_space/address_space.h"
#include "base/counters.h"
#include "base/error.h"
#include "executor/supervisor.h"
#include "graph_helpers.h"
#include "limit.h"
#include "runtime/callbacks.h"
#include "runtime/device_health.h"
#include "runtime/event.h"
#include "runtime/faulty_command.h"
#include "runtime/graph_exec.h"
#include "runtime/process.h"
#include "runtime/remote_runner.h"
#include "runtime/stream_impl.h"
#include "runtime/trace.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace std::chrono_literals;
using namespace testing;

// --- Kernels, which both processes have ---

enum class Action : std::int32_t {
  kWriteProcess,  // the number of the process that runs it
  kAdd,           // `value`
  kAppend,        // the digit `value`
  kSum,           // of the bytes that follow
  kThrow,
  kSegfault,
  kAbort,
  kExit,
  kStop,
  kSleep,  // `value` milliseconds; writes 1 before that
};

struct Arguments {
  Action action;
  std::int32_t value;
  void* memory;
};

// An address at which nothing is; the compiler does not know it.
volatile std::uintptr_t g_nowhere = 16;

void act(const Kernel&, std::span<const std::byte> bytes) {
  Arguments arguments{};
  std::memcpy(&arguments, bytes.data(), sizeof arguments);
  auto* const to = static_cast<std::int64_t*>(AddressSpace::get().aperture(arguments.memory));
  switch (arguments.action) {
    case Action::kWriteProcess:
      *to = getpid();
      break;
    case Action::kAdd:
      *to += arguments.value;
      break;
    case Action::kAppend:
      *to = 10 * *to + arguments.value;
      break;
    case Action::kSum:
      *to = 0;
      for (const auto byte : bytes.subspan(sizeof arguments)) *to += static_cast<int>(byte);
      break;
    case Action::kThrow:
      throw std::runtime_error("index 7 is out of bounds");
    case Action::kSegfault:
      *reinterpret_cast<volatile char*>(g_nowhere) = 1;
      break;
    case Action::kAbort:
      std::abort();
    case Action::kExit:
      std::exit(3);
    case Action::kStop:
      raise(SIGSTOP);
      break;
    case Action::kSleep:
      if (arguments.memory) *to = 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(arguments.value));
      break;
  }
}

const Kernel kAct{"test_act", &act, {.in_executor = true}};
const Kernel kOther{"test_other", &act, {.in_executor = true}};
const Kernel kActHere{"test_act_here", &act};
const Kernel kSummarized{
    "test_summarized",
    &act,
    {.in_executor = true, .summarize = [](std::span<const std::byte> bytes) noexcept {
       Arguments arguments{};
       std::memcpy(&arguments, bytes.data(), sizeof arguments);
       return CommandSummary{.kind = CommandSummary::Kind::kFill,
                             .bytes = static_cast<std::uint64_t>(arguments.value)};
     }}};

void enqueue(Stream& stream, Action action, void* memory = nullptr, std::int32_t value = 0,
             std::span<const std::byte> more = {}, const Kernel& kernel = kAct) {
  const Arguments arguments{action, value, memory};
  std::vector<std::byte> bytes(sizeof arguments);
  std::memcpy(bytes.data(), &arguments, sizeof arguments);
  bytes.insert(bytes.end(), more.begin(), more.end());
  stream.enqueue(kernel, bytes);
}

// Some memory of a device.
class Memory {
 public:
  explicit Memory(int device = 0, std::size_t bytes = 8)
      : bytes_(bytes), memory_(AddressSpace::get().map(device, bytes)) {}
  ~Memory() { AddressSpace::get().unmap(memory_, AddressSpace::kGranularity); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* get() const { return memory_; }
  std::int64_t& value() const {
    return *static_cast<std::int64_t*>(AddressSpace::get().aperture(memory_));
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

pid_t process_of(int device) { return RemoteRunner::of(device)->process().value_or(0); }

// Without a process the number is 0, and the signal would reach this one and its group.
void send_to_process_of(int device, int signal) {
  const pid_t process = process_of(device);
  ASSERT_GT(process, 0);
  kill(process, signal);
}

struct ProcessStatus {
  char state = 'X';  // ended
  pid_t parent = 0;
};

ProcessStatus status_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name;
  ProcessStatus status;
  file >> number >> name >> status.state >> status.parent;
  return status;
}

bool exists(pid_t process) {
  const char state = status_of(process).state;
  return state != 'Z' && state != 'X';
}

bool is_stopped(pid_t process) { return status_of(process).state == 'T'; }

// A command that lasts. Returns when it has begun.
void begin_to_sleep(Stream& stream) {
  const Memory begun(stream.device());
  begun.value() = 0;
  enqueue(stream, Action::kSleep, begun.get(), 100'000);
  EXPECT_TRUE(happens([&] { return begun.value() == 1; }));
}

class ExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override { OPENREG_NOT_EMULATED("starts a second program"); }
  void TearDown() override {
    for (int device = 0; device < 2; ++device) reset_health(device);
  }
};

TEST_F(ExecutorTest, RunsKernelsInAProcessOfTheDevice) {
  const std::array memory{std::make_unique<Memory>(0), std::make_unique<Memory>(1)};
  for (int device = 0; device < 2; ++device) {
    auto& stream = default_stream(device);
    enqueue(stream, Action::kWriteProcess, memory[device]->get());
    stream.synchronize();
    EXPECT_NE(memory[device]->value(), getpid());
    EXPECT_EQ(memory[device]->value(), process_of(device));
  }
  EXPECT_NE(process_of(0), process_of(1));
}

TEST_F(ExecutorTest, OtherCommandsRunInTheProgram) {
  const Memory memory;
  enqueue(default_stream(0), Action::kWriteProcess, memory.get(), 0, {}, kActHere);
  synchronize_device(0);
  EXPECT_EQ(memory.value(), getpid());
}

TEST_F(ExecutorTest, CommandsRunInOrderAndSeeWhatTheHostWrote) {
  const Memory memory;
  memory.value() = 5;
  for (int i = 0; i < 1000; ++i) enqueue(default_stream(0), Action::kAdd, memory.get(), 1);
  synchronize_device(0);
  EXPECT_EQ(memory.value(), 1005);
}

TEST_F(ExecutorTest, FollowsWhatIsMappedAndUnmapped) {
  auto& space = AddressSpace::get();
  for (int i = 0; i < 300; ++i) {
    void* const memory = space.map(0, 2 * AddressSpace::kGranularity);
    const auto second = static_cast<std::byte*>(memory) + AddressSpace::kGranularity;
    for (void* const part : {memory, static_cast<void*>(second)}) {
      enqueue(default_stream(0), Action::kAdd, part, i);
      synchronize_device(0);
      ASSERT_EQ(*static_cast<std::int64_t*>(space.aperture(part)), i) << "old contents";
    }
    space.unmap(second, AddressSpace::kGranularity);
    space.unmap(memory, AddressSpace::kGranularity);
  }
}

TEST_F(ExecutorTest, LongCommandsArriveWhole) {
  const Memory memory;
  for (const std::size_t bytes : {std::size_t{1} << 10, (std::size_t{64} << 10) - 16,
                                  std::size_t{64} << 10, std::size_t{3} << 20}) {
    const std::vector<std::byte> more(bytes, std::byte{3});
    enqueue(default_stream(0), Action::kSum, memory.get(), 0, more);
    synchronize_device(0);
    EXPECT_EQ(memory.value(), 3 * static_cast<std::int64_t>(bytes));
  }
}

TEST_F(ExecutorTest, ErrorsOfKernelsComeBack) {
  auto& stream = default_stream(0);
  enqueue(stream, Action::kThrow);
  const auto error = error_of([&] { stream.synchronize(); });
  EXPECT_PRED2(contains, error, "test_act failed on openreg:0, stream 0: index 7 is out of bounds");
  EXPECT_EQ(health_of(0), Health::kHealthy);
  const Memory memory;
  enqueue(stream, Action::kAdd, memory.get(), 2);
  stream.synchronize();
  EXPECT_EQ(memory.value(), 2);
}

TEST_F(ExecutorTest, AKernelThatTheProcessLacksRunsInTheProgram) {
  // Made after the process has been started, and nothing says how the process can make it.
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  static const Kernel late("test_late", &act, {.in_executor = true});
  const Memory memory;
  for (int i = 0; i < 2; ++i) {
    enqueue(default_stream(0), Action::kWriteProcess, memory.get(), 0, {}, late);
    synchronize_device(0);
    EXPECT_EQ(memory.value(), getpid());
  }
}

TEST_F(ExecutorTest, RunsGraphs) {
  const Memory memory;
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 1; i <= 10; ++i) enqueue(*stream, Action::kAdd, memory.get(), i);
    enqueue(*stream, Action::kAdd, memory.get(), 1, {}, kActHere);
  }));
  for (int run = 1; run <= 3; ++run) {
    exec->enqueue(*stream);
    stream->synchronize();
    EXPECT_EQ(memory.value(), run * 56);
  }
}

TEST_F(ExecutorTest, AFailureInAGraphNamesItsNodeAndSkipsTheRest) {
  const Memory memory;
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 0; i < 3; ++i) enqueue(*stream, Action::kAdd, memory.get(), 1);
    enqueue(*stream, Action::kThrow, nullptr, 0, {}, kOther);
    for (int i = 0; i < 3; ++i) enqueue(*stream, Action::kAdd, memory.get(), 1);
  }));
  for (int run = 1; run <= 3; ++run) {
    exec->enqueue(*stream);
    const auto error = error_of([&] { stream->synchronize(); });
    EXPECT_PRED2(begins_with, error, "openreg: test_other failed on openreg:0");
    EXPECT_EQ(memory.value(), 3 * run);
  }
}

TEST_F(ExecutorTest, ACrashInAGraphNamesItsNode) {
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 0; i < 3; ++i) enqueue(*stream, Action::kSleep);
    enqueue(*stream, Action::kAbort, nullptr, 0, {}, kOther);
    enqueue(*stream, Action::kSleep);
  }));
  exec->enqueue(*stream);
  const auto error = error_of([&] { stream->synchronize(); });
  EXPECT_PRED2(contains, error, "was killed by SIGABRT while running test_other");
  EXPECT_THROW(exec->enqueue(*stream), DeviceError);
}

TEST_F(ExecutorTest, AGraphRunsInTheNextProcessToo) {
  const Memory memory;
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 0; i < 200; ++i) enqueue(*stream, Action::kAdd, memory.get(), 1);
  }));
  for (int run = 1; run <= 3; ++run) {
    exec->enqueue(*stream);
    stream->synchronize();
    EXPECT_EQ(memory.value(), 200 * run);
    reset_health(0);
  }
}

TEST_F(ExecutorTest, AGraphWithAKernelOfTheProgramRuns) {
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  static const Kernel late("test_late_node", &act, {.in_executor = true});
  const Memory memory;
  const Memory where;
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (int i = 0; i < 3; ++i) enqueue(*stream, Action::kAdd, memory.get(), 1);
    enqueue(*stream, Action::kWriteProcess, where.get(), 0, {}, late);
    for (int i = 0; i < 3; ++i) enqueue(*stream, Action::kAdd, memory.get(), 1);
  }));
  for (int run = 1; run <= 2; ++run) {
    exec->enqueue(*stream);
    stream->synchronize();
    EXPECT_EQ(memory.value(), 6 * run);
    EXPECT_EQ(where.value(), getpid());
  }
}

std::atomic<bool> g_open;

const Kernel kGate{"test_gate",
                   [](const Kernel&, std::span<const std::byte>) { g_open.wait(false); },
                   {.may_block = true}};

// Queues commands while the stream waits, so that the executor gets them together, and waits for
// them. Returns how many requests it got.
std::uint64_t requests_of(Stream& stream, const std::function<void()>& commands,
                          const std::function<void()>& wait) {
  const auto before = counters::requests.value();
  g_open = false;
  const OwnStream other;
  other->enqueue(kGate, {});
  Event event;
  event.record(*other);
  event.wait(stream);
  commands();
  g_open = true;
  g_open.notify_all();
  wait();
  return counters::requests.value() - before;
}

std::uint64_t requests_of(Stream& stream, const std::function<void()>& commands) {
  return requests_of(stream, commands, [&] { stream.synchronize(); });
}

// An adversary chooses among single commands.
void expect_requests(std::uint64_t requests, std::uint64_t expected) {
  if (schedule() == Schedule{}) {
    EXPECT_EQ(requests, expected);
  } else {
    EXPECT_GE(requests, expected);
  }
}

TEST_F(ExecutorTest, CommandsThatAreQueuedRunInOrder) {
  const Memory memory;
  const OwnStream stream;
  const auto exec = GraphExec::make(captured(*stream, [&] {
    for (const int digit : {7, 8}) enqueue(*stream, Action::kAppend, memory.get(), digit);
  }));
  for (int run = 0; run < 3; ++run) {  // known nodes too
    memory.value() = 0;
    const auto requests = requests_of(*stream, [&] {
      enqueue(*stream, Action::kAppend, memory.get(), 1);
      enqueue(*stream, Action::kAppend, memory.get(), 2);
      enqueue(*stream, Action::kAppend, memory.get(), 3, {}, kActHere);
      for (int i = 0; i < 2; ++i) exec->enqueue(*stream);
      enqueue(*stream, Action::kAppend, memory.get(), 4, {}, kOther);
      exec->enqueue(*stream);
      const Arguments arguments{Action::kAppend, 5, memory.get()};
      stream->enqueue(kAct, std::as_bytes(std::span(&arguments, 1)), {.nanoseconds = Cost::kLong});
      enqueue(*stream, Action::kAppend, memory.get(), 6);
    });
    EXPECT_EQ(memory.value(), 123'787'847'856);
    expect_requests(requests, 4U);  // the program's and the long command divide them
  }
}

TEST_F(ExecutorTest, MoreCommandsThanOneMessageHoldsRunInOrder) {
  const Memory memory;
  const OwnStream stream;
  const std::vector<std::byte> more(1500);  // these are not next to their record, and need pieces
  const auto requests = requests_of(*stream, [&] {
    for (int i = 1; i <= 900; ++i) {
      enqueue(*stream, Action::kAdd, memory.get(), i, i % 2 == 0 ? more : std::vector<std::byte>());
    }
  });
  EXPECT_EQ(memory.value(), 900 * 901 / 2);
  expect_requests(requests, 900 / 64 + 1U);
}

TEST_F(ExecutorTest, AFailureOfAQueuedCommandNamesItAndSkipsTheRest) {
  const Memory memory;
  const OwnStream stream;
  for (int run = 0; run < 2; ++run) {
    memory.value() = 0;
    std::string error;
    const auto requests = requests_of(
        *stream,
        [&] {
          for (const int digit : {1, 2}) enqueue(*stream, Action::kAppend, memory.get(), digit);
          enqueue(*stream, Action::kThrow, nullptr, 0, {}, kOther);
          for (const int digit : {3, 4}) enqueue(*stream, Action::kAppend, memory.get(), digit);
        },
        [&] { error = error_of([&] { stream->synchronize(); }); });
    EXPECT_PRED2(begins_with, error, "openreg: test_other failed on openreg:0");
    EXPECT_EQ(memory.value(), 12);
    expect_requests(requests, 1U);
  }
}

TEST_F(ExecutorTest, ACrashOfAQueuedCommandNamesIt) {
  const Memory memory;
  const OwnStream stream;
  std::string error;
  const auto requests = requests_of(
      *stream,
      [&] {
        for (const int digit : {1, 2}) enqueue(*stream, Action::kAppend, memory.get(), digit);
        enqueue(*stream, Action::kAbort, nullptr, 0, {}, kOther);
        enqueue(*stream, Action::kAppend, memory.get(), 3);
      },
      [&] { error = error_of([&] { stream->synchronize(); }); });
  expect_requests(requests, 1U);
  EXPECT_PRED2(begins_with, error, "openreg: test_other failed on openreg:0");
  EXPECT_PRED2(contains, error, "was killed by SIGABRT while running test_other");
  EXPECT_EQ(memory.value(), 12);
}

TEST_F(ExecutorTest, AQueuedCommandWhoseKernelTheProcessLacksRunsInTheProgram) {
  const Memory memory;
  const Memory where;
  const OwnStream stream;
  enqueue(*stream, Action::kSleep);
  stream->synchronize();
  static const Kernel late("test_late_command", &act, {.in_executor = true});
  const auto requests = requests_of(*stream, [&] {
    for (const int digit : {1, 2}) enqueue(*stream, Action::kAppend, memory.get(), digit);
    enqueue(*stream, Action::kWriteProcess, where.get(), 0, {}, late);
    for (const int digit : {3, 4}) enqueue(*stream, Action::kAppend, memory.get(), digit);
  });
  expect_requests(requests, 2U);  // before and behind it
  EXPECT_EQ(memory.value(), 1234);
  EXPECT_EQ(where.value(), getpid());
}

TEST_F(ExecutorTest, QueuedCommandsThatTakeLongAreHandedOverTogether) {
  OPENREG_NEEDS_ENGINES("an adversary stays with the command that it has chosen");
  const Memory memory;
  const Memory begun;
  const OwnStream stream;
  const OwnStream other;
  const auto requests = requests_of(
      *stream,
      [&] {
        enqueue(*stream, Action::kAppend, memory.get(), 1);
        enqueue(*stream, Action::kSleep, begun.get(), 400);
        enqueue(*stream, Action::kAppend, memory.get(), 2);
      },
      [&] {
        // Engines are free: this waits for nothing, and nobody helps.
        EXPECT_TRUE(happens([&] { return begun.value() == 1; }));
        other->enqueue(kGate, {});
        EXPECT_TRUE(happens([&] { return other->idle(); }));
        EXPECT_EQ(memory.value(), 1);
        stream->synchronize();
      });
  expect_requests(requests, 1U);
  EXPECT_EQ(memory.value(), 12);
}

TEST_F(ExecutorTest, AnAwaitedCommandIsTheLastOfItsRequest) {
  const Memory memory;
  const OwnStream stream;
  std::thread waiter;
  const Arguments fails{Action::kThrow, 0, nullptr};
  std::string error;
  const auto requests = requests_of(
      *stream,
      [&] {
        for (const int digit : {1, 2}) enqueue(*stream, Action::kAppend, memory.get(), digit);
        const auto published = StreamImpl::of(*stream).queue.published();
        waiter = std::thread([&] {
          error = error_of(
              [&] { stream->enqueue_and_wait(kAct, std::as_bytes(std::span(&fails, 1))); });
        });
        EXPECT_TRUE(
            happens([&] { return StreamImpl::of(*stream).queue.published() == published + 1; }));
        enqueue(*stream, Action::kAppend, memory.get(), 3);
      },
      [&] {
        waiter.join();
        stream->synchronize();
      });
  EXPECT_EQ(error, "index 7 is out of bounds");  // it is the caller's, and later commands run
  EXPECT_EQ(memory.value(), 123);
  expect_requests(requests, 2U);
}

TEST_F(ExecutorTest, KilledAmongQueuedCommandsFailsTheOneThatRuns) {
  const Memory memory;
  const Memory begun;
  const OwnStream stream;
  std::string error;
  requests_of(
      *stream,
      [&] {
        enqueue(*stream, Action::kAppend, memory.get(), 1);
        enqueue(*stream, Action::kSleep, begun.get(), 100'000, {}, kOther);
        enqueue(*stream, Action::kAppend, memory.get(), 2);
      },
      [&] {
        EXPECT_TRUE(happens([&] { return begun.value() == 1; }));
        send_to_process_of(0, SIGKILL);
        error = error_of([&] { stream->synchronize(); });
      });
  EXPECT_PRED2(begins_with, error, "openreg: test_other failed on openreg:0");
  EXPECT_PRED2(contains, error, "was killed by SIGKILL while running test_other");
  EXPECT_EQ(memory.value(), 1);
}

TEST_F(ExecutorTest, ATracedGraphMayGoWhileItsLastNodeRuns) {
  const Memory memory;
  const OwnStream stream;
  tracing::start(10'000);
  for (int i = 0; i < 20; ++i) {
    const auto add = [&] { enqueue(*stream, Action::kAdd, memory.get(), 7, {}, kSummarized); };
    GraphExec::make(captured(*stream, add))->enqueue(*stream);
  }
  stream->synchronize();
  const Trace trace = tracing::stop();
  EXPECT_EQ(memory.value(), 20 * 7);
  EXPECT_EQ(std::ranges::count_if(trace.slices,
                                  [](const TraceSlice& slice) {
                                    return slice.what == TraceSlice::What::kCommand &&
                                           slice.summary.bytes == 7;
                                  }),
            20);
}

TEST(ExecutorBatch, TakesALongCommandAlone) {
  const Command command{&kAct, {}, 0};
  const Cost is_long{.nanoseconds = Cost::kLong};
  const Cost reproducible{.nanoseconds = 1, .reproducible = true};
  for (const Cost alone : {is_long, reproducible}) {
    Executor::Batch first;
    EXPECT_TRUE(first.add(command, alone));
    EXPECT_FALSE(first.add(command, {}));
    Executor::Batch second;
    EXPECT_TRUE(second.add(command, {}));
    EXPECT_FALSE(second.add(command, alone));
    EXPECT_TRUE(second.add(command, {}));
  }
}

TEST(ExecutorBatch, EndsAfterAboutAMillisecondAndAfterACertainNumber) {
  const Command command{&kAct, {}, 0};
  Executor::Batch costly;
  while (costly.add(command, {.nanoseconds = Cost::kLong / 10})) {
  }
  EXPECT_EQ(costly.commands().size(), 10U);
  Executor::Batch small(3);
  while (small.add(command, {})) {
  }
  EXPECT_EQ(small.commands().size(), 3U);
}

TEST(ExecutorBatch, CommandsThatAreRemovedCostNothing) {
  const Command command{&kAct, {}, 0};
  Executor::Batch batch;
  EXPECT_TRUE(batch.add(command, {.nanoseconds = 5}));
  const Cost before = batch.cost();
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(batch.add(command, {.nanoseconds = Cost::kLong - 1}) || i);
  batch.remove(batch.commands().size() - 1, before);
  EXPECT_EQ(batch.commands().size(), 1U);
  EXPECT_EQ(batch.items().size(), 1U);
  EXPECT_FALSE(batch.cost().is_long());
  EXPECT_TRUE(batch.add(command, {}));
}

TEST_F(ExecutorTest, StreamsOfManyThreadsRunSideBySide) {
  constexpr int kThreads = 80;  // more than there are channels
  std::vector<std::thread> threads;
  std::array<std::int64_t, kThreads> results{};
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&results, i] {
      const Memory memory;
      const OwnStream stream;
      for (int n = 0; n < 20; ++n) enqueue(*stream, Action::kAdd, memory.get(), i);
      stream->synchronize();
      results[static_cast<std::size_t>(i)] = memory.value();
    });
  }
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)], 20 * i);
}

struct Crash {
  const char* name;
  Action action;
  const char* reason;
};

class ACrash : public ExecutorTest, public ::testing::WithParamInterface<Crash> {};

TEST_P(ACrash, TakesTheDeviceNotTheProgram) {
  const Memory memory;
  const Memory other(1);
  auto& stream = default_stream(0);
  enqueue(stream, Action::kAdd, memory.get(), 7);
  stream.synchronize();
  const pid_t before = process_of(0);

  enqueue(stream, GetParam().action);
  const auto error = error_of([&] { stream.synchronize(); });
  const std::string process = "its process " + std::to_string(before);
  EXPECT_PRED2(
      contains, error,
      "the device is lost: " + process + " " + GetParam().reason + " while running test_act");

  // Each later kernel is refused at the call; the memory and the other device are there.
  for (int i = 0; i < 2; ++i) {
    const auto refused = error_of([&] { enqueue(stream, Action::kAdd, memory.get(), 1); });
    EXPECT_PRED2(begins_with, refused, "openreg:0: the device is lost: " + process);
    EXPECT_PRED2(contains, refused, "torch.openreg.reset_device(0)");
  }
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_EQ(memory.value(), 7);
  EXPECT_EQ(process_of(0), 0);
  enqueue(default_stream(1), Action::kAdd, other.get(), 2);
  synchronize_device(1);
  EXPECT_EQ(other.value(), 2);

  reset_health(0);
  EXPECT_NE(process_of(0), 0);
  EXPECT_NE(process_of(0), before);
  enqueue(stream, Action::kAdd, memory.get(), 1);
  stream.synchronize();
  EXPECT_EQ(memory.value(), 8);
}

INSTANTIATE_TEST_SUITE_P(
    Of, ACrash,
    ::testing::Values(Crash{"ASegmentationFault", Action::kSegfault, "was killed by SIGSEGV"},
                      Crash{"Abort", Action::kAbort, "was killed by SIGABRT"},
                      Crash{"Exit", Action::kExit, "exited: a kernel called exit()"}),
    [](const auto& info) { return info.param.name; });

TEST_F(ExecutorTest, AWildWriteIsNoticed) {
  const Memory memory;
  auto& stream = default_stream(0);
  auto* const beyond = static_cast<std::byte*>(memory.get()) + 64 * AddressSpace::kGranularity;
  enqueue(stream, Action::kAdd, beyond, 1);
  const auto error = error_of([&] { stream.synchronize(); });
  EXPECT_PRED2(contains, error, "was killed by SIGSEGV");
}

TEST_F(ExecutorTest, KilledWhileIdleIsNoticedByTheNextKernel) {
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  send_to_process_of(0, SIGKILL);
  ASSERT_TRUE(happens([] { return health_of(0) == Health::kStopped; }));
  const auto error = error_of([] { enqueue(default_stream(0), Action::kSleep); });
  EXPECT_PRED2(contains, error, "was killed by SIGKILL. Each call");
}

TEST_F(ExecutorTest, KilledInACommandFailsIt) {
  auto& stream = default_stream(0);
  begin_to_sleep(stream);
  send_to_process_of(0, SIGKILL);
  const auto error = error_of([&] { stream.synchronize(); });
  EXPECT_PRED2(contains, error, "was killed by SIGKILL while running test_act");
}

TEST_F(ExecutorTest, CommandsOfOtherStreamsFailWithTheProcess) {
  const OwnStream sleeping;
  const OwnStream crashing;
  begin_to_sleep(*sleeping);
  enqueue(*crashing, Action::kAbort);
  for (const auto* stream : {&crashing, &sleeping}) {
    const auto error = error_of([&] { (*stream)->synchronize(); });
    EXPECT_PRED2(contains, error, "was killed by SIGABRT while running test_act");
  }
}

struct Interrupted {};

TEST_F(ExecutorTest, AWaitForAStoppedProcessCanBeInterrupted) {
  OPENREG_NEEDS_ENGINES("an adversary stays with the command that it has chosen");
  const Memory memory;
  const Memory other(1);
  auto& stream = default_stream(0);
  enqueue(stream, Action::kAdd, memory.get(), 3);
  enqueue(stream, Action::kStop);
  install_callbacks({.check_interrupt = [] { throw Interrupted(); }});
  EXPECT_THROW(stream.synchronize(), Interrupted);
  install_callbacks({.check_interrupt = [] {}});

  // The engines are free for the other device, and memory can be mapped.
  for (int i = 0; i < 100; ++i) {
    enqueue(default_stream(1), Action::kAdd, other.get(), 1);
    const Memory more;
  }
  synchronize_device(1);
  EXPECT_EQ(other.value(), 100);

  const auto uncollected = reset_health(0);
  ASSERT_EQ(uncollected.size(), 1U);
  EXPECT_PRED2(contains, uncollected[0], "the device is lost: it was reset");
  enqueue(stream, Action::kAdd, memory.get(), 1);
  stream.synchronize();
  EXPECT_EQ(memory.value(), 4);
}

TEST_F(ExecutorTest, AStoppedProcessGoesOnWhenItIsContinued) {
  const Memory memory;
  auto& stream = default_stream(0);
  enqueue(stream, Action::kStop);
  enqueue(stream, Action::kAdd, memory.get(), 1);
  ASSERT_TRUE(happens([] { return is_stopped(process_of(0)); }));
  std::this_thread::sleep_for(100ms);  // longer than a runner stays
  EXPECT_FALSE(stream.query());
  send_to_process_of(0, SIGCONT);
  stream.synchronize();
  EXPECT_EQ(memory.value(), 1);
}

TEST_F(ExecutorTest, LongCommandsOfAGraphAreHandedOverAndEndInOrder) {
  const Memory memory;
  const OwnStream stream;
  GraphExec::make(captured(*stream, [&] {
    for (int i = 1; i <= 3; ++i) {
      enqueue(*stream, Action::kSleep, nullptr, 70);
      enqueue(*stream, Action::kAdd, memory.get(), i);
    }
  }))->enqueue(*stream);
  enqueue(*stream, Action::kAdd, memory.get(), 10);
  stream->synchronize();
  EXPECT_EQ(memory.value(), 16);
}

TEST_F(ExecutorTest, FaultsOnPurposeGoWithTheCommand) {
  const Memory memory;
  auto& stream = default_stream(0);
  const Arguments arguments{Action::kWriteProcess, 0, memory.get()};
  with_faulty_command(kAct, std::as_bytes(std::span(&arguments, 1)), {.delay = 10ms},
                      [&](const Kernel& kernel, std::span<const std::byte> bytes) {
                        stream.enqueue(kernel, bytes);
                      });
  stream.synchronize();
  EXPECT_EQ(memory.value(), process_of(0));
}

TEST_F(ExecutorTest, ACrashOnPurposeIsThatOfItsCommand) {
  auto& stream = default_stream(0);
  const Arguments arguments{Action::kSleep, 0, nullptr};
  with_faulty_command(kAct, std::as_bytes(std::span(&arguments, 1)), {.crashes = true},
                      [&](const Kernel& kernel, std::span<const std::byte> bytes) {
                        stream.enqueue(kernel, bytes);
                      });
  const auto error = error_of([&] { stream.synchronize(); });
  EXPECT_PRED2(begins_with, error,
               "openreg: test_act failed on openreg:0, stream 0: the device is lost: ");
  EXPECT_PRED2(contains, error, "was killed by SIGSEGV while running test_act");
}

TEST_F(ExecutorTest, TheProgramHasNoChild) {
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(ExecutorTest, EndsWithItsSupervisor) {
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  const pid_t process = process_of(0);
  const pid_t supervisor = status_of(process).parent;
  ASSERT_GT(supervisor, 1);
  kill(supervisor, SIGKILL);
  EXPECT_TRUE(happens([&] { return !exists(process); }));
  EXPECT_TRUE(happens([] { return health_of(0) == Health::kStopped; }));
}

// What a program prints that ends with its executor in some state.
pid_t executor_of_program(const char* state) {
  const std::string command =
      "/proc/" + std::to_string(getpid()) + "/exe --program " + std::string(state);
  FILE* const output = popen(command.c_str(), "r");
  int process = 0;
  EXPECT_EQ(std::fscanf(output, "%d", &process), 1);
  pclose(output);
  return process;
}

[[noreturn]] void be_program(std::string_view state) {
  auto& stream = default_stream(0);
  enqueue(stream, Action::kSleep);
  stream.synchronize();
  std::printf("%d\n", process_of(0));
  std::fflush(stdout);
  if (state == "busy") begin_to_sleep(stream);
  if (state == "stopped" || state == "waits") {
    enqueue(stream, Action::kStop);
    if (!happens([] { return is_stopped(process_of(0)); })) std::abort();
  }
  if (state == "waits") std::thread([&] { stream.synchronize(); }).detach();
  std::this_thread::sleep_for(100ms);  // longer than a runner stays
  if (state == "killed") kill(getpid(), SIGKILL);
  if (state == "fails") std::_Exit(1);
  std::exit(0);
}

class AProgram : public ExecutorTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(AProgram, EndsAndItsExecutorWithIt) {
  const std::string_view state = GetParam();
  if (state == "busy" || state == "stopped" || state == "waits") {
    OPENREG_NOT_AT_RANDOM("the program may run the command when it submits it");
  }
  const auto begin = std::chrono::steady_clock::now();
  const pid_t process = executor_of_program(GetParam());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
  ASSERT_NE(process, 0);
  EXPECT_TRUE(happens([&] { return !exists(process); }));
}

INSTANTIATE_TEST_SUITE_P(ThatIs, AProgram,
                         ::testing::Values("idle", "busy", "stopped", "waits", "killed", "fails"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ExecutorTest, AFailedStartIsAnErrorOfTheCommand) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer looks at objects through a pipe, which needs descriptors";
#endif
  enqueue(default_stream(0), Action::kSleep);
  synchronize_device(0);
  RemoteRunner::of(0)->end();
  const Memory memory;
  {
    const Limit no_files(RLIMIT_NOFILE, 3);
    enqueue(default_stream(0), Action::kAdd, memory.get(), 1);
    const auto error = error_of([] { default_stream(0).synchronize(); });
    EXPECT_PRED2(contains, error, "cannot start the executor process of openreg:0");
  }
  enqueue(default_stream(0), Action::kAdd, memory.get(), 1);
  synchronize_device(0);
  EXPECT_EQ(memory.value(), 1);
}

}  // namespace
}  // namespace openreg

int main(int argc, char** argv) {
  using namespace openreg;
  const std::string_view what(argc > 2 ? argv[1] : "");
  if (what == "--executor") executor::be_executor(std::atoi(argv[2]), &serve_executor);
  setenv("TORCH_OPENREG_EXECUTOR", "process", 1);
  setenv("TORCH_OPENREG_MEMORY", "1GiB", 0);
  install_executor_callbacks({.program = [] {
    return executor::Program{.path = "/proc/self/exe", .arguments = {"--executor"}};
  }});
  if (what == "--program") be_program(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
