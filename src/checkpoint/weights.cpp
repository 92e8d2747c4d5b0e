#include "checkpoint/weights.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace moesaic {
namespace {

constexpr const char *kWeight = "weight", *kRemainder = "remainder", *kRouterBias = "router_bias";

template <class T>
std::vector<T> read_whole(const CheckpointReader& reader, const char* kind, const StoredWeight& weight,
                          DType dtype) {
  std::vector<T> values(static_cast<size_t>(checked_numel(weight.shape, reader.path())));
  PieceToLoad piece;
  piece.kind = kind, piece.name = weight.name, piece.dtype = dtype, piece.shape = weight.shape;
  piece.count = static_cast<int64_t>(values.size()), piece.data = values.data();
  reader.load(std::span(&piece, 1));
  return values;
}

}  // namespace

std::vector<StoredWeight> stored_weights(const CheckpointReader& reader) {
  std::vector<std::string> with_remainder;  // sorted, as the pieces are
  for (const StoredPiece& piece : reader.pieces())
    if (piece.kind == kRemainder && (with_remainder.empty() || with_remainder.back() != piece.name))
      with_remainder.push_back(piece.name);
  std::vector<StoredWeight> weights;
  for (const StoredPiece& piece : reader.pieces()) {
    if (piece.kind != kWeight || (!weights.empty() && weights.back().name == piece.name)) continue;
    require<IoError>(piece.dtype == DType::f32 || piece.dtype == DType::bf16,
                     "{}: {} is stored as {}; expected f32 or bf16", reader.path(), piece.tensor(),
                     name_of(piece.dtype));
    weights.push_back({piece.name, piece.dtype, piece.shape,
                       piece.dtype == DType::bf16 &&
                           std::binary_search(with_remainder.begin(), with_remainder.end(), piece.name)});
  }
  return weights;
}

std::vector<float> read_master(const CheckpointReader& reader, const StoredWeight& weight) {
  if (weight.dtype == DType::f32) return read_whole<float>(reader, kWeight, weight, DType::f32);
  const auto upper = read_whole<uint16_t>(reader, kWeight, weight, DType::bf16);
  std::vector<uint16_t> lower;
  if (weight.has_remainder) lower = read_whole<uint16_t>(reader, kRemainder, weight, DType::u16);
  std::vector<float> values(upper.size());
  for (size_t i = 0; i < upper.size();
       ++i) {  // bits = upper * 2^16 + signed lower (ops/optimizer/optimizer.h)
    uint32_t bits = static_cast<uint32_t>(upper[i]) << 16;
    if (weight.has_remainder) bits += static_cast<uint32_t>(static_cast<int16_t>(lower[i]));
    values[i] = std::bit_cast<float>(bits);
  }
  return values;
}

bool holds_weights_alone(const CheckpointReader& reader) {
  return std::all_of(reader.pieces().begin(), reader.pieces().end(), [](const StoredPiece& piece) {
    return piece.kind == kWeight || piece.kind == kRouterBias;
  });
}

}  // namespace moesaic
