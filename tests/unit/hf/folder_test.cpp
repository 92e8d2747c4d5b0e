// Folders of Hugging Face that are not what they should be.
#include "hf/hf_folder.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "hf/convert.h"
#include "support/hf_model.h"
#include "support/thrown.h"

namespace moesaic::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class FolderTest : public testing::Test {
 protected:
  FolderTest() : weights_(make_weights(mixtral_json(), DType::bf16)) {}

  /// The message of an import, which must leave nothing behind.
  template <class E = IoError>
  std::string refusal() {
    std::string message = message_of<E>([&] { import_huggingface(temp_ / "hf", temp_ / "out", {}); });
    EXPECT_FALSE(path_exists(temp_ / "out") || path_exists(temp_ / "out.tmp"));
    return message;
  }
  template <class E = IoError>
  std::string refusal_of(const Weights& weights, size_t num_files = 1, const json& config = mixtral_json()) {
    remove_tree(temp_ / "hf");
    write_hf_folder(temp_ / "hf", config, weights, num_files);
    return refusal<E>();
  }
  /// The same after the index was changed.
  std::string refusal_with_index(const std::function<void(json&)>& edit) {
    remove_tree(temp_ / "hf");
    write_hf_folder(temp_ / "hf", mixtral_json(), weights_, 2);
    json index = json::parse(slurp(temp_ / "hf/model.safetensors.index.json"));
    edit(index["weight_map"]);
    spit(temp_ / "hf/model.safetensors.index.json", index.dump());
    return refusal();
  }

  TempFolder temp_;
  Weights weights_;
  const std::string router_ = "model.layers.1.block_sparse_moe.gate.weight";
  const std::string first_ = "model-00001-of-00002.safetensors", second_ = "model-00002-of-00002.safetensors";
};

TEST_F(FolderTest, NamesATensorThatTheModelHasNot) {
  weights_["model.layers.0.self_attn.q_proj.bias"] =
      named("model.layers.0.self_attn.q_proj.bias", DType::f32, {1}, "abcd");
  EXPECT_THAT(refusal_of(weights_), AllOf(HasSubstr("q_proj.bias"), HasSubstr("mixtral")));
}

TEST_F(FolderTest, NamesATensorThatIsMissing) {
  weights_.erase(router_);
  EXPECT_THAT(refusal_of(weights_), AllOf(HasSubstr("lacks " + router_)));
}

TEST_F(FolderTest, NamesATensorOfAnotherShapeOrType) {
  Weights narrow = weights_, counts = weights_;
  narrow[router_] = named(router_, DType::bf16, {2, 32}, weights_[router_].bytes);
  EXPECT_THAT(refusal_of(narrow), AllOf(HasSubstr(router_), HasSubstr("[2, 32]"), HasSubstr("[4, 16]")));
  counts[router_] = named(router_, DType::u16, {4, 16}, weights_[router_].bytes);
  EXPECT_THAT(refusal_of(counts), AllOf(HasSubstr(router_), HasSubstr("U16")));
}

TEST_F(FolderTest, RefusesMoreExpertsThanTheFilesHoldBeforeListingThem) {
  json config = mixtral_json();
  config["num_local_experts"] = 1 << 16, config["num_hidden_layers"] = 10000;
  EXPECT_THAT(refusal_of(weights_, 1, config), HasSubstr("655360000 experts"));
}

TEST_F(FolderTest, AcceptsATiedHeadOnlyIfItIsTheEmbedding) {
  json config = mixtral_json();
  config["tie_word_embeddings"] = true;
  EXPECT_THAT(refusal_of<ConfigError>(weights_, 1, config), HasSubstr("other values"));
  weights_["lm_head.weight"].bytes = weights_["model.embed_tokens.weight"].bytes;
  remove_tree(temp_ / "hf");
  write_hf_folder(temp_ / "hf", config, weights_);
  EXPECT_EQ(import_huggingface(temp_ / "hf", temp_ / "out", {}).num_tensors,
            static_cast<int64_t>(weights_.size()) - 1);
}

TEST_F(FolderTest, LeavesOutWhatFollowsFromTheConfigurationAndSaysSo) {
  const std::string name = "model.layers.0.self_attn.rotary_emb.inv_freq";
  weights_[name] = named(name, DType::f32, {1}, "abcd");
  write_hf_folder(temp_ / "hf", mixtral_json(), weights_);
  EXPECT_THAT(import_huggingface(temp_ / "hf", temp_ / "out", {}).notes, ElementsAre(HasSubstr(name)));
}

