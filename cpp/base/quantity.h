#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace openreg {

/// A number of bytes, for people: "0 bytes", "1 byte", "1023 bytes", "1.00 KiB", "20.00 MiB",
/// "16.00 EiB". All messages state sizes in this way, as PyTorch's do, unless the exact number is
/// the point.
std::string format_size(std::uint64_t bytes);

/// A number with its noun, whose plural ends in "s": "1 block", "2 blocks".
std::string format_count(std::uint64_t count, std::string_view noun);

}  // namespace openreg
