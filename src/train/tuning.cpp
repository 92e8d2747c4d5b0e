#include "train/tuning.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace moesaic {
namespace {

constexpr int64_t kMostBytes = 16 << 20;
constexpr int kVersion = 1;

double number_member(const nlohmann::json& object, const char* name, const std::string& where) {
  const nlohmann::json& value = member(object, name, where);
  require<IoError>(value.is_number() && value.get<double>() > 0, "{}: {} is not a number above 0", where,
                   name);
  return value.get<double>();
}

}  // namespace

std::string dispatch_key(const Config& config) {
  const ModelConfig& m = config.model;
  const int64_t e = config.layout.e == 0 ? config.layout.n : config.layout.e;
  return fmt::format("D {} F {} E {} K {}, {} x {} tokens over n {}, e {}, {}", m.hidden, m.expert_ffn,
                     m.num_experts, m.top_k, config.train.micro_batch, config.train.seq_len, config.layout.n,
                     e, config.train.compute == ComputeType::bf16 ? "bf16" : "f32");
}

std::string tuned_library(const Config& config) {
  return config.run.device == DeviceKind::cuda ? ops::gemm_library() : "cpu";
}

Tuning read_tuning(const std::string& path) {
  const nlohmann::json file = parse_json(read_file(path, kMostBytes), path);
  require<IoError>(
      int_member(file, "version", path) == kVersion,
      "{} is a tuning file of version {}, this build reads version {}: make it anew with moesaic tune", path,
      int_member(file, "version", path), kVersion);
  Tuning tuning{.library = string_member(file, "library", path), .products = {}, .dispatch = {}};
  for (const nlohmann::json& p : array_member(file, "products", path))
    tuning.products.push_back({string_member(p, "product", path), string_member(p, "algorithm", path),
                               number_member(p, "seconds", path), number_member(p, "first_seconds", path)});
  for (const nlohmann::json& d : array_member(file, "dispatch", path))
    tuning.dispatch.push_back({string_member(d, "layer", path), number_member(d, "a2a_seconds", path),
                               number_member(d, "ag_rs_seconds", path)});
  return tuning;
}

void write_tuning(const std::string& path, const Tuning& tuning) {
  nlohmann::json products = nlohmann::json::array(), dispatch = nlohmann::json::array();
  for (const ops::GemmChoice& c : tuning.products)
    products.push_back({{"product", c.product},
                        {"algorithm", c.algorithm},
                        {"seconds", c.seconds},
                        {"first_seconds", c.first_seconds}});
  for (const DispatchTimes& d : tuning.dispatch)
    dispatch.push_back({{"layer", d.layer}, {"a2a_seconds", d.a2a}, {"ag_rs_seconds", d.ag_rs}});
  AtomicFile file(path);
  file.write(
      nlohmann::json{
          {"version", kVersion}, {"library", tuning.library}, {"products", products}, {"dispatch", dispatch}}
          .dump(1) +
      "\n");
  file.commit();
}

Config with_tuning(const Config& config, Control& control) {
  if (config.run.tuning.empty()) return config;
  const std::string& path = config.run.tuning;
  require<ConfigError>(control.same(read_file(path, kMostBytes)),
                       "run.tuning = {} is not the same file for all ranks", path);
  const Tuning tuning = read_tuning(path);
  const std::string library = tuned_library(config);
  require<ConfigError>(tuning.library == library,
                       "run.tuning = {} was made for {}, and this is {}: make one here with moesaic tune, or "
                       "leave run.tuning out",
                       path, tuning.library, library);
  if (config.run.device == DeviceKind::cuda) {
    std::map<std::string, std::string> algorithms;
    for (const ops::GemmChoice& c : tuning.products) algorithms[c.product] = c.algorithm;
    ops::use_gemm_choices(algorithms);
  }
  Config tuned = config;
  if (config.layout.dispatch == Dispatch::automatic)
    for (const DispatchTimes& d : tuning.dispatch)
      if (d.layer == dispatch_key(config)) tuned.layout.dispatch = d.faster();
  return tuned;
}

}  // namespace moesaic
