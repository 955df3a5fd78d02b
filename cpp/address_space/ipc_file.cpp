#include "address_space/ipc_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "address_space/anonymous_file.h"
#include "base/error.h"

namespace openreg {

// Note [Blocks that processes share]
// The file has no name in any file system, so nothing has to be removed when processes end. Others
// open it as /proc/<process>/fd/<descriptor>. After the memory it has a word for each 512 bytes,
// and its token:
//
//   0                         bytes                 + bytes / 64
//   | memory                  | words               | token
//
// Other processes use a block while a message that names it is under way, or while one of them
// holds it. The block's word counts the messages. A process that holds a block has a record lock
// (fcntl) on its first byte: the system releases the locks of a process that ends, even if it is
// killed. A receiver holds the block first and then decrements the count, so the owner, which reads
// the word before it looks at the locks, cannot miss both. While the owner looks, a flag in the
// word is set (kRetiring). A holder that sends the block in this time clears the flag, so the owner
// knows that what it has seen is out of date. No process waits for the owner, which may be killed
// at any time. The upper half of the word is the block's generation, so a message that is read a
// second time is not mistaken for one about a later block at the same offset.
//
// Record locks belong to the process, which loses them when it closes *any* descriptor of the file,
// so it has only one descriptor of each file.
namespace {

constexpr std::uint64_t kRetiring = std::uint64_t{1} << 31;
constexpr std::uint64_t kMessages = kRetiring - 1;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::uint32_t generation_of(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

std::size_t words_bytes(std::size_t bytes) {
  return bytes / IpcFile::kBlockBytes * sizeof(std::uint64_t);
}

off_t token_offset(std::size_t bytes) { return static_cast<off_t>(bytes + words_bytes(bytes)); }

[[noreturn]] void throw_refused(const std::string& what, int reason, const std::string& hint) {
  throw Error("openreg: " + what + ": " + std::generic_category().message(reason) + "; " + hint);
}

[[noreturn]] void throw_no_file(int reason) {
  throw_refused("cannot open a file to share device memory with other processes", reason,
                "raise `ulimit -n` or `ulimit -f`, or send tensor.cpu()");
}

[[noreturn]] void throw_no_sender(int process, int reason) {
  throw_refused(
      "cannot open device memory of process " + std::to_string(process), reason,
      "the sender of a tensor must not exit before the tensor is received, and both processes must "
      "run as the same user and in the same PID namespace");
}

// Another process may have that number by now, and its descriptor may refer to anything, so the
// descriptor is checked before it is opened.
int open_descriptor(const IpcFileName& name) {
  const std::string path =
      "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) throw_no_sender(name.process, errno);
  if (!S_ISREG(status.st_mode) || status.st_size <= token_offset(name.bytes))
    throw_no_sender(name.process, ESRCH);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  if (errno == EMFILE || errno == ENFILE) throw_no_file(errno);
  throw_no_sender(name.process, errno);
}

}  // namespace

IpcFile::IpcFile(std::size_t bytes) : bytes_(bytes), descriptor_(make_anonymous_file("openreg")) {
  if (descriptor_ < 0) throw_no_file(errno);
  try {
    const FileSizeSignalBlock held;
    const off_t end = token_offset(bytes) + static_cast<off_t>(sizeof token_);
    if (ftruncate(descriptor_, end) != 0) throw_no_file(errno);
    if (getrandom(&token_, sizeof token_, 0) != sizeof token_) throw_no_file(errno);
    if (pwrite(descriptor_, &token_, sizeof token_, token_offset(bytes)) != sizeof token_)
      throw_no_file(errno);
    map_words();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

IpcFile::IpcFile(const IpcFileName& name) : bytes_(name.bytes), descriptor_(open_descriptor(name)) {
  try {
    if (pread(descriptor_, &token_, sizeof token_, token_offset(bytes_)) != sizeof token_ ||
        token_ != name.token)
      throw_no_sender(name.process, ESRCH);
    map_words();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

IpcFile::~IpcFile() {
  munmap(words_, words_bytes(bytes_));
  close(descriptor_);
}

void IpcFile::map_words() {
  void* const words = mmap(nullptr, words_bytes(bytes_), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_NORESERVE, descriptor_, static_cast<off_t>(bytes_));
  if (words == MAP_FAILED) throw_no_file(errno);
  madvise(words, words_bytes(bytes_), MADV_DONTDUMP);
  madvise(words, words_bytes(bytes_), MADV_DONTFORK);
  words_ = static_cast<Word*>(words);
}

IpcFileName IpcFile::name() const noexcept { return {getpid(), descriptor_, token_, bytes_}; }

bool map_file_at(void* address, std::size_t bytes, int descriptor, std::size_t offset) noexcept {
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
           descriptor, static_cast<off_t>(offset)) == MAP_FAILED)
    return false;
  madvise(address, bytes, MADV_DONTDUMP);
  madvise(address, bytes, MADV_DONTFORK);
  return true;
}

bool IpcFile::map_at(void* address, std::size_t offset, std::size_t bytes) const noexcept {
  return map_file_at(address, bytes, descriptor_, offset);
}

void IpcFile::discard(std::size_t offset, std::size_t bytes) const noexcept {
  [[maybe_unused]] const int refused =  // if refused, the memory stays until it is used again
      fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes));
}

std::uint32_t IpcFile::send(std::size_t offset) {
  Word& counts = word(offset);
  std::uint64_t now = counts.load();
  while (!counts.compare_exchange_weak(now, (now & ~kRetiring) + 1)) {
  }
  return generation_of(now);
}

bool IpcFile::receive(std::size_t offset, std::uint32_t generation) noexcept {
  Word& counts = word(offset);
  std::uint64_t now = counts.load();
  do {
    if (generation_of(now) != generation || (now & kMessages) == 0) return false;
  } while (!counts.compare_exchange_weak(now, now - 1));
  return true;
}

bool IpcFile::lock(std::size_t offset, int type) const noexcept {
  struct flock range {};
  range.l_type = static_cast<short>(type);
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  return fcntl(descriptor_, F_SETLK, &range) == 0;
}

bool IpcFile::is_held_elsewhere(std::size_t offset) const noexcept {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(offset);
  range.l_len = 1;
  return fcntl(descriptor_, F_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

void IpcFile::hold(std::size_t offset) {
  const LockGuard guard(mutex_);
  int& holds = holds_[offset];
  if (holds == 0 && !lock(offset, F_RDLCK)) {
    const int reason = errno;
    holds_.erase(offset);
    throw_refused("cannot lock device memory of another process", reason, "send tensor.cpu()");
  }
  ++holds;
}

void IpcFile::release(std::size_t offset) noexcept {
  const LockGuard guard(mutex_);
  const auto found = holds_.find(offset);
  if (--found->second > 0) return;
  holds_.erase(found);
  lock(offset, F_UNLCK);
}

bool IpcFile::retire(std::size_t offset) noexcept {
  Word& counts = word(offset);
  std::uint64_t now = counts.load();
  if ((now & (kMessages | kRetiring)) != 0) return false;
  if (!counts.compare_exchange_strong(now, now | kRetiring)) return false;
  std::uint64_t retiring = now | kRetiring;
  const bool is_held = is_held_elsewhere(offset);
  const std::uint64_t next = is_held ? now : now + (std::uint64_t{1} << 32);
  return counts.compare_exchange_strong(retiring, next) && !is_held;
}

}  // namespace openreg
