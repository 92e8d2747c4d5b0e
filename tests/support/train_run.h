#pragma once
// Whole training runs in a folder of their own, and what they leave behind.
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/token_file.h"
#include "support/layout_runner.h"
#include "support/temp_folder.h"
#include "train/checkpointing.h"
#include "train/trainer.h"

namespace moesaic::test {

/// A folder with token files and runs; every run of a test has its own name.
class TrainRun {
 public:
  TrainRun() {
    TokenFileWriter writer(folder_ / "text", DType::u16);
    std::vector<int32_t> ids;  // a text with something to learn: mostly the successor of the token before
    for (uint64_t i = 0; i < 6000; ++i)
      ids.push_back(i > 0 && random_uniform(11, 1, i) < 0.8f
                        ? (ids.back() * 3 + 1) % 67
                        : static_cast<int32_t>(random_below(67, 11, 2, i)));
    writer.append(ids);
    writer.end_document();
    writer.finish();
    null_ = std::fopen("/dev/null", "w");
  }
  ~TrainRun() { std::fclose(null_); }

  /// The small model with everything that a checkpoint must carry: AdamW or momentum, router bias, clipping.
  Config config(const std::string& name) const {
    Config c = small_config();
    c.model.router.selection_bias = true;
    c.model.router.bias_rate = 0.01;
    c.optim.kind = OptimizerKind::adamw;
    c.optim.eps = 1e-4;
    c.optim.warmup_steps = 2;
    c.optim.weight_decay = 0.1;
    c.optim.clip = 1;
    c.train.micro_batch = 2;
    c.train.steps = 6;
    c.train.keep_last = 100;
    c.data.train = folder_ / "text";
    c.run.folder = folder_ / "runs";
    c.run.name = name;
    return c;
  }
  TrainSummary train(const Config& config) const {
    const StopFlag stop{0};
    return moesaic::train(config, stop, null_);
  }
  std::string checkpoint(const std::string& name, int64_t step) const {
    return fmt::format("{}/{}/checkpoints/step_{:08}", folder_ / "runs", name, step);
  }
  std::FILE* null() const { return null_; }
  const TempFolder& folder() const { return folder_; }

  std::vector<nlohmann::json> lines(const std::string& name, const std::string& file) const {
    std::istringstream text(slurp(folder_ / ("runs/" + name + "/" + file)));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(text, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  std::vector<nlohmann::json> metrics(const std::string& name) const { return lines(name, "metrics.jsonl"); }
  /// The messages of one kind of event.
  std::vector<std::string> events(const std::string& name, const std::string& kind) const {
    std::vector<std::string> messages;
    for (const auto& event : lines(name, "events.jsonl"))
      if (event["event"] == kind) messages.push_back(event["message"]);
    return messages;
  }

 private:
  TempFolder folder_;
  std::FILE* null_;
};

/// Every tensor of a checkpoint, whole, as raw bytes, by "kind/name".
inline std::map<std::string, std::string> all_tensors(const std::string& checkpoint) {
  const CheckpointReader reader(checkpoint);
  std::map<std::string, std::string> all;
  for (const StoredPiece& piece : reader.pieces()) {
    std::string& bytes = all[piece.tensor()];
    if (!bytes.empty()) continue;
    int64_t count = 1;
    for (int64_t extent : piece.shape) count *= extent;
    bytes.resize(static_cast<size_t>(count * size_of(piece.dtype)));
    PieceToLoad want;
    static_cast<Piece&>(want) = piece;
    want.begin = 0, want.count = count, want.data = bytes.data();
    reader.load({&want, 1});
  }
  return all;
}

/// The same as numbers: f32 tensors.
inline Tensors float_tensors(const std::string& checkpoint) {
  Tensors all;
  for (const auto& [name, bytes] : all_tensors(checkpoint)) {
    auto& values = all[name];
    values.resize(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return all;
}

/// The state that a checkpoint carries apart from tensors, without what depends on the clock and on names of files.
inline nlohmann::json state_of(const std::string& checkpoint) {
  nlohmann::json state = CheckpointReader(checkpoint).state();
  state.erase("seconds");
  state.erase("config");
  return state;
}

/// A metrics line without what depends on the clock and on this process.
inline nlohmann::json timeless(nlohmann::json line) {
  for (const char* key : {"tokens_per_s", "seconds", "data_wait_s", "memory_bytes", "mfu"}) line.erase(key);
  return line;
}

}  // namespace moesaic::test
