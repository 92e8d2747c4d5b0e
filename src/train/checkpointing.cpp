#include "train/checkpointing.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weights.h"
#include "checkpoint/writer.h"
#include "config/parse.h"
#include "config/print.h"

namespace moesaic {
namespace {

std::vector<int64_t> dims(const Shape& shape) {
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(shape.num_dims()));
  for (int i = 0; i < shape.num_dims(); ++i) all.push_back(shape[i]);
  return all;
}

/// A range of a row that lies in a range of its bucket.
struct Range {
  int64_t in_row, in_bucket, count;
};

/// The part of a row that lies in elements [first, first + length) of its bucket.
Range part_of(const ParameterRow& row, int64_t first, int64_t length) {
  const int64_t begin = std::max(row.offset, first);
  const int64_t end = std::min(row.offset + row.shape.numel(), first + length);
  return {begin - row.offset, begin, std::max<int64_t>(end - begin, 0)};
}

/// Calls f(kind, row, range, dtype, device memory of the range) for everything that this rank's shards hold.
template <class F>
void for_each_shard_piece(Session& session, const F& f) {
  Stage& stage = session.stage();
  for (const ParameterRow& row : stage.table().rows()) {
    const Bucket& bucket = stage.table().buckets()[static_cast<size_t>(row.bucket)];
    const int64_t first = session.reducer().shard_index(row.bucket) * bucket.shard();
    const Range range = part_of(row, first, bucket.shard());
    if (range.count == 0) continue;
    const DType type = stage.spec().dtype;
    f("weight", row, range, type, stage.weights(row.bucket) + range.in_bucket * size_of(type));
    for (const Optimizer::State& state : session.optimizer().states())
      f(state.kind, row, range, state.dtype,
        state.shards[static_cast<size_t>(row.bucket)] + (range.in_bucket - first) * size_of(state.dtype));
  }
}

/// Calls f(name, memory) for the router bias of each layer that has one.
template <class F>
void for_each_router_bias(Stage& stage, const F& f) {
  const ModelConfig& m = stage.spec().model;
  if (!m.router.selection_bias) return;
  for (int64_t i = m.num_dense_layers; i < m.num_layers; ++i)
    f(fmt::format("layers.{}.moe.router_bias", i), stage.router_bias(i));
}

bool is_checkpoint(const std::string& path) {
  return path_exists(path + "/" + kManifestName);
}

/// Runs `work`; when it fails on any rank, every rank throws what the first of them said.
template <class F>
void together(Control& control, const F& work) {
  std::string problem;
  try {
    work();
  } catch (const Error& error) {
    problem = error.what();
  }
  for (const std::string& other : control.all_gather(problem)) require<IoError>(other.empty(), "{}", other);
}

}  // namespace

std::string save_checkpoint(Session& session, const std::string& folder, const RunState& state,
                            int64_t keep_last) {
  Control& control = session.rank().control;
  control.set_operation("save checkpoint");
  Stage& stage = session.stage();
  const CheckpointWriter writer(folder, state.step);
  together(control, [&] {
    if (control.rank() == 0) writer.begin();
  });
  std::vector<std::vector<std::byte>> memory;
  std::vector<PieceToSave> pieces;
  const auto add = [&](const std::string& kind, const std::string& name, DType type,
                       const std::vector<int64_t>& shape, int64_t begin, int64_t count,
                       const void* device_memory) {
    memory.emplace_back(static_cast<size_t>(count * size_of(type)));
    stage.device().fetch(memory.back().data(), device_memory, count * size_of(type));
    PieceToSave piece;
    piece.kind = kind, piece.name = name, piece.dtype = type, piece.shape = shape;
    piece.begin = begin, piece.count = count, piece.data = memory.back().data();
    pieces.push_back(piece);
  };
  for_each_shard_piece(session, [&](const std::string& kind, const ParameterRow& row, const Range& range,
                                    DType type, const std::byte* at) {
    add(kind, row.name, type, dims(row.shape), range.in_row, range.count, at);
  });
  if (control.rank() == 0)
    for_each_router_bias(stage, [&](const std::string& name, float* bias) {
      const int64_t E = stage.spec().model.num_experts;
      add("router_bias", name, DType::f32, {E}, 0, E, bias);
    });
  std::string info;
  together(control, [&] { info = encode_shard_info(writer.write_shard(control.rank(), pieces)); });
  std::vector<ShardInfo> infos;
  for (const std::string& other : control.all_gather(info)) infos.push_back(decode_shard_info(other, folder));
  together(control, [&] {
    if (control.rank() != 0) return;
    writer.publish(infos, {{"config", print_config(session.config())},
                           {"step", state.step},
                           {"num_updates", state.num_updates},
                           {"rows_factor", state.rows_factor},
                           {"seconds", state.seconds},
                           {"data_position", state.position}});
    prune_checkpoints(folder, keep_last);
  });
  return writer.path();
}

