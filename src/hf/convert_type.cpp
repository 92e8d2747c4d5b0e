#include "hf/convert_type.h"

#include <cstring>

#include "base/check.h"

namespace moesaic {
namespace {

template <class Stored, class F>
void convert(std::span<const std::byte> from, DType to, std::byte* out, const F& value) {
  const size_t count = from.size() / sizeof(Stored);
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from.data() + i * sizeof(Stored), sizeof(Stored));
    const float wide = value(stored);
    if (to == DType::f32) {
      std::memcpy(out + 4 * i, &wide, 4);
    } else {
      const bf16 narrow(wide);
      std::memcpy(out + 2 * i, &narrow, 2);
    }
  }
}

}  // namespace

void append_as(std::span<const std::byte> from, DType type, DType to, std::vector<std::byte>& out) {
  MOESAIC_CHECK(to == DType::f32 || to == DType::bf16, "{}", name_of(to));
  const size_t begin = out.size(), count = from.size() / static_cast<size_t>(size_of(type));
  out.resize(begin + count * static_cast<size_t>(size_of(to)));
  std::byte* at = out.data() + begin;
  if (type == to) {
    if (!from.empty()) std::memcpy(at, from.data(), from.size());
    return;
  }
  switch (type) {
    case DType::f32:
      return convert<float>(from, to, at, [](float v) { return v; });
    case DType::bf16:
      return convert<bf16>(from, to, at, [](bf16 v) { return static_cast<float>(v); });
    case DType::f16:
      return convert<uint16_t>(from, to, at, half_to_float);
    default:
      MOESAIC_CHECK(false, "{}", name_of(type));
  }
}

}  // namespace moesaic
