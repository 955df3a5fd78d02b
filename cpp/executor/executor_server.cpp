#include "executor/executor_server.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "base/error.h"
#include "base/thread.h"
#include "executor/descriptor.h"
#include "executor/executor_process.h"
#include "executor/messages.h"
#include "executor/shared_block.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace openreg::executor {

namespace {

SharedBlock* g_block = nullptr;  // set before the first thread starts
constinit thread_local std::int32_t t_channel = SharedBlock::kNone;

[[noreturn]] void end_because(const char* reason) noexcept {
  std::strncpy(g_block->reason.data(), reason, g_block->reason.size() - 1);
  _exit(1);
}

// The supervisor reports the signal; this adds whose request it was.
void note_crash(int signal) {
  std::int32_t none = SharedBlock::kNone;
  if (t_channel != SharedBlock::kNone) g_block->crashed.compare_exchange_strong(none, t_channel);
  raise(signal);  // SA_RESETHAND: it ends the process when this function has returned
}

void note_crashes() noexcept {
  struct sigaction action {};
  action.sa_handler = &note_crash;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
    sigaction(signal, &action, nullptr);
  // exit() is called by a kernel: the process would go on with its static objects destroyed.
  std::atexit([] {
    std::int32_t none = SharedBlock::kNone;
    if (t_channel != SharedBlock::kNone) g_block->crashed.compare_exchange_strong(none, t_channel);
    end_because("a kernel called exit()");
  });
}

// Requests are ordered by the program, which the thread sanitizer cannot see from here: for it,
// each comes after all that have been answered.
class OrderedByProgram {
 public:
#ifdef __SANITIZE_THREAD__
  OrderedByProgram() { __tsan_acquire(g_block); }
  ~OrderedByProgram() { __tsan_release(g_block); }
#else
  OrderedByProgram() = default;
  ~OrderedByProgram() {}
#endif
  OrderedByProgram(const OrderedByProgram&) = delete;
  OrderedByProgram& operator=(const OrderedByProgram&) = delete;
};

/// The thread of one channel.
class ChannelServer {
 public:
  ChannelServer(Channel& channel, const Service& service) : channel_(channel), service_(service) {}

  [[noreturn]] void run() {
    if (service_.begin_thread) service_.begin_thread();
    for (std::uint32_t seen = 0;;) {
      seen = channel_.requests.wait(seen);
      {
        const OrderedByProgram ordered;
        handle_piece();
      }
      channel_.answers.ring(seen);
    }
  }

 private:
  void handle_piece() {
    const std::span<const std::byte> piece(channel_.data.data(), channel_.bytes);
    const bool is_whole = channel_.bytes == channel_.whole;
    if (!is_whole) {
      pieces_.insert(pieces_.end(), piece.begin(), piece.end());
      if (pieces_.size() < channel_.whole) {
        channel_.status = kGoOn;
        return;
      }
    }
    wait_for_mappings();
    std::string data;
    channel_.status = service_.handle(is_whole ? piece : pieces_, data);
    pieces_.clear();
    channel_.bytes = static_cast<std::uint32_t>(std::min(data.size(), Channel::kBytes));
    std::memcpy(channel_.data.data(), data.data(), channel_.bytes);
  }

  // The numbers grow by one for each message; a difference is right beyond the largest number.
  void wait_for_mappings() noexcept {
    auto now = g_block->mappings.value();
    while (static_cast<std::int32_t>(now - channel_.mappings) < 0)
      now = g_block->mappings.wait(now);
  }

  Channel& channel_;
  const Service& service_;
  std::vector<std::byte> pieces_;
};

void start_server(std::size_t number, const Service& service) {
  start_detached_thread("openreg-exec", [number, &service] {
    disable_wakeup_preemption();
    t_channel = static_cast<std::int32_t>(number);
    ChannelServer(g_block->channels[number], service).run();
  });
}

void apply(const Message& message, const Descriptor& device_memory, const Descriptor& other,
           const Service& service) {
  auto& space = AddressSpace::get();
  switch (message.kind) {
    case Message::Kind::kMap:
      if (!space.map_mirrored(message.offset, message.bytes, (other ? other : device_memory).get(),
                              message.file_offset)) {
        throw Error("cannot map device memory: " + std::generic_category().message(errno));
      }
      break;
    case Message::Kind::kUnmap:
      space.unmap_mirrored(message.offset, message.bytes);
      break;
    case Message::Kind::kNothing:
      break;
    case Message::Kind::kServe:
      return start_server(message.offset, service);
    case Message::Kind::kForget:
      return service.forget(message.offset);
  }
  g_block->mappings.ring(g_block->mappings.value() + 1);
}

}  // namespace

void note_progress(std::uint32_t progress) noexcept {
  g_block->channels[static_cast<std::size_t>(t_channel)].progress.store(progress,
                                                                        std::memory_order_relaxed);
}

void serve(int socket, const Service& service) noexcept {
  prctl(PR_SET_NAME, "openreg-exec");
  Hello hello{};
  std::array<Descriptor, 2> descriptors;
  if (!receive_packet(socket, hello, descriptors) || hello.bytes_of_block != sizeof(SharedBlock))
    _exit(1);
  void* const memory = mmap(nullptr, sizeof(SharedBlock), PROT_READ | PROT_WRITE, MAP_SHARED,
                            descriptors[0].get(), 0);
  if (memory == MAP_FAILED) _exit(1);
  g_block = static_cast<SharedBlock*>(memory);
  note_crashes();
  try {
    AddressSpace::become_mirror(hello.layout, hello.device);
    if (service.begin) service.begin();
    constexpr char kReady = 1;
    send_packet(socket, kReady);
    Message message{};
    Descriptor other;
    while (receive_packet(socket, message, std::span(&other, 1))) {
      apply(message, descriptors[1], std::exchange(other, {}), service);
    }
  } catch (const std::exception& error) {
    end_because(error.what());
  }
  _exit(0);  // the program has ended
}

}  // namespace openreg::executor