RunState load_checkpoint(Session& session, const CheckpointReader& reader) {
  require<ConfigError>(!session.trains() || !holds_weights_alone(reader),
                       "{} holds weights alone and no optimizer state: a run cannot be resumed from it, but "
                       "a new one can start "
                       "from it (run.init instead of --resume)",
                       reader.path());
  Stage& stage = session.stage();
  const DType type = stage.spec().dtype;
  struct Target {
    void* device;
    int64_t bytes;
  };
  std::vector<std::vector<std::byte>> memory;
  std::vector<PieceToLoad> wanted;
  std::vector<Target> targets;
  const auto add = [&](const std::string& kind, const std::string& name, DType dtype,
                       const std::vector<int64_t>& shape, int64_t begin, int64_t count, void* device_memory) {
    memory.emplace_back(static_cast<size_t>(count * size_of(dtype)));
    PieceToLoad piece;
    piece.kind = kind, piece.name = name, piece.dtype = dtype, piece.shape = shape;
    piece.begin = begin, piece.count = count, piece.data = memory.back().data();
    wanted.push_back(piece);
    targets.push_back({device_memory, count * size_of(dtype)});
  };
  for (const ParameterRow& row : stage.table().rows())
    add("weight", row.name, type, dims(row.shape), 0, row.shape.numel(),
        stage.weights(row.bucket) + row.offset * size_of(type));
  for_each_router_bias(stage, [&](const std::string& name, float* bias) {
    const int64_t E = stage.spec().model.num_experts;
    add("router_bias", name, DType::f32, {E}, 0, E, bias);
  });
  if (session.trains())
    for_each_shard_piece(session, [&](const std::string& kind, const ParameterRow& row, const Range& range,
                                      DType dtype, std::byte* at) {
      if (kind != "weight") add(kind, row.name, dtype, dims(row.shape), range.in_row, range.count, at);
    });
  reader.load(wanted, Conversion::none);
  for (size_t i = 0; i < targets.size(); ++i)
    stage.device().store(targets[i].device, memory[i].data(), targets[i].bytes);
  const auto& state = reader.state();
  try {
    return {.step = state.at("step"),
            .position = state.at("data_position"),
            .num_updates = state.at("num_updates"),
            .rows_factor = state.at("rows_factor"),
            .seconds = state.at("seconds")};
  } catch (const nlohmann::json::exception& error) {
    fail<IoError>("{}: the run's state is not complete ({}); this checkpoint cannot be used", reader.path(),
                  error.what());
  }
}

Config config_of(const CheckpointReader& reader) {
  const auto& state = reader.state();
  require<IoError>(state.contains("config") && state["config"].is_string(), "{}: holds no configuration",
                   reader.path());
  return parse_config_text(state["config"].get<std::string>(), reader.path());
}

std::string find_checkpoint(const std::string& path, int64_t before) {
  if (is_checkpoint(path)) return path;
  for (const std::string& folder : {path + "/checkpoints", path}) {
    if (!path_exists(folder)) continue;
    const auto found = find_latest_checkpoint(folder, before);
    for (const std::string& problem : found.damaged) log_warning("passing over a checkpoint: {}", problem);
    if (!found.path.empty()) return found.path;
  }
  fail<IoError>("{} is neither a checkpoint nor a run folder that holds a whole one{}", path,
                before < std::numeric_limits<int64_t>::max() ? fmt::format(" below step {}", before) : "");
}

std::string agree_on_checkpoint(Control& control, const std::string& path) {
  control.set_operation("find the checkpoint");
  for (int64_t before = std::numeric_limits<int64_t>::max();;) {
    std::string found;
    together(control, [&] {
      if (control.rank() == 0) found = find_checkpoint(path, before);
    });
    found = control.broadcast(found);
    int64_t step = 0;
    try {
      together(control, [&] {
        const CheckpointReader reader(found, Verify::sizes);
        step = reader.step();
        reader.verify_contents(control.rank(), control.size());
      });
      return found;
    } catch (const IoError& error) {
      if (found == path) throw;
      if (control.rank() == 0) log_warning("passing over a checkpoint: {}", error.what());
      before = step;
    }
  }
}

}  // namespace moesaic
