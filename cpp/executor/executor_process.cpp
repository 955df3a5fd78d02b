#include "executor/executor_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "address_space/anonymous_file.h"
#include "address_space/ipc_file.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/round_up.h"
#include "base/thread.h"
#include "executor/supervisor.h"

namespace openreg::executor {

namespace {

// An answered number has this bit once the executor has ended.
constexpr std::uint32_t kEnded = std::uint32_t{1} << 31;

constexpr std::chrono::milliseconds kRetry{1};
constexpr std::chrono::seconds kLongestStart{120};

[[noreturn]] void throw_refused(int device, int reason) {
  throw Error("openreg: cannot start the executor process of " + device_name(device) + ": " +
              std::generic_category().message(reason) +
              "; raise `ulimit -u` and `ulimit -n`, or unset TORCH_OPENREG_EXECUTOR");
}

void check(bool succeeded, int device) {
  if (!succeeded) throw_refused(device, errno);
}

struct Sockets {
  Descriptor ours;
  Descriptor theirs;
};

// Theirs above the numbers that the new process has them at: a descriptor that is duplicated to its
// own number would stay marked to be closed.
Sockets make_sockets(int device) {
  int pair[2];
  check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, device);
  const Descriptor ours(pair[0]);
  const Descriptor theirs(pair[1]);
  Sockets sockets{Descriptor(fcntl(ours.get(), F_DUPFD_CLOEXEC, kFirstOwnDescriptor)),
                  Descriptor(fcntl(theirs.get(), F_DUPFD_CLOEXEC, kExecutorSocket + 1))};
  check(sockets.ours && sockets.theirs, device);
  return sockets;
}

// Attributes and descriptors of a new process.
class SpawnOptions {
 public:
  SpawnOptions(int supervisor, int executor) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, supervisor, kSupervisorSocket);
    posix_spawn_file_actions_adddup2(&actions_, executor, kExecutorSocket);
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnOptions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnOptions(const SpawnOptions&) = delete;
  SpawnOptions& operator=(const SpawnOptions&) = delete;

