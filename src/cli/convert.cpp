#include "hf/convert.h"

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/units.h"
#include "cli/commands.h"
#include "hf/hf_folder.h"
#include "launch/exit_code.h"
#include "report/table.h"

namespace moesaic::cli {
namespace {

struct Options {
  std::string from, to, direction = "auto", dtype = "auto", like;
  int64_t vocab = 0;
  double shard_gb = 5;
};

std::optional<DType> dtype_of(const std::string& name) {
  if (name == "auto") return std::nullopt;
  return name == "bf16" ? DType::bf16 : DType::f32;
}

/// The kept Hugging Face files of a run folder, of a checkpoint's run, or of what the run started from; empty if none.
std::string find_kept(const std::string& from, const std::string& checkpoint, const Config& config) {
  const std::string run = (std::filesystem::path(checkpoint) / "../..").lexically_normal().string();
  std::vector<std::string> places{from, run};
  if (!config.run.init.empty()) {
    places.push_back(config.run.init);
    places.push_back(config.run.init + "/../..");
  }
  for (const std::string& place : places)
    if (path_exists(place + "/" + kHfKeptFolder)) return place + "/" + kHfKeptFolder;
  return "";
}

/// From here on Ctrl-C ends the work between two tensors, and what was written goes again.
BeforeTensor asking(const StopFlag& stop, void (*on_start)()) {
  on_start();
  return [&stop] {
    if (stop.load() != 0) throw CLI::RuntimeError(kExitInterrupted);
  };
}

Converted to_huggingface(const Options& options, const StopFlag& stop, void (*on_start)()) {
  const std::string checkpoint = find_checkpoint(options.from);
  const CheckpointReader reader(checkpoint);
  const Config config = config_of(reader);
  ExportOptions wanted{.dtype = dtype_of(options.dtype), .vocab = options.vocab, .like = options.like};
  wanted.shard_bytes = static_cast<int64_t>(options.shard_gb * 1e9);
  if (wanted.like.empty()) wanted.like = find_kept(options.from, checkpoint, config);
  wanted.before_tensor =
      asking(stop, on_start);  // the checkpoint was verified before: a signal ends that at once
  Converted done = export_huggingface(reader, config.model, options.to, wanted);
  if (done.copied.empty())
    done.notes.emplace_back(
        "no tokenizer files were found: --like FOLDER takes them from another model's folder");
  return done;
}

void print(const Converted& done, bool imported) {
  Table table({{"converted"}, {""}});
  table.add_row({"family", done.family});
  table.add_row({imported ? "run folder" : "Hugging Face folder", done.path});
  table.add_row({"parameters", format_count(static_cast<double>(done.num_parameters))});
  table.add_row({"tensors", fmt::format("{} in {} file{}", done.num_tensors, done.num_files,
                                        done.num_files == 1 ? "" : "s")});
  table.add_row({"bytes", fmt::format("{} as {}", format_bytes(done.bytes), name_of(done.dtype))});
  table.add_row({"vocabulary", done.model.vocab == done.their_vocab
                                   ? std::to_string(done.their_vocab)
                                   : fmt::format("{} here, {} there", done.model.vocab, done.their_vocab)});
  for (const std::string& name : done.copied) table.add_row({"copied", name});
  std::fputs(table.str().c_str(), stdout);
  for (const std::string& note : done.notes) std::printf("note: %s\n", note.c_str());
  if (imported)
    std::printf("next: fill in %s/run.toml, then moesaic train %s/run.toml\n", done.path.c_str(),
                done.path.c_str());
}

void run(const Options& options, const StopFlag& stop, void (*on_start)()) {
  const bool imports =
      options.direction == "auto" ? is_hf_folder(options.from) : options.direction == "moesaic";
  if (!imports) return print(to_huggingface(options, stop, on_start), false);
  require<ConfigError>(options.like.empty(), "--like is for the way to Hugging Face; {} comes from there",
                       options.from);
  const ImportOptions wanted{dtype_of(options.dtype), options.vocab, asking(stop, on_start)};
  print(import_huggingface(options.from, options.to, wanted), true);
}

}  // namespace

void add_convert(CLI::App& app, const StopFlag& stop, void (*on_start)()) {
  CLI::App* command = app.add_subcommand(
      "convert",
      "Models of Hugging Face to Moesaic and back: Mixtral, Qwen3-MoE, DeepSeekMoE, Phi-3.5-MoE.\n"
      "FROM a folder with config.json and safetensors: TO becomes a run folder with the weights, a\n"
      "run.toml to go on from, and the tokenizer.\n"
      "FROM a run folder or a checkpoint: TO becomes a folder that transformers loads.\n"
      "TO must not exist. docs/hugging_face.md tells more.");
  auto options = std::make_shared<Options>();
  command->add_option("from", options->from, "what to convert")->required()->type_name("FROM");
  command->add_option("target", options->to, "folder to make")->required()->type_name("TO");
  command->add_option("--to", options->direction, "the target's kind; auto: the other one than FROM's")
      ->check(CLI::IsMember({"auto", "hf", "moesaic"}))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "auto: as FROM stores them (F16 becomes f32)")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}))
      ->capture_default_str();
  command
      ->add_option("--vocab", options->vocab,
                   "rows of the vocabulary in TO: filled up with zeros to Moesaic, cut to Hugging Face")
      ->check(CLI::Range(1, 1 << 24))
      ->option_text("INT");
  command->add_option("--shard-gb", options->shard_gb, "largest file to Hugging Face, in 10^9 bytes")
      ->check(CLI::Range(0.001, 1000.0))
      ->capture_default_str();
  command
      ->add_option("--like", options->like,
                   "to Hugging Face: folder to take tokenizer files and other keys of config.json from;\n"
                   "found by itself where the run came from Hugging Face")
      ->type_name("FOLDER");
  command->footer(
      "  moesaic convert Qwen3-30B-A3B build/qwen3            from Hugging Face: build/qwen3/run.toml\n"
      "  moesaic convert runs/qwen3_moe-continued Qwen3-mine   the newest checkpoint, for transformers\n"
      "  moesaic convert runs/mine/checkpoints/step_00000100 out --dtype bf16 --shard-gb 2");
  command->callback([options, &stop, on_start] { run(*options, stop, on_start); });
}

}  // namespace moesaic::cli
