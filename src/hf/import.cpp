#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/writer.h"
#include "config/enum_names.h"
#include "config/field_table.h"
#include "config/nearest.h"
#include "config/print.h"
#include "config/validate.h"
#include "hf/convert.h"
#include "hf/convert_type.h"
#include "hf/hf_folder.h"
#include "hf/tensor_list.h"

namespace moesaic {
namespace {

/// Where a tensor of ours comes from.
struct Source {
  NamedTensor tensor;    // with the vocabulary's rows as ours
  const HfTensor* from;  // with theirs
};

/// Tensors that earlier versions of transformers wrote and that follow from the configuration.
bool is_derived(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".rotary_emb.cos_cached") ||
         name.ends_with(".rotary_emb.sin_cached");
}

/// A tied head that was written out as well must be the embedding.
void check_tied_head(const HfFolder& folder, const HfTensor& head, const HfTensor& embedding) {
  const SafetensorsFile a(folder.file_path(head.file)), b(folder.file_path(embedding.file));
  const auto first = a.data(a.get(head.stored.name)), second = b.data(b.get(embedding.stored.name));
  require<ConfigError>(std::equal(first.begin(), first.end(), second.begin(), second.end()),
                       "{}: tie_word_embeddings is true, but {} holds {} with other values than {}",
                       folder.config().path(), folder.file_path(head.file), head.stored.name,
                       embedding.stored.name);
}

/// Finds each tensor of the model in the folder, and a use for each tensor of the folder.
std::vector<Source> match(const HfFolder& folder, const Family& family, const ModelConfig& theirs,
                          Converted& done) {
  const auto& tensors = folder.tensors();
  // The list below grows with the experts that the configuration announces: not before the files have as many.
  const auto announced =
      static_cast<size_t>((theirs.num_layers - theirs.num_dense_layers) * theirs.num_experts);
  require<IoError>(
      3 * announced <= tensors.size(),
      "{} announces {} experts with 3 tensors each, but the files beside it hold {} tensors in all",
      folder.config().path(), announced, tensors.size());
  std::map<std::string, HfTensor> unused = tensors;
  std::vector<Source> sources;
  std::vector<std::string> missing;
  for (NamedTensor& tensor : list_tensors(family, theirs)) {
    const auto found = tensors.find(tensor.theirs);
    if (found == tensors.end()) {
      missing.push_back(tensor.theirs);
      continue;
    }
    const StoredTensor& stored = found->second.stored;
    const std::string where = folder.file_path(found->second.file);
    require<IoError>(stored.dtype == DType::f32 || stored.dtype == DType::bf16 || stored.dtype == DType::f16,
                     "{}: {} has type {}; expected F32, BF16 or F16", where, stored.name,
                     safetensors_name(stored.dtype));
    require<IoError>(stored.shape == tensor.shape, "{}: {} has shape [{}], but {} makes it [{}]", where,
                     stored.name, fmt::join(stored.shape, ", "), kHfConfigName,
                     fmt::join(tensor.shape, ", "));
    unused.erase(tensor.theirs);
    sources.push_back({std::move(tensor), &found->second});
  }
  require<IoError>(missing.empty(), "{} lacks {}, which a {} model of this configuration has", folder.path(),
                   first_few(missing), family.model_type);
  if (const auto head = unused.find(their_name(family, "head"));
      theirs.tied_embedding && head != unused.end()) {
    check_tied_head(folder, head->second, tensors.at(their_name(family, "embedding")));
    unused.erase(head);
  }
  std::vector<std::string> unknown;
  for (const auto& [name, tensor] : unused)
    (is_derived(name) ? done.notes : unknown)
        .push_back(is_derived(name) ? fmt::format("left out: {}, which follows from the configuration", name)
                                    : name);
  require<IoError>(unknown.empty(), "{} holds {}, which no {} model of this configuration has", folder.path(),
                   first_few(unknown), family.model_type);
  return sources;
}

DType common_type(const std::vector<Source>& sources) {
  const bool all_bf16 = std::all_of(sources.begin(), sources.end(), [](const Source& source) {
    return source.from->stored.dtype == DType::bf16;
  });
  return all_bf16 ? DType::bf16 : DType::f32;
}

Piece whole(const NamedTensor& tensor, DType dtype, const std::string& where) {
  Piece piece;
  piece.kind = "weight", piece.name = tensor.ours, piece.dtype = dtype, piece.shape = tensor.shape;
  piece.count = checked_numel(tensor.shape, where);
  return piece;
}

/// Writes the tensors of one of their shards as one of ours.
ShardInfo write_shard(const CheckpointWriter& writer, const HfFolder& folder, size_t file,
                      const std::vector<Source>& sources, DType dtype, const BeforeTensor& before_tensor) {
  const SafetensorsFile shard(folder.file_path(file));
  std::vector<Piece> pieces;
  std::vector<const Source*> from;
  for (const Source& source : sources) {
    if (source.from->file != file) continue;
    pieces.push_back(whole(source.tensor, dtype, shard.path()));
    from.push_back(&source);
  }
  std::vector<std::byte> buffer;
  return writer.write_shard(static_cast<int64_t>(file), pieces, [&](size_t i) -> std::span<const std::byte> {
    if (before_tensor) before_tensor();
    const StoredTensor& stored = shard.get(from[i]->tensor.theirs);
    const auto size = static_cast<size_t>(pieces[i].bytes());
    std::vector<std::byte> data = shard.data(stored);
    if (stored.dtype == dtype) {
      buffer = std::move(data);
    } else {
      buffer.clear();
      append_as(data, stored.dtype, dtype, buffer);
    }
    buffer.resize(size);  // rows past the end of their vocabulary are zeros
    return buffer;
  });
}

/// The configuration that eval and generate take, and the start of run.toml.
Config config_for(const ModelConfig& model, const HfConfig& theirs, DType dtype,
                  const std::string& tokenizer) {
  constexpr int64_t kLongest = 4096;  // what a first run surely has the memory for; theirs may be a million
  Config config;
  config.model = model;
  config.train.compute = dtype == DType::bf16 ? ComputeType::bf16 : ComputeType::f32;
  config.train.seq_len = std::clamp<int64_t>(theirs.whole("max_position_embeddings", kLongest), 1, kLongest);
  if (!tokenizer.empty()) config.data.tokenizer = tokenizer;
  config.run.name = fmt::format("{}-continued", model.name);
  return config;
}

std::string run_toml(const Config& config, const std::string& from, const std::string& to) {
  const std::string all = print_config(config);
  const size_t begin = all.find("[model]"), end = all.find("[balance]");
  return fmt::format(
      "# Goes on from {}, a model of Hugging Face. Fill in data.train, steps and layout, then\n"
      "#   moesaic train {}/run.toml\n"
      "#   moesaic convert runs/{} FOLDER     back to Hugging Face\n"
      "# Every key: moesaic inspect keys\n\n"
      "{}"
      "[layout]\nn = 1\ndp = 1\n\n"
      "[optim]\nlr = 1e-5\nmin_lr = 1e-6\nwarmup_steps = 100\n\n"
      "[train]\nsteps = 1000\nseq_len = {}\nglobal_batch = 8\ncompute = \"{}\"\n\n"
      "[data]\ntrain = \"\"  # token file made with this model's tokenizer, without .bin and .idx\ntokenizer "
      "= {}\n\n"
      "[run]\nname = \"{}\"\ninit = {}\n",
      excerpt(from), excerpt(to), config.run.name, all.substr(begin, end - begin), config.train.seq_len,
      name_of(config.train.compute), toml_string(config.data.tokenizer), config.run.name, toml_string(to));
}

}  // namespace