  const posix_spawn_file_actions_t* actions() const noexcept { return &actions_; }
  const posix_spawnattr_t* attributes() const noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

std::string name_of_signal(int signal) {
  constexpr std::pair<int, const char*> kNames[] = {
      {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
      {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
      {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGTERM, "SIGTERM"}, {SIGSYS, "SIGSYS"},
      {SIGXCPU, "SIGXCPU"}, {SIGXFSZ, "SIGXFSZ"}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return name;
  }
  return "signal " + std::to_string(signal);
}

bool wait_readable(int socket, std::chrono::milliseconds limit) noexcept {
  pollfd watched{socket, POLLIN, 0};
  int result = 0;
  do {
    result = poll(&watched, 1, static_cast<int>(limit.count()));
  } while (result < 0 && errno == EINTR);
  return result > 0;
}

}  // namespace

std::shared_ptr<ExecutorProcess> ExecutorProcess::start(const Program& program, int device,
                                                        OnEnd on_end) {
  std::shared_ptr<ExecutorProcess> process(new ExecutorProcess(device));
  process->spawn(program);
  process->greet();
  process->wait_until_ready();
  start_detached_thread("openreg-guard",
                        [process, on_end = std::move(on_end)] { process->watch(on_end); });
  return process;
}

ExecutorProcess::ExecutorProcess(int device)
    : device_(device), block_file_(make_anonymous_file("openreg-executor")) {
  check(static_cast<bool>(block_file_), device);
  const FileSizeSignalBlock held;
  check(ftruncate(block_file_.get(), sizeof(SharedBlock)) == 0, device);
  void* const memory =
      mmap(nullptr, sizeof(SharedBlock), PROT_READ | PROT_WRITE, MAP_SHARED, block_file_.get(), 0);
  check(memory != MAP_FAILED, device);
  block_ = new (memory) SharedBlock;
  for (std::size_t i = SharedBlock::kChannels; i-- > 0;) free_.push_back(i);
}

ExecutorProcess::~ExecutorProcess() { munmap(block_, sizeof(SharedBlock)); }

void ExecutorProcess::spawn(const Program& program) {
  auto supervisor = make_sockets(device_);
  auto executor = make_sockets(device_);
  const SpawnOptions options(supervisor.theirs.get(), executor.theirs.get());
  std::vector<std::string> words{program.path};
  words.insert(words.end(), program.arguments.begin(), program.arguments.end());
  words.push_back(std::to_string(getpid()));
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t first = 0;
  const int refused = posix_spawn(&first, program.path.c_str(), options.actions(),
                                  options.attributes(), pointers.data(), environ);
  if (refused != 0) throw_refused(device_, refused);
  while (waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  supervisor_ = std::move(supervisor.ours);
  socket_ = std::move(executor.ours);
}

void ExecutorProcess::greet() {
  SupervisorReport report{};
  if (!receive_packet(supervisor_.get(), report)) {
    throw Error("openreg: the executor process of " + device_name(device_) +
                " did not start; the reason is in the program's standard error output");
  }
  number_ = report.number;
  supervisor_number_ = report.supervisor;
  auto& space = AddressSpace::get();
  const Hello hello{sizeof(SharedBlock), space.layout(), device_};
  const std::array descriptors{block_file_.get(), space.shared_file(device_)->descriptor()};
  send_packet(socket_.get(), hello, descriptors);
}

void ExecutorProcess::wait_until_ready() {
  char ready = 0;
  const bool in_time = wait_readable(socket_.get(), kLongestStart);
  if (in_time && receive_packet(socket_.get(), ready)) return;
  if (!in_time) shutdown(supervisor_.get(), SHUT_RDWR);
  SupervisorReport report{};
  const bool reported = receive_packet(supervisor_.get(), report);
  const End end = describe_end(reported ? std::optional(report.number) : std::nullopt);
  reap_supervisor();
  throw Error("openreg: the executor process of " + device_name(device_) +
              " failed to start: " + end.what);
}

void ExecutorProcess::watch(const OnEnd& on_end) {
  SupervisorReport report{};
  const bool reported = receive_packet(supervisor_.get(), report);
  on_end(describe_end(reported ? std::optional(report.number) : std::nullopt));
  reap_supervisor();
  const LockGuard lock(mutex_);
  ended_.store(true, std::memory_order_release);
  for (Channel& channel : block_->channels) channel.answers.ring(channel.answers.value() | kEnded);
  changed_.notify_all();
}

// If the program adopts orphans, the supervisor is its child.
void ExecutorProcess::reap_supervisor() const noexcept {
  while (waitpid(supervisor_number_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string ExecutorProcess::cause_of_end(std::optional<int> reported) const {
  const std::string process = "its process " + std::to_string(number_);
  if (!reported) {
    return process + " was killed because its parent, process " +
           std::to_string(supervisor_number_) + ", ended";
  }
  const int status = *reported;
  if (const auto end = std::ranges::find(block_->reason, '\0'); end != block_->reason.begin())
    return process + " exited: " + std::string(block_->reason.begin(), end);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return process + " was killed by " + name_of_signal(signal);
  }
  return process + " exited with status " + std::to_string(WEXITSTATUS(status));
}

ExecutorProcess::End ExecutorProcess::describe_end(std::optional<int> status) const {
  End end{.what = cause_of_end(status), .channel = {}};
  const auto& channels = block_->channels;
  const auto crashed = block_->crashed.load();
  const auto of = crashed >= 0 && crashed < static_cast<int>(channels.size())
                      ? channels.begin() + crashed
                      : std::ranges::find_if(channels, [](const Channel& channel) {
                          return channel.requests.value() != channel.answers.value();
                        });
  if (of == channels.end()) return end;
  end.channel = static_cast<std::size_t>(of - channels.begin());
  end.progress = of->progress.load();
  return end;
}

void ExecutorProcess::end() noexcept {
  shutdown(supervisor_.get(), SHUT_WR);
  UniqueLock lock(mutex_);
  if (!has_ended()) kill(supervisor_number_, SIGCONT);  // it may be stopped
  while (!has_ended()) lock.wait(changed_);
}

void ExecutorProcess::forget(std::uint64_t number) noexcept {
  post({.kind = Message::Kind::kForget, .offset = number});
}

void ExecutorProcess::mapped(const Mapping& mapping) noexcept {
  post({.kind = Message::Kind::kMap,
        .offset = mapping.offset,
        .bytes = mapping.bytes,
        .file_offset = mapping.file ? mapping.file_offset : mapping.offset},
       mapping.file ? mapping.file->descriptor() : -1);
}

void ExecutorProcess::unmapped(const Mapping& mapping) noexcept {
  forget_unsent(mapping);
  post({.kind = Message::Kind::kUnmap, .offset = mapping.offset, .bytes = mapping.bytes});
}

// Does not wait: the executor may be stopped, and the caller may hold locks.
void ExecutorProcess::post(const Message& message, int descriptor) noexcept {
  const LockGuard lock(mutex_);
  if (message.kind == Message::Kind::kMap || message.kind == Message::Kind::kUnmap) ++mappings_;
  unsent_.push_back({message, descriptor});
  send_unsent();
}

// The file of other processes' memory may be closed when that is unmapped.
void ExecutorProcess::forget_unsent(const Mapping& mapping) noexcept {
  const LockGuard lock(mutex_);
  for (auto& [message, descriptor] : unsent_) {
    if (descriptor < 0 || message.offset != mapping.offset) continue;
    message.kind = Message::Kind::kNothing;
    descriptor = -1;
  }
}

bool ExecutorProcess::send_unsent() {
  while (!unsent_.empty()) {
    const auto& [message, descriptor] = unsent_.front();
    const std::span<const int> descriptors(&descriptor, descriptor < 0 ? 0 : 1);
    if (!send_packet(socket_.get(), message, descriptors) && errno == EAGAIN) return false;
    unsent_.pop_front();  // sent, or the executor has ended
  }
  return true;
}

std::uint32_t ExecutorProcess::flush() {
  UniqueLock lock(mutex_);
  while (!has_ended() && !send_unsent()) {
    lock.unlock();
    std::this_thread::sleep_for(kRetry);
    lock.lock();
  }
  return mappings_;
}

std::optional<std::size_t> ExecutorProcess::take_channel() {
  std::size_t channel = 0;
  bool is_new = false;
  {
    UniqueLock lock(mutex_);
    while (free_.empty() && !has_ended()) lock.wait(changed_);
    if (has_ended()) return std::nullopt;
    channel = free_.back();  // the newest: the lowest numbers, whose threads exist
    free_.pop_back();
    is_new = channel >= served_;
    if (is_new) served_ = channel + 1;
  }
  if (is_new) post({.kind = Message::Kind::kServe, .offset = channel});
  return channel;
}

void ExecutorProcess::give_back(std::size_t channel) noexcept {
  const LockGuard lock(mutex_);
  free_.push_back(channel);
  changed_.notify_one();
}

ExecutorProcess::Request::Request(std::shared_ptr<ExecutorProcess> process)
    : process_(std::move(process)), number_(process_->take_channel()) {}

void ExecutorProcess::Request::send(Parts parts) {
  if (!number_) return;
  std::size_t whole = 0;
  for (const auto part : parts) whole = round_up(whole, kPartAlignment) + part.size();
  Channel& channel = channel_of();
  // The data of the channel itself, if all of it fits.
  std::byte* to = channel.data.data();
  if (whole > Channel::kBytes) {
    rest_.resize(whole);
    to = rest_.data();
  }
  std::size_t at = 0;
  for (const auto part : parts) {
    at = round_up(at, kPartAlignment);
    if (!part.empty()) std::memcpy(to + at, part.data(), part.size());
    at += part.size();
  }
  channel.whole = static_cast<std::uint32_t>(whole);
  channel.bytes = channel.whole;
  channel.progress.store(0, std::memory_order_relaxed);
  channel.mappings = process_->flush();
  sent_ = channel.requests.value();
  send_piece();
}

void ExecutorProcess::Request::send_piece() {
  Channel& channel = channel_of();
  if (!rest_.empty()) {
    const auto bytes = std::min(rest_.size() - next_, Channel::kBytes);
    std::memcpy(channel.data.data(), rest_.data() + next_, bytes);
    next_ += bytes;
    channel.bytes = static_cast<std::uint32_t>(bytes);
  }
  sent_ = (sent_ + 1) & ~kEnded;
  channel.requests.ring(sent_);
}

ExecutorProcess::Request::Request(Request&& other) noexcept
    : process_(std::move(other.process_)),
      number_(std::exchange(other.number_, std::nullopt)),
      sent_(other.sent_),
      rest_(std::move(other.rest_)),
      next_(other.next_) {}

ExecutorProcess::Request& ExecutorProcess::Request::operator=(Request&& other) noexcept {
  std::swap(process_, other.process_);
  std::swap(number_, other.number_);
  std::swap(sent_, other.sent_);
  std::swap(rest_, other.rest_);
  std::swap(next_, other.next_);
  return *this;
}

ExecutorProcess::Request::~Request() {
  if (process_ && number_) process_->give_back(*number_);
}

bool ExecutorProcess::Request::wait(std::optional<std::chrono::milliseconds> limit) {
  if (!number_) return true;
  Channel& channel = channel_of();
  while (true) {
    const auto before = (sent_ - 1) & ~kEnded;
    const auto now = channel.answers.wait(before, limit);
    if (now == before) return false;
    if ((now & ~kEnded) != sent_ || channel.status != kGoOn) return true;
    if ((now & kEnded) != 0) return true;
    send_piece();
  }
}

std::optional<ExecutorProcess::Request::Answer> ExecutorProcess::Request::answer() const noexcept {
  if (!number_) return std::nullopt;
  const Channel& channel = channel_of();
  if ((channel.answers.value() & ~kEnded) != sent_) return std::nullopt;
  const std::size_t bytes = std::min<std::size_t>(channel.bytes, Channel::kBytes);
  return Answer{channel.status, std::span(channel.data).first(bytes)};
}

std::uint32_t ExecutorProcess::Request::progress() const noexcept {
  return number_ ? channel_of().progress.load(std::memory_order_relaxed) : 0;
}

}  // namespace openreg::executor
