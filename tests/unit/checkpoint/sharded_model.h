#pragma once
// A small model with known values, cut over any number of ranks, and the calls that save and load it.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/writer.h"

namespace moesaic {

/// Logical tensors with known values, each cut into equal ranges, one per rank, as a sharded optimizer does.
struct Model {
  std::vector<std::vector<int64_t>> shapes{{4, 5}, {7}, {}, {2, 3, 3}};
  std::vector<std::vector<float>> values;

  Model() {
    float next = 1;
    for (const auto& shape : shapes) {
      values.emplace_back(static_cast<size_t>(checked_numel(shape, "")));
      for (float& value : values.back()) value = next++;
    }
  }
  Piece piece(size_t tensor, int64_t begin, int64_t end, const std::string& kind = "master") const {
    return {kind, "t" + std::to_string(tensor), DType::f32, shapes[tensor], begin, end - begin};
  }
  std::vector<Piece> cut(int64_t rank, int64_t num_ranks) const {
    std::vector<Piece> pieces;
    for (size_t t = 0; t < shapes.size(); ++t) {
      const auto numel = static_cast<int64_t>(values[t].size());
      pieces.push_back(piece(t, numel * rank / num_ranks, numel * (rank + 1) / num_ranks));
    }
    return pieces;
  }
  PieceToSave to_save(const Piece& of) const {
    return {of, values[std::stoul(of.name.substr(1))].data() + of.begin};
  }
};

using Shards = std::vector<std::vector<PieceToSave>>;

inline std::vector<ShardInfo> write_shards(const CheckpointWriter& writer, const Shards& shards) {
  writer.begin();
  std::vector<ShardInfo> infos;
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    const ShardInfo info = writer.write_shard(static_cast<int64_t>(rank), shards[rank]);
    infos.push_back(decode_shard_info(encode_shard_info(info), "rank"));
  }
  return infos;
}

inline std::string save(const std::string& folder, int64_t step, const Shards& shards,
                        const nlohmann::json& state = {{"step", 1}}) {
  const CheckpointWriter writer(folder, step);
  writer.publish(write_shards(writer, shards), state);
  return writer.path();
}

inline Shards shards_of(const Model& model, int64_t num_ranks) {
  Shards shards;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    shards.emplace_back();
    for (const Piece& piece : model.cut(rank, num_ranks)) shards.back().push_back(model.to_save(piece));
  }
  return shards;
}

template <class F>
std::string io_error_of(F&& f) {
  try {
    f();
  } catch (const IoError& error) {
    return error.what();
  }
  return "no IoError";
}

inline std::vector<float> load_one(const CheckpointReader& reader, const Piece& piece) {
  std::vector<float> values(static_cast<size_t>(piece.count), -1.0f);
  reader.load(std::vector<PieceToLoad>{{piece, values.data()}});
  return values;
}

}  // namespace moesaic
