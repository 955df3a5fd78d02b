#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/round_up.h"
#include "memory/backing.h"
#include "memory/block.h"

namespace openreg::memory::testing {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;

/// A stream that is only compared by its address.
inline Stream& fake_stream(int number) {
  static char streams[8];
  return reinterpret_cast<Stream&>(streams[number]);
}

/// A device of some MiB whose memory consists only of numbers, and whose events complete when the
/// test decides.
class FakeBacking final : public Backing {
 public:
  explicit FakeBacking(std::size_t capacity = 64 * kMiB) : capacity_(capacity) {}
  ~FakeBacking() override = default;
  FakeBacking(const FakeBacking&) = delete;
  FakeBacking& operator=(const FakeBacking&) = delete;

  Addresses addresses() const override { return {kBegin, kPages * kSegmentBytes}; }

  void* map(std::size_t bytes) override {
    maps.push_back(bytes);
    if (bytes > capacity_ - mapped()) return nullptr;
    const std::size_t count = bytes / kSegmentBytes;
    std::size_t page = first_free(count, room_pages);
    if (page == kPages) page = first_free(count, 0);
    if (page == kPages) return nullptr;
    take(page, count);
    return reinterpret_cast<void*>(kBegin + page * kSegmentBytes);
  }
  bool extend(void* end, std::size_t bytes) override {
    const std::size_t page = page_of(end);
    const std::size_t count = bytes / kSegmentBytes;
    EXPECT_TRUE(page > 0 && pages_[page - 1]) << "extended where nothing is mapped";
    if (!may_extend || bytes > capacity_ - mapped() || !is_free(page, count)) return false;
    extensions.push_back(bytes);
    take(page, count);
    return true;
  }
  Addresses reserve(std::size_t page) override {
    const std::size_t wanted = round_up(capacity_ + capacity_ / 8, page) / kSegmentBytes;
    const std::size_t count = std::min(wanted, most_reserved / page * page / kSegmentBytes);
    const std::size_t first = first_free(count, 0);
    if (first == kPages || count == 0) return {0, 0};
    set(reserved_, first, count, true);
    return {kBegin + first * kSegmentBytes, count * kSegmentBytes};
  }
  void unreserve(Addresses addresses) noexcept override {
    const std::size_t page = (addresses.begin - kBegin) / kSegmentBytes;
    const std::size_t count = addresses.bytes / kSegmentBytes;
    EXPECT_FALSE(any(pages_, page, count)) << "unreserved addresses of mapped memory";
    EXPECT_TRUE(any(reserved_, page, count));
    set(reserved_, page, count, false);
  }
  bool map_at(void* address, std::size_t bytes) override {
    const std::size_t page = page_of(address);
    const std::size_t count = bytes / kSegmentBytes;
    EXPECT_TRUE(reserved_.at(page) && reserved_.at(page + count - 1))
        << "mapped unreserved addresses";
    EXPECT_FALSE(any(pages_, page, count)) << "mapped twice";
    if (bytes > capacity_ - mapped()) return false;
    placed.emplace_back(page * kSegmentBytes, bytes);
    take(page, count);
    return true;
  }
  void unmap(void* memory, std::size_t bytes) noexcept override {
    unmaps.push_back(bytes);
    const std::size_t page = page_of(memory);
    EXPECT_TRUE(bytes > 0 && bytes % kSegmentBytes == 0) << bytes;
    for (std::size_t i = page; i < page + bytes / kSegmentBytes; ++i) {
      EXPECT_TRUE(pages_.at(i)) << "unmapped what is not mapped";
      pages_.at(i) = false;
    }
    mapped_ -= bytes;
  }
  std::unique_ptr<RecordedEvent> record_event(Stream& stream) override {
    if (records_throw) throw std::runtime_error("no events");
    events.push_back({&stream, std::make_shared<bool>(false)});
    return std::make_unique<FakeEvent>(events.back().completed);
  }

  /// How many addresses are reserved.
  std::size_t reserved() const {
    return kSegmentBytes * static_cast<std::size_t>(std::ranges::count(reserved_, true));
  }
  std::size_t capacity() const { return capacity_; }
  std::size_t mapped() const { return mapped_; }
  /// Completes the events that were recorded on a stream.
  void complete(const Stream& stream) {
    for (auto& event : events) {
      if (event.stream == &stream) *event.completed = true;
    }
  }
  void complete(std::size_t event) { *events.at(event).completed = true; }

  // The heap's requests.
  std::vector<std::size_t> maps;
  std::vector<std::size_t> extensions;  // granted ones
  std::vector<std::size_t> unmaps;
  std::vector<std::pair<std::size_t, std::size_t>>
      placed;  // where, in bytes from the begin, and size
  struct Given {
    Stream* stream;
    std::shared_ptr<bool> completed;
  };
  std::vector<Given> events;

  // How requests are answered.
  bool may_extend = true;
  bool records_throw = false;
  std::size_t most_reserved = kPages * kSegmentBytes;  ///< bytes at once
  std::size_t room_pages = 64;  ///< between mapped ranges, as long as there are addresses; 0: none

 private:
  struct FakeEvent final : RecordedEvent {
    explicit FakeEvent(std::shared_ptr<bool> flag) : flag(std::move(flag)) {}
    bool completed() const noexcept override { return *flag; }
    std::shared_ptr<bool> flag;
  };

  static constexpr std::uintptr_t kBegin = std::uintptr_t{1} << 40;
  static constexpr std::size_t kPages = 1024;

  static std::size_t page_of(void* address) {
    const auto offset = reinterpret_cast<std::uintptr_t>(address) - kBegin;
    EXPECT_EQ(offset % kSegmentBytes, 0U);
    return offset / kSegmentBytes;
  }
  bool is_free(std::size_t page, std::size_t count) const {
    if (page + count > kPages) return false;
    return !any(pages_, page, count) && !any(reserved_, page, count);
  }
  static bool any(const std::vector<bool>& of, std::size_t page, std::size_t count) {
    const auto begin = of.begin() + static_cast<std::ptrdiff_t>(page);
    const auto end = begin + static_cast<std::ptrdiff_t>(count);
    return std::find(begin, end, true) != end;
  }
  static void set(std::vector<bool>& of, std::size_t page, std::size_t count, bool value) {
    std::fill_n(of.begin() + static_cast<std::ptrdiff_t>(page), count, value);
  }
  // The lowest place with this much room on both sides; kPages if there is none.
  std::size_t first_free(std::size_t count, std::size_t room) const {
    for (std::size_t page = 0; page + count <= kPages; ++page) {
      const std::size_t begin = page - std::min(page, room);
      const std::size_t end = std::min(page + count + room, kPages);
      if (is_free(begin, end - begin)) return page;
    }
    return kPages;
  }
  void take(std::size_t page, std::size_t count) {
    set(pages_, page, count, true);
    mapped_ += count * kSegmentBytes;
  }

  std::size_t capacity_;
  std::size_t mapped_ = 0;
  std::vector<bool> pages_ = std::vector<bool>(kPages, false);
  std::vector<bool> reserved_ = std::vector<bool>(kPages, false);
};

}  // namespace openreg::memory::testing