Converted import_huggingface(const std::string& from, const std::string& to, const ImportOptions& options) {
  const HfFolder folder(from);
  const Family& family = family_of(folder.config());
  const ModelConfig theirs = read_model(family, folder.config());
  require<ConfigError>(
      options.vocab == 0 || options.vocab >= theirs.vocab,
      "--vocab {} is less than the {} rows of {}: a vocabulary can be filled up here, not cut", options.vocab,
      theirs.vocab, folder.config().path());
  Converted done{.family = std::string(family.model_type), .model = theirs, .their_vocab = theirs.vocab};
  std::vector<Source> sources = match(folder, family, theirs, done);
  if (options.vocab > 0) done.model.vocab = options.vocab;
  for (Source& source : sources)
    if (source.tensor.has_vocab()) source.tensor.shape[0] = done.model.vocab;
  done.dtype = options.dtype.value_or(common_type(sources));
  const bool tokenizes = path_exists(from + "/tokenizer.json") || path_exists(from + "/tokenizer.model");
  const Config config =
      config_for(done.model, folder.config(), done.dtype, tokenizes ? to + "/" + kHfKeptFolder : "");
  validate_values(config);
  for (const std::string& key : folder.config().not_understood())
    done.notes.push_back(fmt::format("not understood and passed over in {}: {}", kHfConfigName, key));

  NewFolder target(to);
  const CheckpointWriter writer(target.unfinished() + "/checkpoints", 0);
  writer.begin();
  std::vector<ShardInfo> shards;
  for (size_t file = 0; file < folder.files().size(); ++file)
    shards.push_back(write_shard(writer, folder, file, sources, done.dtype, options.before_tensor));
  writer.publish(shards, {{"config", print_config(config)},
                          {"step", 0},
                          {"num_updates", 0},
                          {"rows_factor", config.layout.rows_factor},
                          {"seconds", 0.0},
                          {"data_position", 0}});
  done.copied = copy_companions(from, target.unfinished() + "/" + kHfKeptFolder, true);
  AtomicFile toml(target.unfinished() + "/run.toml");
  toml.write(run_toml(config, from, to));
  toml.commit();
  if (options.before_tensor) options.before_tensor();
  target.commit();

  done.path = to;
  done.num_tensors = static_cast<int64_t>(sources.size());
  done.num_files = static_cast<int64_t>(shards.size());
  for (const Source& source : sources) {
    const Piece piece = whole(source.tensor, done.dtype, from);
    done.num_parameters += piece.count;
    done.bytes += piece.bytes();
  }
  return done;
}

}  // namespace moesaic
