// Whole folders in and out again.
#include "hf/convert.h"

#include <gmock/gmock.h>
#include <malloc.h>

#include <bit>
#include <fstream>
#include <functional>

#include "checkpoint/weights.h"
#include "checkpoint/writer.h"
#include "config/parse.h"
#include "config/validate.h"
#include "support/hf_model.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConvertTest : public testing::Test {
 protected:
  Converted import(const json& config, const Weights& weights, const ImportOptions& options = {},
                   size_t files = 1) {
    write_hf_folder(hf_, config, weights, files);
    return import_huggingface(hf_, run_, options);
  }
  Converted export_again(ExportOptions options = {}) {
    if (options.like.empty()) options.like = run_ + "/huggingface";
    remove_tree(back_);
    const CheckpointReader reader(checkpoint());
    return export_huggingface(reader, config().model, back_, options);
  }
  std::string checkpoint() const { return run_ + "/checkpoints/step_00000000"; }
  Config config() const {
    return parse_config_text(CheckpointReader(checkpoint()).state()["config"].get<std::string>(),
                             "checkpoint");
  }
  std::vector<float> master(const std::string& name) const {
    const CheckpointReader reader(checkpoint());
    for (const StoredWeight& weight : stored_weights(reader))
      if (weight.name == name) return read_master(reader, weight);
    ADD_FAILURE() << name;
    return {};
  }
  static void expect_same(const Weights& found, const Weights& expected) {
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [name, weight] : expected) {
      ASSERT_TRUE(found.contains(name)) << name;
      EXPECT_EQ(found.at(name).tensor.dtype, weight.tensor.dtype) << name;
      EXPECT_EQ(found.at(name).tensor.shape, weight.tensor.shape) << name;
      EXPECT_TRUE(found.at(name).bytes == weight.bytes) << name;
    }
  }

  TempFolder temp_;
  const std::string hf_ = temp_ / "hf", run_ = temp_ / "run", back_ = temp_ / "back";
};

TEST_F(ConvertTest, ReturnsEachFamilyBitForBit) {
  for (const json& config : {mixtral_json(), qwen3_moe_json(), deepseek_json(), phimoe_json()})
    for (const DType type : {DType::f32, DType::bf16}) {
      remove_tree(hf_), remove_tree(run_);
      const Weights weights = make_weights(config, type);
      const Converted in = import(config, weights);
      EXPECT_EQ(in.dtype, type);
      EXPECT_EQ(in.num_tensors, static_cast<int64_t>(weights.size()));
      const Converted out = export_again();
      EXPECT_EQ(out.family, config["model_type"].get<std::string>());
      EXPECT_EQ(out.num_parameters, in.num_parameters);
      expect_same(read_hf_folder(back_), weights);
      const HfConfig written = HfConfig::read(back_ + "/config.json");
      for (const auto& [key, value] : config.items()) {
        if (value.is_null() || key == "torch_dtype" || key == "sliding_window") continue;
        EXPECT_EQ(written.object().value(key, json()), value) << key;
      }
    }
}

