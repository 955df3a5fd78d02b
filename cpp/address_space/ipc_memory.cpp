#include "address_space/ipc_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <system_error>

#include "address_space/anonymous_file.h"
#include "address_space/fault_message.h"
#include "base/error.h"
#include "base/round_up.h"
#include "base/settings.h"

namespace openreg {

// Note [Memory moves under its users]
// Memory is private, with huge pages, until a tensor in it is sent to another process. Then the
// pieces of 2 MiB that the tensor touches are copied to the file and the file is mapped in their
// place. Other tensors lie in the same pieces, and other threads keep running: a program that sends
// from the thread of a queue launches kernels at the same time. So a piece is made read-only before
// it is copied. A thread that writes to it then gets a SIGSEGV, and waits in the handler until the
// file is mapped; then the write is repeated. Reads are not affected.
//
// A piece that has moved stays writable, so a write that faulted on it did so before the move
// ended, and a late handler just returns. The same holds for a piece that had to stay because the
// system refused.
//
// A system call that writes to a moving piece fails (EFAULT) instead of waiting. Gloo may make such
// calls. So the sender waits for the device first, and only work that another thread submits in the
// remaining fraction of a millisecond per piece can be affected.
namespace {

std::array<std::atomic<IpcMemory*>, kMaxDevices> g_memories;
std::atomic<int> g_memory_count{0};

}  // namespace

IpcMemory::IpcMemory(void* aperture, std::size_t bytes, std::size_t granularity)
    : aperture_(static_cast<std::byte*>(aperture)),
      bytes_(bytes),
      granularity_(granularity),
      file_(bytes),
      states_(std::make_unique<std::atomic<PieceState>[]>(bytes / granularity)) {
  g_memories[static_cast<std::size_t>(g_memory_count.fetch_add(1))] = this;
}

std::byte* IpcMemory::begin_of(std::size_t piece) const noexcept {
  return aperture_ + piece * granularity_;
}

void IpcMemory::share(void* memory, std::size_t bytes) {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - aperture_);
  const std::size_t end = round_up(offset + bytes, granularity_) / granularity_;
  for (std::size_t piece = offset / granularity_; piece < end; ++piece) {
    if (states_[piece] != PieceState::kFile) move(piece);
  }
}

void IpcMemory::move(std::size_t piece) {
  set_write_fault_handler(
      &IpcMemory::wait_until_moved);  // again, as others may have replaced the handler
  std::byte* const begin = begin_of(piece);
  const std::size_t offset = piece * granularity_;
  states_[piece] = PieceState::kMoving;
  if (mprotect(begin, granularity_, PROT_READ) == 0 && copy_to_file(piece) &&
      file_.map_at(begin, offset, granularity_)) {
    states_[piece] = PieceState::kFile;
    return;
  }
  const int reason = errno;
  mprotect(begin, granularity_, PROT_READ | PROT_WRITE);
  states_[piece] = PieceState::kReturned;
  file_.discard(offset, granularity_);
  throw Error("openreg: cannot share device memory with other processes: " +
              std::generic_category().message(reason) +
              "; free tensors, raise `ulimit -f`, or send tensor.cpu()");
}

bool IpcMemory::copy_to_file(std::size_t piece) const noexcept {
  const FileSizeSignalBlock held;
  const std::size_t offset = piece * granularity_;
  for (std::size_t done = 0; done < granularity_;) {
    const auto written = pwrite(file_.descriptor(), begin_of(piece) + done, granularity_ - done,
                                static_cast<off_t>(offset + done));
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;  // the system sets none
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

bool IpcMemory::commit(void* memory, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - aperture_);
  if (!file_.map_at(memory, offset, bytes)) return false;
  for (std::size_t piece = offset / granularity_; piece < (offset + bytes) / granularity_; ++piece)
    states_[piece] = PieceState::kFile;
  return true;
}

void IpcMemory::forget(void* memory, std::size_t bytes) noexcept {
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(memory) - aperture_);
  for (std::size_t piece = offset / granularity_; piece < (offset + bytes) / granularity_;
       ++piece) {
    if (states_[piece].exchange(PieceState::kPrivate) == PieceState::kFile)
      file_.discard(piece * granularity_, granularity_);
  }
}

bool IpcMemory::waits_for(const void* address) const noexcept {
  const auto offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(aperture_);
  if (offset >= bytes_) return false;
  const auto& state = states_[offset / granularity_];
  while (state == PieceState::kMoving) sched_yield();
  return state != PieceState::kPrivate;
}

bool IpcMemory::wait_until_moved(const void* address) noexcept {
  for (const auto& slot : g_memories) {
    const IpcMemory* const memory = slot.load();
    // An empty slot is not the end: a device takes its slot before it fills it, and the device of
    // the next slot may be quicker.
    if (memory != nullptr && memory->waits_for(address)) return true;
  }
  return false;
}

}  // namespace openreg
