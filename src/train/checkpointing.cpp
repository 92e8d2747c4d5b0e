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
#include "config/parse.h"
#include "train/agreement.h"
#include "train/shard_pieces.h"

namespace moesaic {
namespace {

bool is_checkpoint(const std::string& path) {
  return path_exists(path + "/" + kManifestName);
}

}  // namespace

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
    add("weight", row.name, type, extents(row.shape), 0, row.shape.numel(),
        stage.weights(row.bucket) + row.offset * size_of(type));
  for_each_router_bias(stage, [&](const std::string& name, float* bias) {
    const int64_t E = stage.spec().model.num_experts;
    add("router_bias", name, DType::f32, {E}, 0, E, bias);
  });
  if (session.trains())
    for (const ParameterRow& row : stage.table().rows()) {
      const ShardRange range = shard_range(session, row);
      if (range.count == 0) continue;
      for (const ShardArray& array : shard_arrays(session, row.bucket))
        if (array.kind != "weight")
          add(array.kind, row.name, array.dtype, extents(row.shape), range.in_row, range.count,
              array.memory + range.in_shard * size_of(array.dtype));
    }
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