TEST_F(ConvertTest, ReadsShardsAndWritesShards) {
  const Weights weights = make_weights(qwen3_moe_json(), DType::bf16);
  EXPECT_EQ(import(qwen3_moe_json(), weights, {}, 2).num_files, 2);
  const Converted out = export_again({.shard_bytes = 4000});
  EXPECT_GT(out.num_files, 2);
  expect_same(read_hf_folder(back_), weights);
  const json index = json::parse(slurp(back_ + "/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], out.bytes);
  for (const std::string& name : list_folder(back_))
    if (name.ends_with(".safetensors")) {
      EXPECT_THAT(name, HasSubstr(fmt::format("-of-{:05}.safetensors", out.num_files)));
      const SafetensorsFile file(back_ + "/" + name);
      EXPECT_EQ(file.metadata().at("format"), "pt");
      int64_t bytes = 0;
      for (const StoredTensor& tensor : file.tensors()) bytes += tensor.bytes;
      EXPECT_LE(bytes, 4000);
    }
}

TEST_F(ConvertTest, PutsATensorLargerThanAShardIntoOneOfItsOwn) {
  const Weights weights = make_weights(mixtral_json(), DType::f32);
  import(mixtral_json(), weights);
  EXPECT_EQ(export_again({.shard_bytes = 1}).num_files, static_cast<int64_t>(weights.size()));
  expect_same(read_hf_folder(back_), weights);
}

TEST_F(ConvertTest, MakesHalfPrecisionFp32AndMixedFilesToo) {
  const Weights exact = make_weights(mixtral_json(), DType::f32);
  EXPECT_EQ(import(mixtral_json(), make_weights(mixtral_json(), DType::f16)).dtype, DType::f32);
  export_again();
  expect_same(read_hf_folder(back_), exact);

  remove_tree(hf_), remove_tree(run_);
  Weights mixed = make_weights(mixtral_json(), DType::bf16);
  mixed["model.norm.weight"] = exact.at("model.norm.weight");
  EXPECT_EQ(import(mixtral_json(), mixed).dtype, DType::f32);
  export_again();
  expect_same(read_hf_folder(back_), exact);
}

TEST_F(ConvertTest, ConvertsTypesWhenAsked) {
  const Weights wide = make_weights(mixtral_json(), DType::f32),
                narrow = make_weights(mixtral_json(), DType::bf16);
  import(mixtral_json(), wide, {.dtype = DType::bf16});
  EXPECT_EQ(config().train.compute, ComputeType::bf16);
  export_again();
  expect_same(read_hf_folder(back_), narrow);  // the values are exact in BF16
  export_again({.dtype = DType::f32});
  expect_same(read_hf_folder(back_), wide);
  EXPECT_EQ(HfConfig::read(back_ + "/config.json").object()["torch_dtype"], "float32");
}

TEST_F(ConvertTest, FillsTheVocabularyUpAndCutsItAgain) {
  const Weights weights = make_weights(qwen3_moe_json(), DType::bf16);
  EXPECT_EQ(import(qwen3_moe_json(), weights, {.vocab = 64}).their_vocab, 33);
  EXPECT_EQ(config().model.vocab, 64);
  for (const char* name : {"embedding", "head"}) {
    const std::vector<float> rows = master(name);
    ASSERT_EQ(rows.size(), 64u * 16u);
    EXPECT_NE(rows[32 * 16], 0);
    for (size_t i = size_t{33} * 16; i < rows.size(); ++i) ASSERT_EQ(rows[i], 0) << name;
  }
  EXPECT_EQ(export_again().their_vocab, 33);
  expect_same(read_hf_folder(back_), weights);
  export_again({.vocab = 20});
  EXPECT_EQ(read_hf_folder(back_).at("lm_head.weight").tensor.shape, (std::vector<int64_t>{20, 16}));
  EXPECT_EQ(HfConfig::read(back_ + "/config.json").whole("vocab_size"), 20);
  EXPECT_THAT(message_of([&] { export_again({.vocab = 65}); }), HasSubstr("the model has 64 rows"));
}

TEST_F(ConvertTest, DoesNotCutTheVocabularyOnTheWayIn) {
  EXPECT_THAT(
      message_of([&] { import(mixtral_json(), make_weights(mixtral_json(), DType::f32), {.vocab = 32}); }),
      HasSubstr("--vocab 32"));
}

TEST_F(ConvertTest, WritesTheMastersOfABf16Run) {
  const json theirs = mixtral_json();
  const ModelConfig model = model_of(theirs);
  std::vector<std::vector<uint16_t>> halves;
  std::vector<PieceToSave> pieces;
  std::map<std::string, std::vector<float>> masters;
  const auto add = [&](const char* kind, DType type, const NamedTensor& tensor,
                       std::vector<uint16_t> values) {
    halves.push_back(std::move(values));
    PieceToSave piece;
    piece.kind = kind, piece.name = tensor.ours, piece.dtype = type, piece.shape = tensor.shape;
    piece.count = static_cast<int64_t>(halves.back().size()), piece.data = halves.back().data();
    pieces.push_back(piece);
  };
  for (const NamedTensor& tensor : list_tensors(family_for(model), model)) {
    std::vector<float>& values = masters[tensor.theirs];
    std::vector<uint16_t> upper, lower;
    for (int64_t i = 0; i < checked_numel(tensor.shape, ""); ++i) {
      values.push_back(random_normal(1, stream_of(tensor.ours), static_cast<uint64_t>(i)));
      const auto bits = std::bit_cast<uint32_t>(values.back());
      upper.push_back(static_cast<uint16_t>((bits + 0x8000u) >> 16));
      lower.push_back(static_cast<uint16_t>(bits));
    }
    add("weight", DType::bf16, tensor, upper);
    add("remainder", DType::u16, tensor, lower);
  }
  const CheckpointWriter writer(temp_ / "trained", 7);
  writer.begin();
  writer.publish(std::vector{writer.write_shard(0, pieces)}, json::object());
  const CheckpointReader reader(writer.path());
  EXPECT_FALSE(holds_weights_alone(reader));
  EXPECT_EQ(export_huggingface(reader, model, back_, {.dtype = DType::f32}).dtype, DType::f32);
  for (const auto& [name, weight] : read_hf_folder(back_))
    EXPECT_TRUE(std::memcmp(weight.bytes.data(), masters.at(name).data(), weight.bytes.size()) == 0) << name;
}

/// The most memory that this process held since reset_peak(), in bytes; 0 when the system does not say.
int64_t peak_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  return 0;
}
bool reset_peak() {
  ::malloc_trim(0);  // what is free already would hide what is taken
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

// 8 shards of 10 MB, whose largest tensors are 4 MB (a vocabulary; the experts of a layer, together on our side). Next to a tensor
// each way there are buffers of files and what the C library keeps (found: 6 MB).
TEST_F(ConvertTest, HoldsATensorAtATimeHoweverLargeTheModel) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory for a while";
#endif
  static constexpr int64_t kModel = 80'000'000, kMost = 12'000'000;
  json config = mixtral_json();
  config["hidden_size"] = 256, config["intermediate_size"] = 512, config["num_local_experts"] = 8;
  config["num_hidden_layers"] = 6, config["vocab_size"] = 4096;
  write_hf_folder(hf_, config, make_weights(config, DType::f32), 8);
  const auto peak_of = [](const std::function<Converted()>& work) {
    const int64_t before = reset_peak() ? peak_bytes() : 0;
    const Converted done = work();
    EXPECT_GT(done.bytes, kModel);
    return before == 0 ? 0 : peak_bytes() - before;
  };
  const int64_t in = peak_of([&] { return import_huggingface(hf_, run_, {}); });
  if (in == 0) GTEST_SKIP() << "this system does not tell a process's peak";
  EXPECT_LT(in, kMost) << "import";
  EXPECT_LT(peak_of([&] { return export_again({.shard_bytes = 10'000'000}); }), kMost) << "export";
}

TEST_F(ConvertTest, RefusesToExportInTheLikenessOfAnotherModel) {
  import(mixtral_json(), make_weights(mixtral_json(), DType::f32));
  json like = mixtral_json();
  like["logit_scale"] = 2;
  make_folders(temp_ / "like");
  spit(temp_ / "like/config.json", like.dump());
  EXPECT_THAT(message_of([&] { export_again({.like = temp_ / "like"}); }),
              HasSubstr("like/config.json: logit_scale = 2: "));
  EXPECT_FALSE(path_exists(back_) || path_exists(back_ + ".tmp"));
}

TEST_F(ConvertTest, EndsBetweenTensorsAndLeavesNothing) {
  struct Stop {};
  const json theirs = mixtral_json();
  const Weights weights = make_weights(theirs, DType::f32);
  const auto num_tensors = static_cast<int64_t>(weights.size());
  int64_t asked = 0, last = 0;
  const BeforeTensor before_tensor = [&] {
    if (++asked > last) throw Stop();
  };
  for (last = 0; last <= num_tensors; last += num_tensors / 2) {
    remove_tree(hf_);
    asked = 0;
    EXPECT_THROW(import(theirs, weights, {.before_tensor = before_tensor}, 2), Stop);
    EXPECT_FALSE(path_exists(run_) || path_exists(run_ + ".tmp"));
  }
  asked = 0, last = num_tensors + 1;  // once more, before the folder gets its name
  remove_tree(hf_);
  import(theirs, weights, {.before_tensor = before_tensor}, 2);
  EXPECT_EQ(asked, last);
  for (last = 0; last <= num_tensors; last += num_tensors / 2) {
    asked = 0;
    EXPECT_THROW(export_again({.before_tensor = before_tensor}), Stop);
    EXPECT_FALSE(path_exists(back_) || path_exists(back_ + ".tmp"));
  }
  asked = 0, last = num_tensors + 1;
  export_again({.before_tensor = before_tensor});
  EXPECT_EQ(asked, last);
}

TEST_F(ConvertTest, RefusesACheckpointThatIsNotItsConfiguration) {
  import(mixtral_json(), make_weights(mixtral_json(), DType::f32));
  const CheckpointReader reader(checkpoint());
  EXPECT_TRUE(holds_weights_alone(reader));
  ModelConfig model = config().model;
  model.num_layers = 1;
  EXPECT_THAT(message_of<IoError>([&] { export_huggingface(reader, model, back_, {}); }),
              HasSubstr("layers.1."));
  model.num_layers = 3;
  EXPECT_THAT(message_of<IoError>([&] { export_huggingface(reader, model, back_, {}); }),
              HasSubstr("layers.2."));
  EXPECT_FALSE(path_exists(back_) || path_exists(back_ + ".tmp"));
}

TEST_F(ConvertTest, WritesARunThatStartsFromIt) {
  import(qwen3_moe_json(), make_weights(qwen3_moe_json(), DType::bf16));
  const Config run = parse_config_file(run_ + "/run.toml");
  validate_values(run);
  EXPECT_EQ(run.run.init, run_);
  EXPECT_EQ(run.model.norm_eps, 1e-6);
  EXPECT_EQ(run.train.compute, ComputeType::bf16);
  EXPECT_EQ(run.train.seq_len, 64);
}

TEST_F(ConvertTest, CarriesTheTokenizerAlongAndIgnoresAnotherFamilysConfig) {
  write_hf_folder(hf_, mixtral_json(), make_weights(mixtral_json(), DType::f32));
  spit(hf_ + "/tokenizer.json", "{}");
  EXPECT_THAT(import_huggingface(hf_, run_, {}).copied, ElementsAre("config.json", "tokenizer.json"));
  EXPECT_THAT(export_again().copied, ElementsAre("tokenizer.json"));
  EXPECT_EQ(slurp(back_ + "/tokenizer.json"), "{}");
  make_folders(temp_ / "other");
  spit(temp_ / "other/config.json", qwen3_moe_json().dump());
  EXPECT_THAT(export_again({.like = temp_ / "other"}).notes, ElementsAre(HasSubstr("another family")));
}

}  // namespace
}  // namespace moesaic::test
