#include "train/snapshot.h"

#include "base/check.h"
#include "base/units.h"
#include "train/shard_pieces.h"

namespace moesaic {
namespace {

constexpr int64_t kAlignment = 64;

/// Calls f(what it holds, device memory, bytes) for each stretch of device memory that this rank saves.
template <class OnShard, class OnBias>
void for_each_stretch(Session& session, const OnShard& on_shard, const OnBias& on_bias) {
  Stage& stage = session.stage();
  const auto& buckets = stage.table().buckets();
  for (size_t b = 0; b < buckets.size(); ++b)
    for (const ShardArray& array : shard_arrays(session, static_cast<int32_t>(b)))
      on_shard(static_cast<int32_t>(b), array, buckets[b].shard() * size_of(array.dtype));
  if (session.rank().rank == 0)
    for_each_router_bias(stage, [&](const std::string& name, const float* bias) {
      on_bias(name, bias, stage.spec().model.num_experts * size_of(DType::f32));
    });
}

}  // namespace

int64_t snapshot_bytes(Session& session) {
  int64_t total = 0;
  for_each_stretch(
      session, [&](int32_t, const ShardArray&, int64_t bytes) { total += round_up(bytes, kAlignment); },
      [&](const std::string&, const float*, int64_t bytes) { total += round_up(bytes, kAlignment); });
  return total;
}

Snapshot::Snapshot(Session& session) : session_(session), bytes_(snapshot_bytes(session)) {
  Stage& stage = session.stage();
  std::byte* host = stage.device().host_memory(bytes_);
  const auto place = [&](const void* device, int64_t bytes) {
    std::byte* at = host;
    copies_.push_back({at, device, bytes});
    host += round_up(bytes, kAlignment);
    return at;
  };
  const auto add = [&](const std::string& kind, const std::string& name, DType dtype,
                       const std::vector<int64_t>& shape, int64_t begin, int64_t count, const void* data) {
    PieceToSave piece;
    piece.kind = kind, piece.name = name, piece.dtype = dtype, piece.shape = shape;
    piece.begin = begin, piece.count = count, piece.data = data;
    pieces_.push_back(std::move(piece));
  };
  for_each_stretch(
      session,
      [&](int32_t bucket, const ShardArray& array, int64_t bytes) {
        const std::byte* at = place(array.memory, bytes);
        for (const ParameterRow& row : stage.table().rows()) {
          if (row.bucket != bucket) continue;
          const ShardRange range = shard_range(session, row);
          if (range.count > 0)
            add(array.kind, row.name, array.dtype, extents(row.shape), range.in_row, range.count,
                at + range.in_shard * size_of(array.dtype));
        }
      },
      [&](const std::string& name, const float* bias, int64_t bytes) {
        const int64_t E = stage.spec().model.num_experts;
        add("router_bias", name, DType::f32, {E}, 0, E, place(bias, bytes));
      });
}

void Snapshot::take() {
  Device& device = session_.stage().device();
  for (const Copy& copy : copies_) device.fetch(copy.host, copy.device, copy.bytes);
}

}  // namespace moesaic
