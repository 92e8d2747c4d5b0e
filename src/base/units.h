#pragma once
// Numbers as people read them.
#include <cstdint>
#include <string>

namespace moesaic {

/// "512 B", "1.50 KiB", "3.2 GiB"
std::string format_bytes(int64_t bytes);
/// "950", "12.3k", "46.7 B" (thousand, million, billion, trillion: k, M, B, T)
std::string format_count(double count);
/// "7.00 MFLOP", "282.51 GFLOP"
std::string format_flops(double operations);
/// "850 us", "12.3 ms", "4.5 s", "2 min 05 s", "1 h 12 min"
std::string format_seconds(double seconds);

}  // namespace moesaic
