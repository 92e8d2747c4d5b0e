#pragma once
// Hugging Face's folders to Moesaic's checkpoints and back. Both stream: one tensor is held at a time.
// Both check everything that can be known before they write, write beside the target and give it its name at the end, so
// that the target is whole or not there. All throw ConfigError for a model that cannot be said, IoError for files.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "config/config.h"

namespace moesaic {

/// What an imported folder and a run keep of the Hugging Face folder, for export: config.json and the tokenizer's files.
inline constexpr const char* kHfKeptFolder = "huggingface";

/// What was converted, for reports.
struct Converted {
  std::string family;       // "mixtral"
  std::string path;         // the checkpoint, or the folder
  ModelConfig model;        // of the checkpoint, whose vocabulary may be padded
  int64_t their_vocab = 0;  // rows of theirs
  int64_t num_tensors = 0;
  int64_t num_parameters = 0;
  int64_t bytes = 0;                // of all tensors as written
  DType dtype = DType::f32;         // as written
  int64_t num_files = 0;            // shards written
  std::vector<std::string> copied;  // tokenizer files and the like
  std::vector<std::string> notes;   // what a user should know: keys passed over, tensors left out, ...
};

/// Called before each tensor and once before the target gets its name; what it throws ends the work, and then nothing is left.
using BeforeTensor = std::function<void()>;

struct ImportOptions {
  std::optional<DType> dtype;  // f32 or bf16; none: bf16 if all their tensors are, else f32
  int64_t vocab = 0;           // rows to fill the vocabulary up to, with zeros; 0 = as theirs
  BeforeTensor before_tensor = {};
};

/// `from` (config.json, safetensors) to `to`, a new folder that counts as a run folder:
///   checkpoints/step_00000000   weights alone: for run.init, eval and generate, not for run.resume
///   huggingface/                config.json, tokenizer files
///   run.toml                    a run that starts from it; data and steps are to be filled in
Converted import_huggingface(const std::string& from, const std::string& to, const ImportOptions& options);

struct ExportOptions {
  std::optional<DType> dtype;  // f32 or bf16; none: as stored. f32 of a BF16 run gives its FP32 masters
  int64_t vocab = 0;           // rows to cut the vocabulary to; 0 = as like's config.json says, else all
  int64_t shard_bytes = 5'000'000'000;  // a file holds at most this, or one tensor
  std::string like;  // folder whose tokenizer files and other keys of config.json are taken; empty = none
  BeforeTensor before_tensor = {};
};

/// Weights of a checkpoint to `to`, a new folder with config.json and one model.safetensors, or several and their index.
Converted export_huggingface(const CheckpointReader& reader, const ModelConfig& model, const std::string& to,
                             const ExportOptions& options);

}  // namespace moesaic