TEST_F(FolderTest, KeepsShardsInsideTheFolder) {
  for (const char* name :
       {"../model.safetensors", "/etc/model.safetensors", "..", ".safetensors", "", "model.bin"})
    EXPECT_THAT(refusal_with_index([&](json& map) { map[router_] = name; }), HasSubstr("not the name of"))
        << name;
  EXPECT_THAT(refusal_with_index([&](json& map) { map[router_] = 3; }), HasSubstr("not the name of"));
}

TEST_F(FolderTest, HoldsTheIndexAgainstTheShards) {
  EXPECT_THAT(refusal_with_index([&](json& map) { map.erase(router_); }),
              AllOf(HasSubstr(router_), HasSubstr("not in the index")));
  EXPECT_THAT(refusal_with_index([&](json& map) { map["model.nothing.weight"] = first_; }),
              AllOf(HasSubstr("model.nothing.weight"), HasSubstr(first_)));
  EXPECT_THAT(
      refusal_with_index([&](json& map) { map[router_] = map[router_] == first_ ? second_ : first_; }),
      HasSubstr(router_));
  EXPECT_THAT(refusal_with_index([&](json& map) { map[router_] = "model-3.safetensors"; }),
              AllOf(HasSubstr("cannot open"), HasSubstr("model-3.safetensors")));
  EXPECT_THAT(refusal_with_index([&](json& map) { map = json::object(); }), HasSubstr("weight_map"));
}

TEST_F(FolderTest, FindsATensorThatIsInTwoShards) {
  write_hf_folder(temp_ / "hf", mixtral_json(), weights_, 2);
  write_safetensors(temp_ / ("hf/" + second_), weights_);  // holds those of the first as well
  EXPECT_THAT(refusal(), AllOf(HasSubstr(second_), HasSubstr("in " + first_ + " already")));
}

TEST_F(FolderTest, RefusesAShardThatIsCutShort) {
  write_hf_folder(temp_ / "hf", mixtral_json(), weights_, 2);
  const std::string path = temp_ / ("hf/" + second_), whole = slurp(path);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    spit(path, whole.substr(0, size));
    EXPECT_THAT(refusal(), HasSubstr(second_)) << size;
  }
}

TEST_F(FolderTest, RefusesDamagedJson) {
  write_hf_folder(temp_ / "hf", mixtral_json(), weights_, 2);
  const std::string config = slurp(temp_ / "hf/config.json");
  for (const std::string& text : {std::string(), config.substr(0, config.size() / 2), std::string("[]")}) {
    spit(temp_ / "hf/config.json", text);
    EXPECT_THAT(refusal(), HasSubstr("config.json"));
  }
  spit(temp_ / "hf/config.json", config);
  spit(temp_ / "hf/model.safetensors.index.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("weight_map"));
}

TEST_F(FolderTest, DoesNotReadPickles) {
  make_folders(temp_ / "hf");
  spit(temp_ / "hf/config.json", mixtral_json().dump());
  EXPECT_THAT(refusal(), HasSubstr("neither model.safetensors nor"));
  spit(temp_ / "hf/pytorch_model.bin", "x");
  EXPECT_TRUE(is_hf_folder(temp_ / "hf"));
  EXPECT_THAT(refusal(), HasSubstr("safe_serialization"));
}

TEST_F(FolderTest, CopiesTokenizersAndNamedCodeAndNothingFromOutside) {
  const std::string hf = temp_ / "hf";
  json config = deepseek_json();
  config["auto_map"]["AutoConfig"] = "../secret.Config";
  make_folders(hf);
  spit(hf + "/config.json", config.dump());
  spit(temp_ / "secret.py", "x");
  for (const char* name : {"tokenizer.json", "modeling_deepseek.py", "other.py", "README.md"})
    spit(hf + "/" + name, name);
  EXPECT_THAT(copy_companions(hf, temp_ / "to", false),
              ElementsAre("tokenizer.json", "modeling_deepseek.py"));
  EXPECT_EQ(slurp(temp_ / "to/tokenizer.json"), "tokenizer.json");
  EXPECT_THAT(list_folder(temp_ / "to"), ElementsAre("modeling_deepseek.py", "tokenizer.json"));
}

TEST_F(FolderTest, RefusesATargetThatIsThere) {
  write_hf_folder(temp_ / "hf", mixtral_json(), weights_);
  make_folders(temp_ / "out");
  EXPECT_THAT(message_of([&] { import_huggingface(temp_ / "hf", temp_ / "out/", {}); }),
              HasSubstr("is there already"));
  EXPECT_THAT(list_folder(temp_ / "out"), IsEmpty());
}

}  // namespace
}  // namespace moesaic::test
