// How a reader treats bytes that no writer wrote: an error, or some arguments; never a crash.
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <exception>
#include <random>
#include <vector>

#include "../test_device.h"
#include "ops/launch/op_kernel.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_writer.h"
#include "ops/wire/ivalue_arguments.h"
#include "ops/wire/typed_arguments.h"
#include "base/command.h"
#include "base/error.h"
#include "slot.h"

namespace openreg::ops {
namespace {

const OpKernel mutating_kernel{"openreg_test::mutated", [](const OpKernel&, ArgumentReader&) {}};

/// Bytes without memory after them: a read beyond them crashes.
class Fenced {
 public:
  Fenced() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    begin_ = static_cast<std::byte*>(
        mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(begin_ + page_, page_, PROT_NONE);
  }
  ~Fenced() { munmap(begin_, 2 * page_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  std::span<const std::byte> hold(std::span<const std::byte> bytes) {
    const auto aligned = (bytes.size() + 15) / 16 * 16;
    std::byte* const begin = begin_ + page_ - aligned;
    std::memcpy(begin, bytes.data(), bytes.size());
    return {begin, bytes.size()};
  }

 private:
  const std::size_t page_;
  std::byte* begin_;
};

/// A command with arguments of all kinds, encoded.
std::vector<std::byte> written() {
  const auto a = empty_on(kDevice, {4, 6}, at::kFloat).t();
  const auto z = at::imag(empty_on(kDevice, {3}, at::kComplexFloat).conj());
  const auto host = at::full({}, 7, at::kLong);
  ArgumentWriter writer(mutating_kernel.name(), kDevice);
  Argument<at::Tensor>::write(writer, a);
  Argument<at::Tensor>::write(writer, z);
  Argument<std::optional<at::Tensor>>::write(writer, std::nullopt);
  Argument<at::Scalar>::write(writer, at::Scalar(2.5));
  Argument<at::IntArrayRef>::write(writer, {3, 4, 5});
  Argument<std::optional<std::string_view>>::write(writer, "floor");
  Argument<at::TensorList>::write(writer, std::vector<at::Tensor>{a, z, a});
  writer.tensor(host);
  write_ivalue(writer, c10::IValue(std::vector<std::int64_t>{1, 2}), *c10::ListType::ofInts(),
               Access::kRead, Numbers::kDecide);
  return encode(mutating_kernel, writer.finish());
}

/// Whether the tensor lies in these bytes; others point to device memory, which may not exist.
bool lies_in(std::span<const std::byte> bytes, const at::Tensor& tensor) {
  const auto* const data = static_cast<const std::byte*>(tensor.storage().data());
  return data >= bytes.data() && data < bytes.data() + bytes.size();
}

void read_all(std::span<const std::byte> arguments) {
  ArgumentReader reader(arguments);
  Argument<at::Tensor>::read(reader);
  Argument<at::Tensor>::read(reader);
  Argument<std::optional<at::Tensor>>::read(reader);
  Argument<at::Scalar>::read(reader);
  Argument<at::IntArrayRef>::read(reader);
  Argument<std::optional<std::string_view>>::read(reader);
  Argument<at::TensorList>::read(reader);
  const auto& host = reader.tensor();
  if (host.defined() && lies_in(arguments, host)) at::equal(host, host);  // reads all elements
  read_ivalue(reader);
}

class Mutations {
 public:
  void apply(std::vector<std::byte>& bytes) {
    for (auto left = below(4) + 1; left > 0; --left) {
      const auto at = below(bytes.size());
      switch (below(4)) {
        case 0:
          bytes[at] ^= std::byte{1} << below(8);
          break;
        case 1:
          bytes[at] = static_cast<std::byte>(below(256));
          break;
        case 2:
          set_word(bytes, at / 8 * 8);
          break;
        default:
          std::memmove(&bytes[at], &bytes[below(at + 1)], below(bytes.size() - at));
      }
    }
    if (below(8) == 0) bytes.resize(below(bytes.size() + 1));
  }

 private:
  std::size_t below(std::size_t end) { return end == 0 ? 0 : random_() % end; }
  void set_word(std::vector<std::byte>& bytes, std::size_t at) {
    constexpr std::uint64_t kWords[] = {0,          1,          ~0ULL,      1ULL << 63,
                                        1ULL << 62, 1ULL << 32, 0xFFFFFFFF, 0x7FFFFFFF,
                                        1ULL << 61, 8,          4096};
    if (at + 8 > bytes.size()) return;
    std::memcpy(&bytes[at], &kWords[below(std::size(kWords))], 8);
  }
  std::mt19937_64 random_{20261122};
};

TEST(MutatedArguments, AreAnErrorOrSomeArguments) {
  const auto command = written();
  Mutations mutations;
  Fenced fenced;
  int refused = 0;
  int read = 0;
  for (int i = 0; i < 200'000; ++i) {
    auto bytes = command;
    mutations.apply(bytes);
    try {
      const auto decoded = decode(bytes);
      if (decoded.kernel != &mutating_kernel) continue;
      read_all(fenced.hold(decoded.arguments));
      ++read;
    } catch (const std::exception&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50'000);
  EXPECT_GT(read, 5'000);
}

TEST(MutatedArguments, NothingIsReadOfATruncatedCommand) {
  const auto command = written();
  const auto whole = decode(command).arguments;
  Fenced fenced;
  for (std::size_t length = 0; length < whole.size(); length += 8) {
    const auto part = fenced.hold(std::span(whole).first(length));
    EXPECT_THROW(
        {
          expect_layout(part);
          read_all(part);
        },
        std::exception)
        << length;
  }
  EXPECT_NO_THROW(read_all(fenced.hold(whole)));
}

}  // namespace
}  // namespace openreg::ops
