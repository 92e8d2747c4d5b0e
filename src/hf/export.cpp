#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/weights.h"
#include "hf/convert.h"
#include "hf/convert_type.h"
#include "hf/hf_folder.h"
#include "hf/tensor_list.h"

namespace moesaic {
namespace {

using nlohmann::json;

struct Target {
  NamedTensor tensor;  // with the vocabulary's rows as theirs
  StoredWeight stored;
  int64_t bytes = 0;
};

/// Pairs the model's tensors with the checkpoint's, all of them on both sides.
std::vector<Target> match(const CheckpointReader& reader, const Family& family, const ModelConfig& model) {
  std::map<std::string, StoredWeight> stored;
  for (StoredWeight& weight : stored_weights(reader)) stored.emplace(weight.name, weight);
  std::vector<Target> targets;
  for (NamedTensor& tensor : list_tensors(family, model)) {
    const auto found = stored.find(tensor.ours);
    require<IoError>(found != stored.end() && found->second.shape == tensor.shape,
                     "{}: weight/{} is not there, or not [{}] as its configuration says", reader.path(),
                     tensor.ours, fmt::join(tensor.shape, ", "));
    targets.push_back({std::move(tensor), std::move(found->second)});
    stored.erase(found);
  }
  require<IoError>(stored.empty(), "{} holds weight/{}, which a model of its configuration has not",
                   reader.path(), stored.empty() ? "" : stored.begin()->first);
  return targets;
}

/// How many of the targets go into each file, in order.
std::vector<size_t> cut_into_files(const std::vector<Target>& targets, int64_t shard_bytes) {
  std::vector<size_t> counts;
  int64_t room = 0;
  for (const Target& target : targets) {
    if (counts.empty() || target.bytes > room) {
      counts.push_back(0);
      room = shard_bytes;
    }
    ++counts.back();
    room -= target.bytes;
  }
  return counts;
}

/// The tensor as it is to be written, its vocabulary cut.
std::vector<std::byte> read_as(const CheckpointReader& reader, const Target& target, DType dtype) {
  std::vector<std::byte> bytes;
  if (target.stored.dtype == dtype) {
    PieceToLoad piece;
    piece.kind = "weight", piece.name = target.stored.name, piece.dtype = dtype,
    piece.shape = target.stored.shape;
    piece.count = target.bytes / size_of(dtype);
    bytes.resize(static_cast<size_t>(target.bytes));
    piece.data = bytes.data();
    reader.load(std::span(&piece, 1));
    return bytes;
  }
  const std::vector<float> master = read_master(reader, target.stored);
  append_as(std::as_bytes(std::span(master)), DType::f32, dtype, bytes);
  bytes.resize(static_cast<size_t>(target.bytes));
  return bytes;
}

void write_text(const std::string& path, const json& value) {
  AtomicFile file(path);
  file.write(value.dump(2) + "\n");
  file.commit();
}

/// config.json and its vocabulary of the folder that the export should be like; nothing if it is of another family.
json like_config(const Family& family, const std::string& folder, Converted& done) {
  const std::string path = folder + "/" + kHfConfigName;
  if (folder.empty() || !path_exists(path)) return {};
  const HfConfig like = HfConfig::read(path);
  if (like.text("model_type", "") == family.model_type) return like.object();
  done.notes.push_back(
      fmt::format("{} is of another family and was not used: this model is a {}", path, family.model_type));
  return {};
}

}  // namespace

Converted export_huggingface(const CheckpointReader& reader, const ModelConfig& model, const std::string& to,
                             const ExportOptions& options) {
  const Family& family = family_for(model);
  Converted done{
      .family = std::string(family.model_type), .path = to, .model = model, .their_vocab = model.vocab};
  const json like = like_config(family, options.like, done);
  if (options.vocab > 0)
    done.their_vocab = options.vocab;
  else if (!like.is_null())
    done.their_vocab = std::min(model.vocab, HfConfig(like, options.like).whole("vocab_size", model.vocab));
  require<ConfigError>(done.their_vocab <= model.vocab && done.their_vocab > 0,
                       "--vocab {}: the model has {} rows, and export can only cut them", done.their_vocab,
                       model.vocab);
  std::vector<Target> targets = match(reader, family, model);
  const bool all_bf16 = std::all_of(targets.begin(), targets.end(),
                                    [](const Target& target) { return target.stored.dtype == DType::bf16; });
  done.dtype = options.dtype.value_or(all_bf16 ? DType::bf16 : DType::f32);
  for (Target& target : targets) {
    if (target.tensor.has_vocab()) target.tensor.shape[0] = done.their_vocab;
    const int64_t count = checked_numel(target.tensor.shape, to);
    target.bytes = count * size_of(done.dtype);
    done.num_parameters += count;
    done.bytes += target.bytes;
  }
  done.num_tensors = static_cast<int64_t>(targets.size());

  ModelConfig theirs = model;
  theirs.vocab = done.their_vocab;
  json config = write_model(family, theirs, like);
  // What was taken over from `like` must not make another model of it.
  read_model(family, HfConfig(config, (like.is_null() ? to : options.like) + "/" + kHfConfigName));

  const std::vector<size_t> counts = cut_into_files(targets, options.shard_bytes);
  done.num_files = static_cast<int64_t>(counts.size());
  NewFolder folder(to);
  json weight_map = json::object();
  for (size_t file = 0, first = 0; file < counts.size(); first += counts[file++]) {
    const std::string name = counts.size() == 1
                                 ? kHfWeightsName
                                 : fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, counts.size());
    std::vector<StoredTensor> tensors;
    for (size_t i = first; i < first + counts[file]; ++i) {
      tensors.push_back({targets[i].tensor.theirs, done.dtype, targets[i].tensor.shape});
      weight_map[targets[i].tensor.theirs] = name;
    }
    SafetensorsWriter writer(folder.unfinished() + "/" + name, tensors, {{"format", "pt"}});
    for (const size_t i : writer.order()) {
      if (options.before_tensor) options.before_tensor();
      writer.append(read_as(reader, targets[first + i], done.dtype));
    }
    writer.finish();
  }
  if (counts.size() > 1)
    write_text(folder.unfinished() + "/" + kHfIndexName,
               {{"metadata", {{"total_size", done.bytes}}}, {"weight_map", weight_map}});
  config["torch_dtype"] = done.dtype == DType::bf16 ? "bfloat16" : "float32";
  config.erase("dtype");  // what transformers 5 calls it; it reads both
  write_text(folder.unfinished() + "/" + kHfConfigName, config);
  if (!options.like.empty()) done.copied = copy_companions(options.like, folder.unfinished(), false);
  if (options.before_tensor) options.before_tensor();
  folder.commit();
  return done;
}

}  // namespace moesaic
